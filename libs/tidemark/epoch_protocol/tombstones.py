"""Which messages of the tombstones topic belong to committed transactions.

The tombstones topic outlives the ledger entries that name its messages, so the fold keeps, per lane, the
offset ranges of the committed transactions. A message between two ranges was rewound, or its transaction
never counted: an owner that lost its claim may still commit its last transaction after its successor began.

Transactions of one claim that follow each other share a range, because only the commit marker of the earlier
one lies between them. Example: under term 7 two transactions write offsets 10 to 12 and 14 to 15 (13 is the
marker), and their range is [10, 16). So a lane has about as many ranges as it had claims and aborted
transactions within the time that the topic keeps.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from tidemark.epoch_protocol.entries import Topic, TransactionTagged

_MARKER: Final = 1


class TombstoneRange(msgspec.Struct):
    """The offsets [first, next) of a lane's partition, written under the claim ``term``.

    ``nonce``: when messages of other transactions lie between, the one transaction whose messages count;
    "" when all messages of the range count.
    """

    term: int
    first: int
    next: int
    nonce: str = ""


class LaneTombstones:
    """One lane's ranges, in ascending order. ``whole``: no message before the first range counts."""

    def __init__(self, ranges: list[TombstoneRange], whole: bool) -> None:
        self._ranges, self._whole = ranges, whole

    @property
    def end(self) -> int | None:
        """The position after the last committed message; None when no range is known."""
        return self._ranges[-1].next if self._ranges else None

    def holds(self, offset: int, nonce: str) -> bool:
        """Whether the message belongs to a committed transaction."""
        at = bisect_right(self._ranges, offset, key=attrgetter("first")) - 1
        if at < 0:
            return not self._whole
        held = self._ranges[at]
        return offset < held.next and held.nonce in ("", nonce)


class CommittedTombstones(msgspec.Struct):
    """The ranges of each lane.

    ``whole``: they go back to the start of the ledger. Otherwise an earlier version, which kept no ranges,
    folded the first entries, and all messages before a lane's first range count.
    """

    lanes: dict[str, list[TombstoneRange]] = {}
    whole: bool = False

    def of(self, lane: str) -> LaneTombstones:
        """The ranges of one lane, for the reader of its partition."""
        return LaneTombstones(self.lanes.get(lane, []), self.whole)

    def commit(self, entries: Iterable[TransactionTagged]) -> None:
        """Adds the tombstone offsets of these transactions, which are committed in this order."""
        for entry in entries:
            for part in entry.produced:
                if part.topic is Topic.TOMBSTONES:
                    self._add(entry, part.partition, part.first, part.last + 1, part.batches)

    def _add(self, entry: TransactionTagged, partition: int, first: int, after: int, batches: int) -> None:
        lane = str(partition)
        ranges, term = self.lanes.setdefault(lane, []), entry.terms.get(lane, -1)
        is_alone = after - first == batches
        last = ranges[-1] if ranges else None
        goes_on = last is not None and not last.nonce and last.term == term
        if last is not None and goes_on and is_alone and first - last.next <= _MARKER:
            last.next = after
        else:
            ranges.append(TombstoneRange(term, first, after, "" if is_alone else entry.nonce))

    def forget_below(self, starts: Mapping[str, int]) -> None:
        """Drops the ranges below ``starts``, the first offset of each lane's partition now.

        A lane's last range is kept, because `LaneTombstones.end` comes from it.
        """
        for lane, start in starts.items():
            ranges = self.lanes.get(lane, [])
            while len(ranges) > 1 and ranges[1].first <= start:
                del ranges[0]
