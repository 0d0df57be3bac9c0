"""Entries of a shard as columns, on their way from RocksDB and an older change run into a new one."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import Int64Array

HAS_ORDERING: Final = 1
EXACT: Final = 2
ABSENT: Final = 4

UInt8Array = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Entries:
    """n entries. ``keys`` are unique. ``locations``: ids of the `Locations` of whoever made the columns,
    NO_LOCATION where the key is absent (`ABSENT` in ``flags``). ``ordering``: 0 without `HAS_ORDERING`.
    """

    keys: pa.StringArray
    locations: Int32Array
    ordering: Int64Array
    flags: UInt8Array

    def __len__(self) -> int:
        return len(self.keys)

    def take(self, at: Int64Array) -> Entries:
        """The entries at these positions."""
        return Entries(self.keys.take(pa.array(at)), self.locations[at], self.ordering[at], self.flags[at])

    def part(self, begin: int, end: int) -> Entries:
        """The entries in [begin, end)."""
        return Entries(
            self.keys.slice(begin, end - begin),
            self.locations[begin:end],
            self.ordering[begin:end],
            self.flags[begin:end],
        )

    def inexact(self) -> Entries:
        """The entries of a former generation: their ordering values are lower bounds."""
        return Entries(self.keys, self.locations, self.ordering, self.flags & np.uint8(~EXACT & 0xFF))

    def sorted(self) -> Entries:
        """The entries in ascending order of the keys' UTF-8."""
        return self.take(pc.array_sort_indices(self.keys).to_numpy().astype(np.int64))


def merged(newer: Iterator[Entries], older: Iterator[Entries]) -> Iterator[Entries]:
    """Yields the entries of both in ascending order of the keys; of a key that both have, the newer one's.

    Both must ascend, within each `Entries` and from one to the next. What is held at a time is one `Entries`
    of each. Example: newer b, d and older a, b, c, e: up to d, the smaller of both ends, a, b (the newer),
    c, d are yielded; e waits for the next ones.
    """
    first, second = next(newer, None), next(older, None)
    while first is not None and second is not None:
        if not len(first) or not len(second):
            first = first if len(first) else next(newer, None)
            second = second if len(second) else next(older, None)
            continue
        bound = min(_last(first), _last(second))
        at, behind = _behind(first, bound), _behind(second, bound)
        yield _joined(first.part(0, at), second.part(0, behind))
        first = first.part(at, len(first)) if at < len(first) else next(newer, None)
        second = second.part(behind, len(second)) if behind < len(second) else next(older, None)
    for rest, more in ((first, newer), (second, older)):
        if rest is not None:
            yield rest
            yield from more


def _joined(newer: Entries, older: Entries) -> Entries:
    kept = older
    if len(newer) and len(older):
        kept = older.take(np.flatnonzero(~np.asarray(pc.is_in(older.keys, value_set=newer.keys))))
    return Entries(
        pa.concat_arrays([newer.keys, kept.keys]),
        np.concatenate([newer.locations, kept.locations]),
        np.concatenate([newer.ordering, kept.ordering]),
        np.concatenate([newer.flags, kept.flags]),
    ).sorted()


def _last(entries: Entries) -> bytes:
    return _key_at(entries.keys, len(entries) - 1)


def _key_at(keys: pa.StringArray, at: int) -> bytes:
    key: bytes = keys[at].as_buffer().to_pybytes()
    return key


def _behind(entries: Entries, bound: bytes) -> int:
    """How many of the entries have a key up to ``bound``."""
    return bisect_right(range(len(entries)), bound, key=lambda at: _key_at(entries.keys, at))
