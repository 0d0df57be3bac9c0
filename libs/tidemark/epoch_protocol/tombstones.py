"""Which messages of the tombstones topic belong to committed transactions.

The tombstones topic outlives the ledger entries that name its messages, so the fold keeps, per lane, the
ranges of offsets that committed transactions had. What lies between them was rewound, or never counted: an
owner that lost its claim may commit its last transaction after its successor began.

Transactions that follow on each other under one claim share a range: between them lies the first one's
marker and nothing else. So there are as many ranges as claims and aborted transactions, within the time that
the topic keeps.
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
    """Offsets first..next of a lane's partition, written under the claim ``term``.

    ``nonce``: of the one transaction whose messages count, where others' lie between them; "": all count.
    """

    term: int
    first: int
    next: int
    nonce: str = ""


class LaneTombstones:
    """One lane's ranges, ascending. ``whole``: messages before the first one do not count."""

    def __init__(self, ranges: list[TombstoneRange], whole: bool) -> None:
        self._ranges, self._whole = ranges, whole

    @property
    def end(self) -> int | None:
        """The position after the last committed message; None where none is known."""
        return self._ranges[-1].next if self._ranges else None

    def holds(self, offset: int, nonce: str) -> bool:
        """Whether the message belongs to a committed transaction."""
        at = bisect_right(self._ranges, offset, key=attrgetter("first")) - 1
        if at < 0:
            return not self._whole
        found = self._ranges[at]
        return offset < found.next and found.nonce in ("", nonce)


class CommittedTombstones(msgspec.Struct):
    """Per lane its ranges. ``whole``: since the ledger began; else a former version folded the first entries,
    and what lies before a lane's first range counts.
    """

    lanes: dict[str, list[TombstoneRange]] = {}
    whole: bool = False

    def of(self, lane: str) -> LaneTombstones:
        """A lane's ranges, for who reads its partition."""
        return LaneTombstones(self.lanes.get(lane, []), self.whole)

    def commit(self, entries: Iterable[TransactionTagged]) -> None:
        """These transactions are committed, in this order."""
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
        """The partitions begin at these offsets by now. A lane's last range stays: it tells the end."""
        for lane, start in starts.items():
            ranges = self.lanes.get(lane, [])
            while len(ranges) > 1 and ranges[1].first <= start:
                del ranges[0]
