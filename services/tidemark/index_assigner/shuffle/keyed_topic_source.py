"""Reads lanes of ``<table>.keyed`` in offset order and hands out the batches that exist.

Batches of several shufflers interleave in a lane, and some belong to transactions that do not count. Each
message is resolved from the head of its lane, by its nonce:

* a counting `BatchShuffled` names it: taken, and checked against the entry (sequence, rows, checksum);
* no entry names it although the fold has passed the ledger's high watermark that was taken *after* the
  message was seen: it never will be named, so it is skipped;
* else it waits, and all behind it in the lane.

An entry that names batches which the lane has passed without seeing them, or has skipped, stops the reader
with IncompleteRangeError (ARCHITECTURE.md, "Shuffle").
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
    """A message that waits for its verdict; ``ledger_end``: high watermark taken after it was seen."""

    header: BatchHeader
    message: Message
    ledger_end: int | None = None


@dataclass(slots=True)
class _Expected:
    """What a counting entry names in the lane, and how much of it was taken."""

    produced: Produced
    sequence: int | None = None
    rows: int = 0
    checksum: int = 0
    from_first: bool = True


@dataclass(slots=True)
class _Lane:
    """``start``: where the next slice starts; ``passed``: everything below is resolved; ``skipped``: the last
    nonces that were found to be named by nobody.
    """

    start: int
    passed: int
    waiting: deque[_Seen] = field(default_factory=deque)
    expected: dict[str, _Expected] = field(default_factory=dict)
    skipped: deque[str] = field(default_factory=lambda: deque(maxlen=_SKIPPED_MAX))


class KeyedTopicSource:
    """A `KeyedSource`. Holds at most ``read_ahead_bytes`` and one batch beyond what was handed out."""

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
        self._reader = client.partition_reader(Isolation.READ_COMMITTED)
        self._admin = client.admin()
        self._lanes: dict[int, _Lane] = {}
        self._held_bytes = 0
        # The ledger's end when a range was found to be missing.
        self._missing_end: int | None = None
        self._turn = 0
        self._indexed_fold: Fold | None = None
        self._indexed_to = -1

    def assign(self, lane: str, position: int, suspect: bool = False) -> None:
        """Nobody dies of what we wrote ourselves: suspects are read like the others."""
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
        """None: what is damaged in our own topic is read again from the input, see `_incomplete`."""
        return ()

    def empty_ranges(self) -> Sequence[EmptyRange]:
        """None: it does not read the input."""
        return ()

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        """No lane of our own topic ever stands still."""

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
        """Lanes, another one first each time, so that a small budget starves none."""
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
        """An owner that slept asks for what was trimmed behind its successor's commits. The successor's claim
        is in the ledger: who has read that, and holds its lanes still, has lost something. Raises
        InputLostError then; before it, the lanes are asked for again.
        """
        if self._missing_end is None:
            self._missing_end = self._admin.end_offset(self._ledger, Isolation.READ_UNCOMMITTED)
        elif self._folds.ledger_position() >= self._missing_end:
            raise InputLostError(
                f"{error}. Batches were deleted before they were tagged (by retention, which this topic must "
                "not have, or the topic was recreated). `tidemark table adopt --new-ledger` reads the input "
                "again from the last commit"
            ) from error
        # A client tells it once, and then reads no more of the partition.
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
        for each in counted:
            for produced in each.entry.produced:
                here = produced.topic is Topic.KEYED and produced.partition == number
                if here and each.entry.nonce in lane.skipped:
                    raise _incomplete(self._topic, each.entry.nonce, produced, lane.passed)
                if here and produced.last >= lane.passed and each.entry.nonce not in lane.expected:
                    lane.expected[each.entry.nonce] = _Expected(
                        produced, from_first=produced.first >= lane.passed
                    )

    def _take_watermark(self) -> None:
        """One high watermark for all messages that were seen before it and that nobody has named yet."""
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
        """Bytes taken, and the slice, if any rows were resolved within the budget."""
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
        """Whether the batch exists; None: not known yet."""
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
            # Who starts in the middle of a transaction goes on behind what the former owner checked.
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
