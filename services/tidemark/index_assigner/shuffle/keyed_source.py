"""The interface from which the assign stage gets keyed rows: from `keyed`, or from the input itself."""

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
    """The half-open range [start, next) of a lane's offsets, with all counting rows in it.

    ``batches`` have `KEYED_COLUMNS` and the user's columns, in order of arrival. ``dead_letters`` are to be
    published in the transaction that consumes the range. A transaction consumes whole slices; the slices of a
    lane follow each other without a gap.
    """

    lane: str
    start: int
    next: int
    batches: list[pa.RecordBatch]
    dead_letters: list[OutgoingMessage] = field(default_factory=list)
    passed_over: int = 0
    """Number of records that are about no row: neither rows nor dead letters."""
    dropped: FieldCounts = field(default_factory=Counter)
    ends_transaction: bool = False
    """Whether nothing more may be read before this range is published. True for a skipped range: the record
    behind it may end the process, and the skip would be lost with it, again and again.
    """

    @property
    def rows(self) -> int:
        """Rows in the batches."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def records(self) -> int:
        """Number of input records in the slice: rows and dead letters."""
        return self.rows + len(self.dead_letters)


class KeyedSource(Protocol):
    """A source of keyed rows by lane. Owned by the thread that polls the fold."""

    def assign(self, lane: str, position: int, suspect: bool = False) -> None:
        """Reads the lane from the position on (the ledger's ``next``), and drops what was held of it.

        ``suspect``: earlier readers died at that position, maybe of its record.
        """
        ...

    def release(self, lane: str) -> None:
        """Stops reading the lane and drops what is held of it. Lanes that are not read are ignored."""
        ...

    def poll(self, budget: Budget, timeout_s: float) -> list[KeyedSlice]:
        """Returns at most one slice per lane; [] after ``timeout_s`` without any.

        A slice starts where the lane's last one ended, or at the assigned position. After a slice that
        ``ends_transaction`` the caller polls again only when that slice is published. Raises InputWaitsError,
        IncompleteRangeError, InputLostError, KafkaError.
        """
        ...

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        """Assigned lanes whose input cannot be read any further; the other lanes go on."""
        ...

    def empty_ranges(self) -> Sequence[EmptyRange]:
        """Ranges of input offsets, from the lanes' positions on, that contain no record."""
        ...

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        """Starts moving stopped lanes past the offset at which they stopped. Orders may be repeated."""
        ...

    def skip_results(self) -> Sequence[SkipResult]:
        """The results of the latest skip orders."""
        ...

    def lags(self) -> dict[str, int]:
        """Per lane the number of offsets, markers included, up to the end. Asks the broker."""
        ...

    def close(self) -> None:
        """Closes the Kafka clients."""
        ...
