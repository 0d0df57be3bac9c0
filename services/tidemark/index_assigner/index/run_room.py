"""Makes room on the disk for run files: what is needed least leaves first (docs/adr/0014-run-files.md)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Final

from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.copies import Copies
from tidemark.index_assigner.index.disk_room import DiskRoom
from tidemark.index_assigner.index.key_ranges import RangeTable
from tidemark.index_assigner.runs.files import RunFolder, is_change

_MORE: Final = 16
"""Where key ranges leave, one part in so many of all copies leaves beside what has to."""


class RunRoom:
    """Deletes run files, and gives parts of them back. ``evicted``: files since the process started."""

    def __init__(self, folder: RunFolder, copies: Copies, disk: DiskRoom) -> None:
        self._folder, self._copies, self._disk = folder, copies, disk
        self._ticks = count(1)
        self._used: dict[str, int] = {}
        self.evicted = 0

    def was_used(self, name: str) -> None:
        """Takes note that a look-up used this copy, or that it was made."""
        self._used[name] = next(self._ticks)

    def remove(self, name: str) -> None:
        """Deletes a file."""
        self._folder.remove(name)
        self._used.pop(name, None)

    def of(self, needed: int, limit: int) -> int | None:
        """Bytes that a copy may take which needs so many; None when there are fewer. Copies of shards that
        are not open here make room; those of open ones by ranges (`evict_ranges`).
        """
        closed: Iterator[str] | None = None
        while (room := self._disk.free(limit)) < needed:
            closed = closed or iter(self._closed())
            if (name := next(closed, None)) is None:
                return None
            self._evict(name)
        return room

    def for_changes(self, needed: int) -> int | None:
        """As `of` for a change run, which frees RocksDB: it may take half of the other quarter, and key
        ranges make room as well. Nothing leaves where all of it were too little.
        """
        limit = self._disk.limit()
        spare = self._disk.spare(limit) // 2
        closed = self._folder.taken_bytes(self._closed())
        if self._disk.free(limit) + spare + closed + self._copies.held_bytes() < needed:
            return None
        self.of(needed - spare, limit)
        # Pages that a range shares with others stay: where its bytes were too few, more ranges leave.
        while (missing := needed - spare - self._disk.free(limit)) > 0:
            table = self._copies.table()
            if not self.evict_ranges(table, table.held, missing):
                return None
        return self._disk.free(limit) + spare

    def remove_damaged(self) -> bool:
        """Deletes the files that were set aside; False: there are none."""
        if not self._folder.damaged():
            return False
        self._folder.remove_damaged()
        return True

    def evict(self, limit: int) -> bool:
        """Deletes copies of shards that are not open until all fits, one at least, else the key ranges that
        are used least, and some more, so that the next promotion need not do the same again. False: nothing
        is left. Change runs go with their shards alone.
        """
        if closed := self._closed():
            for name in closed:
                self._evict(name)
                if self._disk.over(limit) <= 0:
                    break
            return True
        table = self._copies.table()
        more = self._copies.held_bytes() // _MORE
        return self.evict_ranges(table, table.held, max(self._disk.over(limit), 1) + more)

    def evict_ranges(self, table: RangeTable, among: BoolArray, size: float) -> bool:
        """Gives at least so many bytes back, the least used ranges first; False: there are none."""
        if size <= 0 or not (among & table.held).any():
            return False
        for name in self._copies.evict(table, among, size):
            self.remove(name)
            self.evicted += 1
        return True

    def _evict(self, name: str) -> None:
        self.remove(name)
        self.evicted += 1

    def _closed(self) -> list[str]:
        """The copies of shards that are not open, the one that was used least lately first. There may be
        thousands, so whoever deletes several asks once.
        """
        opened = {self._copies.name(number) for number in self._copies.shards()}
        closed = [name for name in self._folder.names() if not is_change(name) and name not in opened]
        return sorted(closed, key=lambda name: self._used.get(name, 0))
