"""Reads lanes of ``<table>.keyed`` in offset order and returns the batches of counting transactions.

Batches of several shufflers interleave in a lane, and some belong to transactions that do not count. The
first message of each lane is judged by its nonce, then the next one:

* A counting `BatchShuffled` names it: it is taken, and checked against the entry (sequence, rows, checksum).
* No entry names it, although the fold has read up to the ledger's high watermark that was taken *after* the
  message was seen: no entry ever will, so it is skipped.
* Otherwise it waits, with all messages behind it in the lane.

When an entry names batches that the lane skipped, or passed without seeing them, the reader stops with
IncompleteRangeError (ARCHITECTURE.md, "Shuffle").
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.epoch_protocol.batches import BatchHeader
from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.state import CountedShuffle
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane
from tidemark.index_assigner.errors import InputLostError
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.own_messages import header_of, rows_of
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    KafkaClient,
    Message,
    OffsetOutOfRangeError,
    TopicPartition,
)

_SKIPPED_MAX: Final = 1_000


@dataclass(slots=True)
class _Seen:
    """A message that is not judged yet. ``ledger_end``: the ledger's high watermark, taken after it was
    seen.
    """

    header: BatchHeader
    message: Message
    ledger_end: int | None = None


@dataclass(slots=True)
class _Expected:
    """The batches that a counting entry names in the lane, and how much of them was taken.

    ``sequence``: of the next batch; None: none was taken yet. ``from_first``: reading began at or before
    the first batch, so the sums of rows and checksums can be compared with the entry.
    """

    produced: Produced
    sequence: int | None = None
    rows: int = 0
    checksum: int = 0
    from_first: bool = True


@dataclass(slots=True)
class _Lane:
    """``start``: offset at which the next slice starts. ``passed``: all messages below it are judged.

    ``skipped``: nonces of the last skipped transactions, which no entry named.
    """

    start: int
    passed: int
    waiting: deque[_Seen] = field(default_factory=deque)
    expected: dict[str, _Expected] = field(default_factory=dict)
    skipped: deque[str] = field(default_factory=lambda: deque(maxlen=_SKIPPED_MAX))


class KeyedTopicSource:
    """A `KeyedSource`. Holds at most ``read_ahead_bytes`` and one batch that `poll` has not returned yet."""

    def __init__(
        self,
        client: KafkaClient,
        keyed_topic: str,
        fold_reader: FoldReader,
        ledger: TopicPartition,
        read_ahead_bytes: int,
        batch_bytes: int,
    ) -> None:
        self._topic = keyed_topic
        self._folds = fold_reader
        self._ledger = ledger
        self._read_ahead_bytes = read_ahead_bytes
        self._batch_bytes = batch_bytes
        self._reader = client.partition_reader(Isolation.READ_COMMITTED, follows=True)
        self._admin = client.admin()
        self._lanes: dict[int, _Lane] = {}
        self._held_bytes = 0
        # The ledger's end at the moment when an offset was first found to be out of range.
        self._missing_end: int | None = None
        self._turn = 0
        self._indexed_fold: Fold | None = None
        self._indexed_to = -1

    def assign(self, lane: str, position: int, suspect: bool = False) -> None:
        """Reads the lane from the position on. Suspect lanes are read like the others: our own messages in
        `keyed` end no reader.
        """
        self.release(lane)
        state = _Lane(position, position)
        self._lanes[int(lane)] = state
        self._expect(int(lane), state, self._folds.fold.state.shuffled)
        self._reader.add({self._partition(int(lane)): position})

    def release(self, lane: str) -> None:
        state = self._lanes.pop(int(lane), None)
        if state is not None:
            self._reader.remove([self._partition(int(lane))])
            self._held_bytes -= sum(len(seen.message.value or b"") for seen in state.waiting)

    def poll(self, budget: Budget, timeout_s: float) -> list[KeyedSlice]:
        if not self._lanes:
            return []
        self._read(timeout_s)
        self._index_new_entries()
        self._take_watermark()
        slices = []
        left = budget
        for number in self._in_turn():
            if left.records <= 0 or left.bytes <= 0:
                break
            taken, slice_ = self._take(number, self._lanes[number], left)
            left = Budget(left.records - (slice_.rows if slice_ else 0), left.bytes - taken)
            if slice_ is not None:
                slices.append(slice_)
        return slices

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        """Always none: damage in our own topic raises an error, see `_incomplete`."""
        return ()

    def empty_ranges(self) -> Sequence[EmptyRange]:
        """Always none: this source does not read an input topic."""
        return ()

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        """Does nothing: no lane of our own topic is ever stopped."""

    def skip_results(self) -> Sequence[SkipResult]:
        return ()

    def lags(self) -> dict[str, int]:
        return {
            str(number): max(
                self._admin.end_offset(self._partition(number), Isolation.READ_COMMITTED) - lane.passed, 0
            )
            for number, lane in self._lanes.items()
        }

    def close(self) -> None:
        self._reader.close()
        self._admin.close()

    def _partition(self, lane: int) -> TopicPartition:
        return TopicPartition(self._topic, lane)

    def _in_turn(self) -> list[int]:
        """All lanes, beginning with another one each time, so that a small budget starves none."""
        order = list(self._lanes)
        self._turn = (self._turn + 1) % len(order)
        return order[self._turn :] + order[: self._turn]

    def _read(self, timeout_s: float) -> None:
        room = self._read_ahead_bytes - self._held_bytes
        if room <= 0:
            return
        waits = any(lane.waiting for lane in self._lanes.values())
        try:
            messages = self._reader.poll(max(room // self._batch_bytes, 1), 0.0 if waits else timeout_s)
        except OffsetOutOfRangeError as error:
            self._is_missing(error)
            return
        self._missing_end = None
        for message in messages:
            lane = self._lanes.get(message.partition)
            if lane is not None:
                lane.waiting.append(_Seen(header_of(message), message))
                self._held_bytes += len(message.value or b"")

    def _is_missing(self, error: OffsetOutOfRangeError) -> None:
        """Raises InputLostError if batches were deleted before they were tagged; else reads the lanes again.

        An out-of-date owner sees the same. Example: it was frozen, its successor tagged on, and the topic was
        trimmed behind the successor's commits; nothing was lost. The successor's claim is in the ledger. So
        the ledger is read up to its end of now: if the lanes are still held after that, batches were lost.
        """
        if self._missing_end is None:
            self._missing_end = self._admin.end_offset(self._ledger, Isolation.READ_UNCOMMITTED)
        elif self._folds.ledger_position() >= self._missing_end:
            raise InputLostError(
                f"{error}. Batches were deleted before they were tagged (by retention, which this topic must "
                "not have, or the topic was recreated). `tidemark table adopt --new-ledger` reads the input "
                "again from the last commit"
            ) from error
        # A Kafka client reports this once, and reads no more of the partition until it is added anew.
        places = {place: self._reader.position(place) for place in map(self._partition, self._lanes)}
        self._reader.remove(list(places))
        self._reader.add(places)

    def _index_new_entries(self) -> None:
        fold = self._folds.fold
        if fold is not self._indexed_fold:
            self._indexed_fold, self._indexed_to = fold, -1
        fresh: list[CountedShuffle] = []
        for counted in reversed(fold.state.shuffled):
            if counted.offset <= self._indexed_to:
                break
            fresh.append(counted)
        if fresh:
            self._indexed_to = fresh[0].offset
            for number, lane in self._lanes.items():
                self._expect(number, lane, fresh)

    def _expect(self, number: int, lane: _Lane, counted: Iterable[CountedShuffle]) -> None:
        for entry in (one.entry for one in counted):
            for produced in entry.produced:
                here = produced.topic is Topic.KEYED and produced.partition == number
                if here and entry.nonce in lane.skipped:
                    raise _incomplete(self._topic, entry.nonce, produced, lane.passed)
                if here and produced.last >= lane.passed and entry.nonce not in lane.expected:
                    lane.expected[entry.nonce] = _Expected(produced, from_first=produced.first >= lane.passed)

    def _take_watermark(self) -> None:
        """Takes the ledger's high watermark for all messages that no entry names yet and that have none."""
        unnamed = [
            seen
            for lane in self._lanes.values()
            for seen in lane.waiting
            if seen.ledger_end is None and seen.header.nonce not in lane.expected
        ]
        if unnamed:
            end = self._admin.end_offset(self._ledger, Isolation.READ_UNCOMMITTED)
            for seen in unnamed:
                seen.ledger_end = end

    def _take(self, number: int, lane: _Lane, budget: Budget) -> tuple[int, KeyedSlice | None]:
        """Judges waiting messages within the budget; returns the bytes taken, and the slice if there are
        rows.
        """
        batches, rows, size = [], 0, 0
        while lane.waiting and rows < budget.records and size < budget.bytes:
            seen = lane.waiting[0]
            named = self._is_named(lane, seen)
            if named is None:
                break
            lane.waiting.popleft()
            value = seen.message.value or b""
            self._held_bytes -= len(value)
            lane.passed = seen.message.offset + 1
            if not named and (not lane.skipped or lane.skipped[-1] != seen.header.nonce):
                lane.skipped.append(seen.header.nonce)
            if named:
                batches.append(rows_of(seen.message))
                rows += seen.header.rows
                size += len(value)
        if not lane.waiting:
            lane.passed = max(lane.passed, self._reader.position(self._partition(number)))
        self._check_complete(number, lane)
        if not batches:
            return 0, None
        slice_ = KeyedSlice(str(number), lane.start, lane.passed, batches)
        lane.start = lane.passed
        return size, slice_

    def _is_named(self, lane: _Lane, seen: _Seen) -> bool | None:
        """Whether a counting entry names the batch; None: not known yet."""
        expected = lane.expected.get(seen.header.nonce)
        if expected is not None:
            self._check_next(expected, seen)
            if seen.message.offset == expected.produced.last:
                del lane.expected[seen.header.nonce]
            return True
        if seen.ledger_end is None or self._folds.ledger_position() < seen.ledger_end:
            return None
        return False

    def _check_next(self, expected: _Expected, seen: _Seen) -> None:
        produced, header = expected.produced, seen.header
        if expected.sequence is None:
            # Reading that starts in the middle of a transaction goes on behind the batches that the former
            # owner has checked.
            expected.sequence = 0 if expected.from_first else header.sequence
        in_sequence = header.sequence == expected.sequence and seen.message.offset >= produced.first
        expected.sequence += 1
        expected.rows += header.rows
        expected.checksum = zlib.crc32(seen.message.value or b"", expected.checksum)
        whole = True
        if seen.message.offset == produced.last:
            whole = expected.sequence == produced.batches
            if expected.from_first:
                whole &= (expected.rows, expected.checksum) == (produced.records, produced.checksum)
        if not in_sequence or not whole:
            raise _incomplete(self._topic, header.nonce, produced, seen.message.offset)

    def _check_complete(self, number: int, lane: _Lane) -> None:
        for nonce, expected in lane.expected.items():
            if expected.produced.last < lane.passed:
                raise _incomplete(self._topic, nonce, expected.produced, lane.passed)


def _incomplete(topic: str, nonce: str, produced: Produced, at: int) -> IncompleteRangeError:
    return IncompleteRangeError(
        f"transaction {nonce} names {produced.batches} batches with {produced.records} rows at offsets "
        f"{produced.first}..{produced.last} of {topic}[{produced.partition}]; at offset {at} they do not "
        "match: torn or lost. `tidemark table adopt --new-ledger` reads the input again from the last commit"
    )
