"""The content of a RocksDB folder in a dictionary, which each batch of writes replaces as a whole."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Iterator


class DictRocks(ABC):
    """Takes the place of `RocksTier`. What keeps the dictionaries, and so what a loss of power takes back, is
    the test's.
    """

    batch_bytes = 1 << 20
    """As `RocksTier.batch_bytes`: the units of a partitioned index are written together up to this size."""

    @property
    @abstractmethod
    def content(self) -> dict[bytes, bytes]:
        """What is stored now; nobody changes it."""

    @abstractmethod
    def replace(self, content: dict[bytes, bytes]) -> None:
        """A batch was written: this is stored now."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        content = self.content
        return [content.get(key) for key in keys]

    def get(self, key: bytes) -> bytes | None:
        return self.get_many([key])[0]

    def keys_between(self, first: bytes, end: bytes) -> list[bytes]:
        keys = sorted(self.content)
        return keys[bisect_left(keys, first) : bisect_left(keys, end)]

    def items_between(self, first: bytes, end: bytes) -> list[tuple[bytes, bytes]]:
        content = self.content
        return [(key, content[key]) for key in self.keys_between(first, end)]

    def items_from(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(self.items_between(first, end))

    def write(
        self,
        puts: Iterable[tuple[list[bytes], list[bytes]]],
        deletes: Iterable[bytes] = (),
        drop_ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        # As in RocksDB the batch is made first: what is written meanwhile is there before it.
        batch = list(puts)
        content = dict(self.content)
        for first, end in drop_ranges:
            for key in self.keys_between(first, end):
                del content[key]
        for key in deletes:
            content.pop(key, None)
        for keys, values in batch:
            content.update(zip(keys, values, strict=True))
        self.replace(content)

    def write_in_parts(
        self,
        puts: Iterable[tuple[list[bytes], list[bytes]]],
        record: Iterable[tuple[list[bytes], list[bytes]]],
        record_keys: Iterable[bytes],
        deletes: Iterable[bytes] = (),
    ) -> None:
        """Every put is too large for a batch with another one."""
        for number, put in enumerate(puts):
            self.write([put], [] if number else record_keys)
        self.write(record, deletes)

    def load(self, keys: list[bytes], values: list[bytes]) -> None:
        assert keys == sorted(set(keys))
        self.write([(keys, values)])

    def clear(self, first: bytes, end: bytes) -> None:
        if self.keys_between(first, end):
            self.write([], [], [(first, end)])

    def reclaim(self, first: bytes, end: bytes) -> None:
        return None

    def disk_bytes(self) -> int:
        return sum(len(key) + len(value) for key, value in self.content.items())

    def entries(self) -> int:
        return len(self.content)
