"""Reads an input topic whose producers partition by lane (`input.partitioning: shard`), without ``keyed``.

A lane is a partition of the input topic, and positions are the input topic's offsets. Records are decoded
here, so slices carry dead letters. A record whose key belongs to another lane is refused: with two owners
of one key, both could insert it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.lanes import shuffle_lane
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane
from tidemark.index_assigner.input.careful_lanes import CarefulLanes
from tidemark.index_assigner.input.deleted_input import DeletedInput, LedgerRead, always_read
from tidemark.index_assigner.input.lane_skips import LaneSkips, last_deleted
from tidemark.index_assigner.input.lane_stops import LaneStops
from tidemark.index_assigner.input.positions import StartOf
from tidemark.index_assigner.input.reader import DeadlyRecordError, InputReader
from tidemark.index_assigner.input.same_topics import StaleLogs, none_stale
from tidemark.index_assigner.shuffle.dead_letters import dead_letters
from tidemark.index_assigner.shuffle.dropped_fields import field_counts
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    KafkaClient,
    Message,
    MissingTopicError,
    OffsetOutOfRangeError,
    TopicPartition,
    UnreadableBatchError,
)

_POLL_MESSAGES_MAX = 20_000
_RECORD_BYTES_GUESS = 512
_log = logging.getLogger("tidemark.assigner")


class ShardedInputSource:
    """A `KeyedSource`. Between polls it holds only records that could not be decoded yet."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        keyer: RecordKeyer,
        start: StartOf,
        dead_letter_topic: str,
        record_bytes_max: int,
        clock: Clock,
        stale: StaleLogs = none_stale,
        careful: CarefulLanes | None = None,
        ledger_read: LedgerRead = always_read,
    ) -> None:
        self._stops = LaneStops(Stage.ASSIGN, clock)
        self._skips = LaneSkips(self._stops, client.last_of_batch, partial(last_deleted, client))
        self._topic = topic
        self._stale = stale
        self._keyer = keyer
        self._start = start
        self._dead_letter_topic = dead_letter_topic
        self._record_bytes_max = record_bytes_max
        self._admin = client.admin()
        self._reader = InputReader(client, self._admin, careful)
        self._deleted = DeletedInput(self._reader, self._admin, self._stops, ledger_read)
        self._next: dict[int, int] = {}
        self._skipping: set[int] = set()
        self._undecoded: list[Message] = []
        self._record_bytes = _RECORD_BYTES_GUESS

    def assign(self, lane: str, position: int, suspect: bool = False) -> None:
        """Reads the lane from the position on; 0, of a lane that never counted, means `input.start`."""
        self.release(lane)
        partition = self._partition(int(lane))
        if position == 0:
            position = self._start(self._admin, shuffle_lane(*partition))
        self._next[int(lane)] = position
        self._reader.add({partition: position}, [partition] if suspect else ())

    def release(self, lane: str) -> None:
        self._forget([lane])
        if self._next.pop(int(lane), None) is not None:
            self._reader.remove([self._partition(int(lane))])
            self._undecoded = [message for message in self._undecoded if message.partition != int(lane)]

    def _forget(self, lanes: Sequence[str]) -> None:
        """Forgets what reading the lanes found; who reads them anew from their positions finds it again."""
        self._stops.forget(lanes)
        self._skips.forget(lanes)
        self._deleted.forget(lanes)
        self._skipping.difference_update(map(int, lanes))

    def poll(self, budget: Budget, timeout_s: float) -> list[KeyedSlice]:
        if not self._next or budget.records <= 0 or budget.bytes <= 0:
            return []
        self._read_behind_skips()
        if self._skips.waiting() and self._is_stale():
            self._rest()
            return []
        skipped = [part for lane in self._skips.waiting() if (part := self._skipped(lane)) is not None]
        if skipped:
            return skipped
        messages = self._undecoded or self._read(budget, timeout_s)
        if messages and self._is_stale():
            self._rest()
            return []
        by_lane: dict[int, list[Message]] = {}
        for message in messages:
            if message.partition in self._next:
                by_lane.setdefault(message.partition, []).append(message)
        # The messages are kept until decoding has succeeded: if it raises, the next poll tries the same
        # again.
        self._undecoded = messages
        slices, left = self._slices(by_lane)
        self._undecoded = left
        self._next |= {int(slice_.lane): slice_.next for slice_ in slices}
        return slices

    def _slices(self, by_lane: Mapping[int, Sequence[Message]]) -> tuple[list[KeyedSlice], list[Message]]:
        """Decodes the lanes' records until the rows reach the keyer's limit, or a record has to wait.

        Returns the slices, and the records that are left: those behind the waiting record in its lane, and
        those of all lanes behind it. Raises InputWaitsError when the very first record has to wait.
        """
        slices: list[KeyedSlice] = []
        left: list[Message] = []
        made, most, waits = 0, self._keyer.rows_bytes_max, False
        for lane, messages in by_lane.items():
            if waits or (most is not None and made >= most):
                left += messages
                continue
            try:
                keyed = self._keyer.key_records(messages)
            except InputWaitsError:
                if not slices:
                    raise
                waits = True
                left += messages
                continue
            slices.append(self._slice(lane, messages[: keyed.records], keyed))
            left += messages[keyed.records :]
            made += keyed.rows.nbytes
        return slices, left

    def _read(self, budget: Budget, timeout_s: float) -> list[Message]:
        wanted = min(budget.records, budget.bytes // self._record_bytes + 1, _POLL_MESSAGES_MAX)
        try:
            self._deleted.follow({str(lane): self._partition(lane) for lane in self._next})
            messages = self._reader.poll(wanted, timeout_s, budget.bytes)
        except OffsetOutOfRangeError:
            self._deleted.out_of_range()
            return []
        except MissingTopicError:
            if self._is_stale():
                return []
            raise
        except UnreadableBatchError as error:
            self._unreadable(error)
            return []
        except DeadlyRecordError as error:
            self._stops.deadly(str(error.place.partition), error)
            self._reader.remove([error.place])
            return []
        self._stops.read({str(message.partition) for message in messages})
        if messages:
            self._record_bytes = max(sum(len(m.value or b"") for m in messages) // len(messages), 1)
        return messages

    def _unreadable(self, error: UnreadableBatchError) -> None:
        lane, place = error.partition, self._partition(error.partition)
        if lane in self._next and self._stops.failed(str(lane), self._reader.position(place), error):
            self._reader.remove([place])
            _log.error("lane %d is stopped, the others go on: %s", lane, error)

    def _skipped(self, lane: str) -> KeyedSlice | None:
        """The range that an operator ordered to skip, as a slice with one dead letter.

        The lane is not read until that slice is published (see `KeyedSlice.ends_transaction`).
        """
        taken, start = self._skips.take(lane), self._next.get(int(lane))
        if taken is None or start is None:
            return None
        result, record, refusal = taken
        refused_messages = dead_letters([record], [refusal], self._dead_letter_topic, self._record_bytes_max)
        after = result.last + 1
        self._next[int(lane)] = after
        self._skipping.add(int(lane))
        return KeyedSlice(lane, start, after, [], refused_messages, ends_transaction=True)

    def _read_behind_skips(self) -> None:
        """Reads the lanes on whose skipped ranges the last poll returned: those are published by now."""
        self._reader.add({self._partition(lane): self._next[lane] for lane in self._skipping})
        self._skipping.clear()

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        self._skips.follow(orders)

    def skip_results(self) -> Sequence[SkipResult]:
        return self._skips.results()

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        return self._stops.current()

    def empty_ranges(self) -> Sequence[EmptyRange]:
        undecoded = {message.partition for message in self._undecoded}
        starts = {self._partition(lane): at for lane, at in self._next.items() if lane not in undecoded}
        return [
            EmptyRange(*place, start, reached)
            for place, start in starts.items()
            if (reached := self._reader.read_to(place)) > start
        ]

    def _is_stale(self) -> bool:
        """Whether the topic is not the recorded one. Asked after reading: see `same_topics`."""
        return bool(self._stale(self._admin, [self._topic]))

    def _rest(self) -> None:
        """Drops what was read of another topic, and goes back to the lanes' positions.

        The coordinator takes the lanes away, and reports why.
        """
        self._undecoded = []
        # A stopped lane is read anew, too. Otherwise it could be read and be skipped at once.
        self._forget([str(lane) for lane in self._next])
        self._reader.add({self._partition(lane): position for lane, position in self._next.items()})

    def lags(self) -> dict[str, int]:
        return {
            str(lane): max(self._admin.end_offset(self._partition(lane), Isolation.READ_COMMITTED) - at, 0)
            for lane, at in self._next.items()
        }

    def close(self) -> None:
        self._reader.close()
        self._admin.close()

    def _partition(self, lane: int) -> TopicPartition:
        return TopicPartition(self._topic, lane)

    def _slice(self, lane: int, messages: Sequence[Message], keyed: KeyedRows) -> KeyedSlice:
        rows, refused = keyed.rows, list(keyed.refused)
        elsewhere = keyed.lanes != lane
        if elsewhere.any():
            refused += _wrong_lane(lane, keyed.lanes[elsewhere], keyed.positions[elsewhere])
            rows = rows.filter(pa.array(~elsewhere))
        refused_messages = dead_letters(messages, refused, self._dead_letter_topic, self._record_bytes_max)
        after = messages[-1].offset + 1
        return KeyedSlice(
            str(lane),
            self._next[lane],
            after,
            [rows] if rows.num_rows else [],
            refused_messages,
            keyed.passed_over,
            field_counts(keyed.dropped, [(self._topic, len(messages))]) if keyed.dropped else Counter(),
        )


def _wrong_lane(
    lane: int,
    lanes: np.ndarray[tuple[int], np.dtype[np.int32]],
    positions: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> list[Refusal]:
    return [
        Refusal(
            int(position),
            DeadLetterReason.WRONG_LANE,
            f"the record is in partition {lane}, its key belongs to lane {right}: with input.partitioning: "
            "shard, producers have to use the key's lane as the partition",
        )
        for position, right in zip(positions, lanes, strict=True)
    ]
