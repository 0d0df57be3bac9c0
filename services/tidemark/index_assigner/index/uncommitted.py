"""Entries of one lane that no committed epoch covers: the uppermost tier, in memory only.

Entries are appended in the order of tagging. Their numbers (`slot`) ascend for the life of the lane, also
after older entries were discarded. Each entry has the slot that was its key's newest before it, so that the
entries staged last can be taken back.

Invariant: `_newest` has exactly the keys of the kept slots, each with its greatest slot.

Everything is in arrays: what a promotion discards goes back to the system at once, and `nbytes` is what is
held. Nothing here needs a second array of all entries for a moment, as that would be memory without a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.index_assigner.domain.key_stretches import stretches
from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.key_column import KEY_TYPE, KeyColumn, Keys
from tidemark.index_assigner.index.newest_slots import NewestSlots
from tidemark.index_assigner.index.ports import StagedChanges

SLOT: Final = np.dtype(
    [
        ("location", np.int32),
        ("deleted_from", np.int32),
        ("shard", np.int32),
        ("has_ordering", np.bool_),
        ("exact", np.bool_),
        ("ordering", np.int64),
        ("expires_ms", np.int64),
        ("previous", np.int64),
        ("hash", np.int64),
    ]
)
SlotArray = npt.NDArray[np.void]
_ROWS_MIN: Final = 64
_ROWS_AT_ONCE: Final = 1 << 16
_DERIVED: Final = frozenset({"previous", "hash"})


@dataclass(frozen=True, slots=True)
class _Mark:
    """The end of one transaction's slots. Marks 3 and 5 mean: slots 0-2 are the first transaction's, slots
    3-4 the second's.
    """

    end: int
    ledger_offset: int
    tombstones_next: int | None


class LaneEntries:
    """The uncommitted entries of one lane, by slot and by key."""

    def __init__(self) -> None:
        self._base = 0
        self._keys = KeyColumn()
        self._rows = np.empty(_ROWS_MIN, SLOT)
        self._newest = NewestSlots()
        self._marks: list[_Mark] = []

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._keys.nbytes + self._rows.nbytes + self._newest.nbytes

    def find(self, keys: list[bytes]) -> Int64Array:
        """The newest slot of each key, -1 where there is none."""
        if not len(self):
            return np.full(len(keys), -1, np.int64)
        slots, _ = self._find(pa.array(keys, KEY_TYPE), _hashes(keys))
        return slots

    def _find(self, keys: Keys, hashes: Int64Array) -> tuple[Int64Array, Int64Array]:
        def same(asked: Int64Array, slots: Int64Array) -> BoolArray:
            """Keys are compared wherever hashes are equal, always: two keys may share one."""
            return self._keys.equal(slots - self._base, keys, asked)

        return self._newest.find(hashes, self._hashes_of, same)

    def rows(self, slots: Int64Array) -> SlotArray:
        """The entries in these slots."""
        rows: SlotArray = self._rows[slots - self._base]
        return rows

    def stage(self, keys: list[bytes], changes: StagedChanges) -> None:
        """Appends a batch of changes. ``keys`` must be unique."""
        count, kept = len(keys), len(self)
        stored, hashes = pa.array(keys, KEY_TYPE), _hashes(keys)
        self._newest.make_room(count, self._hashes_of)
        before, places = self._find(stored, hashes)
        rows = np.empty(count, SLOT)
        for name in SLOT.names or ():
            if name not in _DERIVED:
                rows[name] = getattr(changes, "shards" if name == "shard" else name)
        rows["previous"], rows["hash"] = before, hashes
        self._inherit_tombstones(rows)
        if kept + count > len(self._rows):
            # A quarter in reserve: no more than that is held for nothing. The system moves the pages of a
            # large array that grows in place, so there are never two of them.
            self._rows.resize((kept + count) * 5 // 4)
        self._rows[kept : kept + count] = rows
        self._keys.append(stored)
        self._newest.put(places, before, np.arange(self._end - count, self._end))

    def _inherit_tombstones(self, rows: SlotArray) -> None:
        """Gives a key that was absent and stays absent the greater of both tombstones, and its former
        location.

        Example: a key was deleted at 20, and now again at 10, both uncommitted. The new entry gets the
        tombstone of 20, or an event at 15 would count.
        """
        again = np.flatnonzero((rows["location"] < 0) & (rows["previous"] >= 0))
        before = self.rows(rows["previous"][again])
        both = before["location"] < 0
        again, before = again[both], before[both]
        after = rows[again]
        older = before["has_ordering"] & (~after["has_ordering"] | (before["ordering"] > after["ordering"]))
        for name in ("ordering", "has_ordering", "exact", "expires_ms"):
            after[name] = np.where(older, before[name], after[name])
        after["deleted_from"] = np.where(
            after["deleted_from"] >= 0, after["deleted_from"], before["deleted_from"]
        )
        rows[again] = after

    def counted(self, ledger_offset: int, tombstones_next: int | None) -> None:
        """Assigns the changes staged since the last call to the transaction at this ledger offset."""
        self._marks.append(_Mark(self._end, ledger_offset, tombstones_next))

    def drop_staged(self) -> None:
        """Takes back the changes staged since the last `counted`.

        A key that was staged twice since then has its older slot in the first of them: slots 3 and 5 of a key
        are staged, 3 has slot 1 before it, so the key gets slot 1 again.
        """
        start = self._marks[-1].end if self._marks else self._base
        dropped = self._rows[start - self._base : len(self)]
        first = np.flatnonzero(dropped["previous"] < start)
        keys = self._keys.selected(first + (start - self._base))
        _, places = self._find(keys, dropped["hash"][first])
        self._newest.restore(places, dropped["previous"][first])
        self._keys.drop_from(start - self._base)

    def through(self, ledger_offset: int) -> tuple[int, int | None]:
        """Returns the slot behind the transactions up to that ledger offset, and their last tombstones
        position (None: they have none).
        """
        end, position = self._base, None
        for mark in self._marks:
            if mark.ledger_offset > ledger_offset:
                break
            end = mark.end
            position = position if mark.tombstones_next is None else mark.tombstones_next
        return end, position

    def newest_below(self, end: int) -> Int64Array:
        """The slots below that one, ascending, of which each has the newest of its key's entries there.

        An entry is the newest of its key if none of the others has it as its previous one.
        """
        newest = np.ones(end - self._base, np.bool_)
        for first in range(0, len(newest), _ROWS_AT_ONCE):
            previous = self._rows["previous"][first : min(first + _ROWS_AT_ONCE, len(newest))]
            newest[previous[previous >= self._base] - self._base] = False
        slots: Int64Array = np.flatnonzero(newest)
        slots += self._base
        return slots

    def shards(self, slots: Int64Array) -> Int32Array:
        """The shard of each of these entries."""
        shards: Int32Array = self._rows["shard"][slots - self._base]
        return shards

    def parts(
        self, slots: Int64Array, at_once: int, bytes_at_once: int
    ) -> Iterator[tuple[list[bytes], SlotArray]]:
        """Yields the keys and rows of these ascending slots, so many at a time, with so many bytes of keys,
        since as Python objects keys take three times the memory that they take here. A larger key comes
        alone.
        """
        for begin in range(0, len(slots), at_once):
            some = slots[begin : begin + at_once]
            for first, end in stretches(self._keys.widths(some - self._base), at_once, bytes_at_once):
                part = some[first:end]
                yield self._keys.selected(part - self._base).to_pylist(), self.rows(part)

    def discard_through(self, ledger_offset: int) -> None:
        """Forgets the transactions up to that ledger offset. To be called only when RocksDB has their
        entries.

        Marks of later transactions are kept even if they end at the same slot, having no entries of this
        lane: their position in the tombstones topic is still needed.
        """
        end, _ = self.through(ledger_offset)
        count = end - self._base
        kept = len(self) - count
        rows = np.empty(max(_ROWS_MIN, kept), SLOT)
        rows[:kept] = self._rows[count : count + kept]
        self._rows = rows
        self._keys.drop_first(count)
        self._marks = [mark for mark in self._marks if mark.ledger_offset > ledger_offset]
        self._base = self._newest.floor = end
        self._newest.give_back(self._hashes_of)

    def _hashes_of(self, slots: Int64Array) -> Int64Array:
        hashes: Int64Array = self._rows["hash"][slots - self._base]
        return hashes

    @property
    def _end(self) -> int:
        return self._base + len(self)


def _hashes(keys: list[bytes]) -> Int64Array:
    """Python's hashes: they differ from process to process, so nobody can choose keys that share one."""
    return np.fromiter(map(hash, keys), np.int64, len(keys))
