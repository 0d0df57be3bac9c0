"""Where the assign stage gets its keyed rows from, whether or not the shuffle hop is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane
from tidemark.index_assigner.shuffle.dropped_fields import FieldCounts
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage


@dataclass(frozen=True)
class KeyedSlice:
    """The half-open range [start, next) of a lane, whole: ``batches`` are all that exists in it.

    ``batches`` have `KEYED_COLUMNS` and the user's columns, in order of arrival. ``dead_letters`` are to be
    published in the transaction that consumes the range. A transaction consumes whole slices; the slices of
    a lane follow each other without a gap.
    """

    lane: str
    start: int
    next: int
    batches: list[pa.RecordBatch]
    dead_letters: list[OutgoingMessage] = field(default_factory=list)
    passed_over: int = 0
    """Records that are about no row: neither rows nor dead letters."""
    dropped: FieldCounts = field(default_factory=Counter)
    ends_transaction: bool = False
    """Whether nothing more may be read before this range is published: it was skipped, and what lies behind
    it may end whoever reads it. The skip would be lost with the process, and asked for again and again.
    """

    @property
    def rows(self) -> int:
        """Rows in the batches."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def records(self) -> int:
        """Input records that the slice stands for: rows and dead letters."""
        return self.rows + len(self.dead_letters)


class KeyedSource(Protocol):
    """Owned by one thread, the same that polls the fold reader."""

    def assign(self, lane: str, position: int, suspect: bool = False) -> None:
        """Reads the lane from the position on (the ledger's ``next``); what was held of it is dropped.

        ``suspect``: who read it before died, maybe of what lies there.
        """
        ...

    def release(self, lane: str) -> None:
        """Stops reading the lane and drops what is held of it. Unknown lanes are fine."""
        ...

    def poll(self, budget: Budget, timeout_s: float) -> list[KeyedSlice]:
        """At most one slice per lane; [] after ``timeout_s`` without any.

        Slices start where the former one of the lane ended (or at the assigned position). After a slice that
        ``ends_transaction`` the next call comes when that slice is published. Raises
        IncompleteRangeError, OffsetOutOfRangeError, KafkaUnavailableError.
        """
        ...

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        """Lanes assigned whose input cannot be read any further; the others go on."""
        ...

    def empty_ranges(self) -> Sequence[EmptyRange]:
        """Of the input: in front of where its lanes stand, as far as no record is left to read."""
        ...

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        """Stopped lanes are to move past what they stand at; the same orders may come again and again."""
        ...

    def skip_results(self) -> Sequence[SkipResult]:
        """What became of the latest orders."""
        ...

    def lags(self) -> dict[str, int]:
        """Offsets between what was handed out and the end, per lane (markers included). Asks the broker."""
        ...

    def close(self) -> None: ...
