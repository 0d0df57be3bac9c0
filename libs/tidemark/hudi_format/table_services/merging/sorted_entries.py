"""Entries (key, value) in the order of their keys, in bounded memory: the newest one of each key, or all of
them, those of one key oldest first.

Entries are added oldest first. What exceeds the bound goes into sorted runs on disk, which are merged with
what is left in memory. Arrow compares binary keys byte by byte, unsigned: that is the order of HFiles.

Runs are merged window by window: of the batches that are at hand, the smallest last key is a bound up to
which all entries are known, and everything up to it is merged at once. Example: batches [a c e] and [b d]
have the bound d; merged are a, b, c, d, and the window's rest [e] waits for the next batch of the second run.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# So many runs are merged at once: each of them has a batch in memory.
RUNS_MAX: Final = 32
_BATCH_BYTES: Final = 256 << 10
_OBJECT_BYTES: Final = 1 << 10
_SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])


@dataclass(frozen=True, slots=True)
class Entries:
    """n entries: binary keys, and binary values, null for a key that is deleted."""

    keys: pa.BinaryArray
    values: pa.BinaryArray

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """The memory of the columns, in bytes, and of their objects."""
        return _OBJECT_BYTES + int(self.keys.nbytes + self.values.nbytes)

    @classmethod
    def of(cls, keys: pa.Array, values: pa.Array | None) -> Entries:
        """Keys as text or UTF-8; None for values: deletes."""
        return cls(keys.cast(pa.binary()), pa.nulls(len(keys), pa.binary()) if values is None else values)

    @classmethod
    def concat(cls, parts: Sequence[Entries]) -> Entries:
        """All entries, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return cls(pa.array([], pa.binary()), pa.array([], pa.binary()))
        keys = pa.concat_arrays([part.keys for part in parts])
        return cls(keys, pa.concat_arrays([part.values for part in parts]))

    def slice(self, begin: int, end: int) -> Entries:
        """The entries from `begin` up to `end`, as a view."""
        return Entries(self.keys[begin:end], self.values[begin:end])

    def first_at_or_after(self, key: bytes) -> int:
        """Of sorted entries, the position of the first one whose key is not below `key`."""
        return bisect.bisect_left(range(len(self)), key, key=self.key_at)

    def first_after(self, key: bytes) -> int:
        """Of sorted entries, the position of the first one whose key is above `key`."""
        return bisect.bisect_right(range(len(self)), key, key=self.key_at)

    def key_at(self, position: int) -> bytes:
        """The key at a position."""
        key: bytes = self.keys[position].as_py()
        return key

    def live(self) -> Entries:
        """The entries that are no deletes."""
        if not self.values.null_count:
            return self
        kept = pc.is_valid(self.values)
        return Entries(self.keys.filter(kept), self.values.filter(kept))

    def all_sorted(self) -> Entries:
        """All entries in the order of their keys, those of one key in the order that they have."""
        if len(self) < 2 or pc.all(pc.less_equal(self.keys[:-1], self.keys[1:])).as_py():
            return self
        order = pa.array(pc.sort_indices(self.keys).to_numpy())
        return Entries(self.keys.take(order), self.values.take(order))

    def newest_sorted(self) -> Entries:
        """The entries in the order of their keys; of several with one key the last one."""
        if len(self) < 2 or pc.all(pc.less(self.keys[:-1], self.keys[1:])).as_py():
            return self
        # The sort is stable, so that the newest of equal keys is the last of them.
        order = pc.sort_indices(self.keys).to_numpy()
        keys = self.keys.take(pa.array(order))
        is_last = np.append(np.asarray(pc.not_equal(keys[:-1], keys[1:])), True)
        if is_last.all():
            return Entries(keys, self.values.take(pa.array(order)))
        return Entries(keys.filter(pa.array(is_last)), self.values.take(pa.array(order[is_last])))


class SortedEntries:
    """Takes entries, oldest first, and gives them back in the order of their keys."""

    def __init__(self, scratch: Path, name: str, held_bytes: int, *, keeps_all: bool = False) -> None:
        """`scratch` is a folder of the caller's for the runs, whose files begin with `name`. At most
        `held_bytes` are held; sorting takes as much again for a moment. `keeps_all`: all entries of a key
        are given back, and in one batch.
        """
        self._keeps_all = keeps_all
        self._scratch, self._name, self._limit = scratch, name, held_bytes
        self._parts: list[Entries] = []
        self._bytes = 0
        self._runs: list[Path] = []
        self._made = 0
        self.count = 0

    def add(self, entries: Entries) -> None:
        """Adds entries that are newer than all before; of several with one key the last is the newest."""
        self.count += len(entries)
        self._parts.append(entries)
        self._bytes += entries.nbytes
        if self._bytes <= self._limit:
            return
        self._sort_parts()
        # Keys that change again and again keep one entry each, so that this may have helped.
        if self._bytes > self._limit // 2:
            self._spill()

    def batches(self, alive: Callable[[], None] = lambda: None) -> Iterator[Entries]:
        """The newest entry of each key, or all of them, deletes included, in ascending order of keys.

        Many runs become few before the first batch is given, which takes long: `alive` is called before each
        window that is merged.
        """
        self._sort_parts()
        while len(self._runs) >= RUNS_MAX:
            runs, self._runs = self._runs, []
            # Neighbours become one, so that the order of age stays, and no entry is written more often than
            # another. Example of 2 at once: runs 1 2 3 4 5 become 12 34 5, then 1234 5, then 12345.
            for begin in range(0, len(runs), RUNS_MAX):
                some = runs[begin : begin + RUNS_MAX]
                if len(some) < RUNS_MAX:
                    self._runs += some
                    continue
                self._runs.append(self._write(self._merged([_read(run) for run in some], alive)))
                for run in some:
                    run.unlink()
        yield from self._merged([*(_read(run) for run in self._runs), iter(self._parts)], alive)

    def _sort_parts(self) -> None:
        self._parts = [self._sorted(Entries.concat(self._parts))] if self._parts else []
        self._bytes = sum(part.nbytes for part in self._parts)

    def _sorted(self, entries: Entries) -> Entries:
        return entries.all_sorted() if self._keeps_all else entries.newest_sorted()

    def _merged(self, sources: Sequence[Iterator[Entries]], alive: Callable[[], None]) -> Iterator[Entries]:
        """All entries in the order of their keys; those of a key are in the order of the sources."""
        for parts in windows(sources):
            alive()
            yield self._sorted(Entries.concat([part for part in parts if len(part)]))

    def _spill(self) -> None:
        self._runs.append(self._write(iter(self._parts)))
        self._parts, self._bytes = [], 0

    def _write(self, batches: Iterator[Entries]) -> Path:
        path = self._scratch / f"{self._name}-{self._made}.arrow"
        self._made += 1
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA, options=options) as writer:
            for entries in batches:
                rows = max(_BATCH_BYTES * len(entries) // max(entries.nbytes, 1), 1)
                begin = 0
                while begin < len(entries):
                    # The entries of one key stay together.
                    last = entries.key_at(min(begin + rows, len(entries)) - 1)
                    end = entries.first_after(last)
                    some = entries.slice(begin, end)
                    writer.write_batch(pa.record_batch([some.keys, some.values], schema=_SCHEMA))
                    begin = end
        return path


def windows(sources: Sequence[Iterator[Entries]]) -> Iterator[list[Entries]]:
    """Yields for each window the sources' entries in it, in the order of the sources; some may be empty.

    Each source ascends by key, and has the entries of a key in one batch.
    """
    heads = [_next_of(source) for source in sources]
    while any(head is not None for head in heads):
        bound = min(head.key_at(len(head) - 1) for head in heads if head is not None)
        parts: list[Entries] = []
        for number, head in enumerate(heads):
            if head is None:
                parts.append(Entries.concat([]))
                continue
            end = head.first_after(bound)
            parts.append(head.slice(0, end))
            heads[number] = head.slice(end, len(head)) if end < len(head) else _next_of(sources[number])
        yield parts


def _next_of(source: Iterator[Entries]) -> Entries | None:
    return next((entries for entries in source if len(entries)), None)


def _read(path: Path) -> Iterator[Entries]:
    with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as reader:
        for batch in reader:
            yield Entries(batch.column(0), batch.column(1))
