"""Entries of one lane that no committed epoch covers: the uppermost tier, in memory only.

Entries are appended in the order of tagging. Their numbers (`slot`) ascend for the life of the lane, also
after older entries were discarded. Each entry has the slot that was its key's newest before it, so that the
entries staged last can be taken back.

Invariant: `_newest` has exactly the keys of the kept slots, each with its greatest slot.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from tidemark.index_assigner.domain.reduce import Int64Array
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
    ]
)
SlotArray = npt.NDArray[np.void]
_NONE: Final = -1
# Bytes per entry beside the key's own: its bytes object, dictionary cell, number and row.
_ENTRY_OVERHEAD: Final = 200 + SLOT.itemsize


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
        self._keys: list[bytes] = []
        self._rows = np.empty(1024, SLOT)
        self._newest: dict[bytes, int] = {}
        self._marks: list[_Mark] = []
        self._key_bytes = 0

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def nbytes(self) -> int:
        """Estimated memory held, in bytes."""
        return self._key_bytes + len(self._keys) * _ENTRY_OVERHEAD

    def find(self, keys: list[bytes]) -> Int64Array:
        """The newest slot of each key, -1 where there is none."""
        return np.fromiter(map(self._newest.get, keys, repeat(_NONE)), np.int64, len(keys))

    def rows(self, slots: Int64Array) -> SlotArray:
        """The entries in these slots."""
        rows: SlotArray = self._rows[slots - self._base]
        return rows

    def stage(self, keys: list[bytes], changes: StagedChanges) -> None:
        """Appends a batch of changes. ``keys`` must be unique."""
        count, kept = len(keys), len(self._keys)
        rows = np.empty(count, SLOT)
        for name in SLOT.names or ():
            if name != "previous":
                rows[name] = getattr(changes, "shards" if name == "shard" else name)
        rows["previous"] = self.find(keys)
        self._inherit_tombstones(rows)
        if kept + count > len(self._rows):
            grown = np.empty(2 * (kept + count), SLOT)
            grown[:kept] = self._rows[:kept]
            self._rows = grown
        self._rows[kept : kept + count] = rows
        self._keys.extend(keys)
        self._newest.update(zip(keys, range(self._base + kept, self._base + kept + count), strict=True))
        self._key_bytes += sum(map(len, keys))

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
        """Takes back the changes staged since the last `counted`, newest first."""
        start = self._marks[-1].end if self._marks else self._base
        kept = start - self._base
        dropped = self._keys[kept:]
        previous: Iterable[int] = self._rows["previous"][kept : len(self._keys)][::-1].tolist()
        for key, slot in zip(reversed(dropped), previous, strict=True):
            if slot >= self._base:
                self._newest[key] = slot
            else:
                del self._newest[key]
        self._key_bytes -= sum(map(len, dropped))
        del self._keys[kept:]

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

    def newest_below(self, end: int) -> tuple[list[bytes], SlotArray]:
        """Returns the keys that have entries below that slot, and for each the newest of those entries."""
        count = end - self._base
        last = dict(zip(self._keys[:count], range(count), strict=True))
        slots = np.fromiter(last.values(), np.int64, len(last))
        return list(last), self._rows[slots]

    def discard_through(self, ledger_offset: int) -> None:
        """Forgets the transactions up to that ledger offset. To be called only when RocksDB has their
        entries.

        Marks of later transactions are kept even if they end at the same slot, having no entries of this
        lane: their position in the tombstones topic is still needed.
        """
        end, _ = self.through(ledger_offset)
        count = end - self._base
        gone = self._keys[:count]
        newest = self._newest
        for key in gone:
            if newest.get(key, end) < end:
                del newest[key]
        self._key_bytes -= sum(map(len, gone))
        kept = len(self._keys) - count
        rows = np.empty(max(1024, kept), SLOT)
        rows[:kept] = self._rows[count : count + kept]
        self._rows = rows
        del self._keys[:count]
        self._marks = [mark for mark in self._marks if mark.ledger_offset > ledger_offset]
        self._base = end

    @property
    def _end(self) -> int:
        return self._base + len(self._keys)
