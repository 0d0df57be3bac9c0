"""The shuffle stage, a `StageWork`: it reads input partitions, and publishes keyed batches and dead
letters.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from tidemark.epoch_protocol.entries import BatchShuffled, Consumed, Skipped, Stage
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.lanes import parse_shuffle_lane, split_lane
from tidemark.epoch_protocol.messages import produced_ranges
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane
from tidemark.index_assigner.input.careful_lanes import CarefulLanes
from tidemark.index_assigner.input.deleted_input import DeletedInput, LedgerRead, always_read
from tidemark.index_assigner.input.lane_skips import LaneSkips, last_deleted
from tidemark.index_assigner.input.lane_stops import LaneStops
from tidemark.index_assigner.input.positions import StartOf
from tidemark.index_assigner.input.reader import DeadlyRecordError, InputReader
from tidemark.index_assigner.input.same_topics import StaleLogs, none_stale
from tidemark.index_assigner.shuffle.dead_letters import by_reason, dead_letters
from tidemark.index_assigner.shuffle.dropped_fields import DroppedFields, FieldCounts, field_counts
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.resting_lanes import RestingLanes
from tidemark.index_assigner.shuffle.shuffle_batch import encode_lanes, keyed_messages
from tidemark.index_assigner.slots.stage_work import Budget, ClaimFacts, Gathered, PreparedTransaction
from tidemark.ledger_client.fold_reader import Applied
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.refusals import Refusal
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import (
    KafkaClient,
    Message,
    MissingTopicError,
    OffsetOutOfRangeError,
    TopicPartition,
    UnreadableBatchError,
)

_POLL_MESSAGES_MAX: Final = 20_000
_RECORD_BYTES_GUESS: Final = 512
# After so long without input the transaction is not kept open for more: a lone record is published at once.
_QUIET_S: Final = 0.02
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class ShuffleSettings:
    """Settings and functions of the stage. Sizes in bytes.

    ``start``: where a lane that never counted starts. ``schema_id``: fingerprint of the user's schema, for
    the batches' headers. ``stale``: which input logs are gone or replaced (`same_topics`). ``careful``:
    reads suspect lanes. ``ledger_read``: see `deleted_input`. ``may_read``: see `AwaitedIndex.is_over`.
    """

    topics: TopicNames
    start: StartOf
    schema_id: str
    batch_bytes: int
    message_bytes: int
    record_bytes_max: int
    stale: StaleLogs = none_stale
    careful: CarefulLanes | None = None
    ledger_read: LedgerRead = always_read
    may_read: Callable[[float], bool] = lambda timeout_s: True


@dataclass
class _Lane:
    """``start``: offset at which the next transaction's range starts; ``messages``: read, unpublished."""

    start: int
    messages: list[Message] = field(default_factory=list)


class _Counts(NamedTuple):
    """Counts of one transaction."""

    records: int
    dead_letters: int
    reasons: Counter[str]
    passed_over: int = 0
    dropped: FieldCounts | None = None


class ShuffleWork:
    """`StageWork` of the shuffle stage. Holds only what was gathered for the next transactions."""

    stage = Stage.SHUFFLE

    def __init__(
        self, client: KafkaClient, keyer: RecordKeyer, settings: ShuffleSettings, clock: Clock
    ) -> None:
        self._stops = LaneStops(Stage.SHUFFLE, clock)
        self._skips = LaneSkips(self._stops, client.last_of_batch, partial(last_deleted, client))
        self._keyer = keyer
        self._settings = settings
        self._admin = client.admin()
        self._reader = InputReader(client, self._admin, settings.careful)
        self._deleted = DeletedInput(self._reader, self._admin, self._stops, settings.ledger_read)
        self._lanes: dict[str, _Lane] = {}
        self._names: dict[TopicPartition, str] = {}
        self._skipping: set[str] = set()
        self._resting = RestingLanes(clock)
        self._gathered_bytes = 0
        # Whether the last transaction left records behind: the next one takes them before more are read.
        self._left_behind = False
        self._record_bytes = _RECORD_BYTES_GUESS
        self._records = 0
        self._dead_letters = 0
        self._passed_over = 0
        self._dropped = DroppedFields(clock)
        self._reasons: Counter[str] = Counter()
        self._last = _Counts(0, 0, Counter())

    def drop(self, lanes: Collection[str]) -> None:
        self._forget(lanes)
        self._resting.forget(lanes)
        known = [name for name in lanes if name in self._lanes]
        self._reader.remove([_partition(name) for name in known])
        for name in known:
            self._gathered_bytes -= _size(self._lanes.pop(name).messages)
            del self._names[_partition(name)]

    def _forget(self, lanes: Collection[str]) -> None:
        """Forgets what reading the lanes found; who reads them anew from their positions finds it again."""
        self._stops.forget(lanes)
        self._skips.forget(lanes)
        self._deleted.forget(lanes)
        self._skipping.difference_update(lanes)

    def start(self, lanes: Mapping[str, int], suspects: Collection[str] = ()) -> None:
        """Starts reading the lanes. Those of a topic that is not the recorded one rest (`resting_lanes`)."""
        self.drop(lanes.keys())
        stale = self._settings.stale(self._admin, map(_input_log, lanes))
        for name, position in lanes.items():
            if position == 0 and _input_log(name) not in stale:
                position = self._settings.start(self._admin, name)
            self._lanes[name] = _Lane(position)
            self._names[_partition(name)] = name
        self._resting.add([name for name in lanes if _input_log(name) in stale], suspects)
        self._read([name for name in lanes if _input_log(name) not in stale], suspects)

    def _read(self, names: Collection[str], suspects: Collection[str]) -> None:
        positions = {_partition(name): self._lanes[name].start for name in names}
        self._reader.add(positions, [_partition(name) for name in names if name in suspects])

    def _read_rested(self) -> None:
        """Reads lanes on whose topic is the recorded one after all. Without an answer of Kafka they rest."""
        resting = self._resting.due()
        stale = self._settings.stale(self._admin, map(_input_log, resting)) if resting else frozenset()
        back = [name for name in resting if _input_log(name) not in stale]
        for name in back:
            lane = self._lanes[name]
            lane.start = lane.start or self._settings.start(self._admin, name)
        if back:
            self._read(back, self._resting.suspects)
            self._resting.forget(back)
            _log.info("lanes %s are read on: their topic is the recorded one", ", ".join(back))

    def observe(self, applied: Sequence[Applied]) -> None:
        """Does nothing: only claims matter to this stage, and the loop follows those."""

    def gather(self, budget: Budget, timeout_s: float) -> Gathered:
        self._read_behind_skips()
        self._read_rested()
        wanted = min(budget.records, budget.bytes // self._record_bytes + 1, _POLL_MESSAGES_MAX)
        if self._gathered_bytes:
            timeout_s = min(timeout_s, _QUIET_S)
        self._left_behind = self._left_behind and any(lane.messages for lane in self._lanes.values())
        rests = self._left_behind or not self._settings.may_read(timeout_s)
        messages = [] if rests else self._poll(wanted, timeout_s, budget.bytes)
        if messages:
            size = self._sort(messages)
            self._record_bytes = max(size // len(messages), 1)
            self._gathered_bytes += size
        waiting = sum(len(lane.messages) for lane in self._lanes.values()) + len(self._skips.waiting())
        drained = self._left_behind or (not messages and timeout_s >= _QUIET_S)
        return Gathered(waiting, self._gathered_bytes, waiting > 0 and drained)

    def _poll(self, messages_max: int, timeout_s: float, bytes_max: int) -> list[Message]:
        try:
            self._deleted.follow({name: _partition(name) for name in self._lanes})
            return self._reader.poll(messages_max, timeout_s, bytes_max)
        except OffsetOutOfRangeError:
            self._deleted.out_of_range()
            self._rest_stale(self._lanes)
            return []
        except MissingTopicError:
            if self._rest_stale(self._lanes):
                return []
            raise
        except UnreadableBatchError as error:
            self._unreadable(error)
            return []
        except DeadlyRecordError as error:
            self._stops.deadly(self._names[error.place], error)
            self._reader.remove([error.place])
            return []

    def _unreadable(self, error: UnreadableBatchError) -> None:
        place = TopicPartition(error.topic, error.partition)
        lane = self._names.get(place)
        if lane is not None and self._stops.failed(lane, self._reader.position(place), error):
            self._reader.remove([place])
            _log.error("lane %s is stopped, the others go on: %s", lane, error)

    def prepare(self, nonce: str) -> PreparedTransaction | None:
        self._rest_stale([name for name, lane in self._lanes.items() if lane.messages])
        skip = self._prepare_skip(nonce)
        filled = {name: lane for name, lane in self._lanes.items() if lane.messages}
        if skip is not None or not filled:
            return skip
        messages = [message for lane in filled.values() for message in lane.messages]
        # Keying comes first because it may raise InputWaitsError: then the lanes still have their messages.
        keyed = self._keyer.key_records(messages)
        consumed = self._consume(filled, keyed.records)
        return self._transaction(nonce, messages[: keyed.records], keyed, consumed)

    def _consume(self, filled: Mapping[str, _Lane], records: int) -> list[Consumed]:
        """Takes the first ``records`` records out of the lanes, in order; returns the consumed ranges.

        The others are left for the next transaction.
        """
        consumed = []
        for name, lane in filled.items():
            taken, left = lane.messages[:records], lane.messages[records:]
            records -= len(taken)
            self._gathered_bytes -= _size(taken)
            if taken:
                after = taken[-1].offset + 1
                consumed.append(Consumed(name, lane.start, after))
                lane.start, lane.messages = after, left
        self._left_behind = any(lane.messages for lane in filled.values())
        return consumed

    def _prepare_skip(self, nonce: str) -> PreparedTransaction | None:
        """A transaction of the ranges that an operator ordered to skip, one dead letter each; None: none.

        It comes behind the lanes' own records and before others', which may never pause. Lanes are read on
        when it is published: who fetches the record behind a range may end, and the skip with it.
        """
        records: list[Message] = []
        refused: list[Refusal] = []
        consumed: list[Consumed] = []
        skipped: list[Skipped] = []
        free = [name for name in self._skips.waiting() if not self._lanes[name].messages]
        self._rest_stale(free)
        for name in free:
            if (taken := self._skips.take(name)) is None:
                continue
            assert name not in self._resting, name
            (result, record, refusal), lane = taken, self._lanes[name]
            refused.append(refusal._replace(position=len(records)))
            records.append(record)
            skipped.append(Skipped(name, result.first, result.last))
            consumed.append(Consumed(name, lane.start, result.last + 1))
            lane.start = result.last + 1
            self._skipping.add(name)
        if not consumed:
            return None
        self._left_behind = any(lane.messages for lane in self._lanes.values())
        keyed = replace(self._keyer.key_records([]), refused=refused)
        return self._transaction(nonce, records, keyed, consumed, skipped)

    def _read_behind_skips(self) -> None:
        """Reads the lanes on in which the last transaction skipped a range: it is published by now."""
        self._read(self._skipping, ())
        self._skipping.clear()

    def empty_ranges(self) -> Sequence[EmptyRange]:
        starts = {_partition(name): lane.start for name, lane in self._lanes.items() if not lane.messages}
        return [
            EmptyRange(*place, start, reached)
            for place, start in starts.items()
            if (reached := self._reader.read_to(place)) > start
        ]

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        self._skips.follow(orders)

    def skip_results(self) -> Sequence[SkipResult]:
        return self._skips.results()

    def counted(self, prepared: PreparedTransaction, offset: int) -> None:
        self._records += self._last.records
        self._dead_letters += self._last.dead_letters
        self._passed_over += self._last.passed_over
        self._reasons.update(self._last.reasons)
        self._dropped.add(self._last.dropped or Counter())

    def uncommitted_entries(self) -> int:
        return 0

    def uncommitted_memory(self) -> int:
        return 0

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        return self._stops.current()

    def stats(self) -> Mapping[str, float]:
        return {
            "shuffled_records": float(self._records),
            "dead_letters": float(self._dead_letters),
            "passed_over_records": float(self._passed_over),
            "gathered_bytes": float(self._gathered_bytes),
            **by_reason(self._reasons),
            **self._dropped.stats(),
        }

    def close(self) -> None:
        self._reader.close()
        self._admin.close()

    def _sort(self, messages: Sequence[Message]) -> int:
        """Adds the messages to their lanes; returns their size in bytes."""
        # The client returns messages of a partition in runs, so the lane is looked up once per run.
        size = 0
        for (topic, partition), run in groupby(messages, itemgetter(0, 1)):
            of_lane, lane = list(run), self._names[TopicPartition(topic, partition)]
            self._lanes[lane].messages += of_lane
            self._stops.read([lane])
            size += _size(of_lane)
        return size

    def _rest_stale(self, lanes: Iterable[str]) -> list[str]:
        """Stops reading those of ``lanes`` whose topic is not the recorded one; forgets what was read.

        A skip is forgotten, too: its range would take the dropped records along as if they were published.
        Returns the lanes. To be called after reading and before publishing: see `same_topics`.
        """
        names = list(lanes)
        stale = self._settings.stale(self._admin, map(_input_log, names)) if names else frozenset()
        resting = [name for name in names if _input_log(name) in stale]
        self._reader.remove([_partition(name) for name in resting])
        for name in resting:
            self._gathered_bytes -= _size(self._lanes[name].messages)
            self._lanes[name].messages = []
        self._forget(resting)
        self._resting.add(resting)
        return resting

    def _transaction(
        self,
        nonce: str,
        messages: Sequence[Message],
        keyed: KeyedRows,
        consumed: list[Consumed],
        skipped: Sequence[Skipped] = (),
    ) -> PreparedTransaction:
        settings = self._settings
        encoded = encode_lanes(keyed, settings.batch_bytes, settings.message_bytes)
        refused = keyed.refused + encoded.refused
        refused_messages = dead_letters(
            messages, refused, settings.topics.dead_letter, settings.record_bytes_max
        )
        batches = encoded.batches
        reasons = Counter(refusal.reason.value for refusal in refused)
        about_rows = len(messages) - keyed.passed_over
        runs = [(topic, len(list(run))) for topic, run in groupby(messages, itemgetter(0))]
        dropped = field_counts(keyed.dropped, runs) if keyed.dropped else None
        self._last = _Counts(about_rows, len(refused), reasons, keyed.passed_over, dropped)

        def build_entry(offsets: Sequence[int], claims: ClaimFacts) -> BatchShuffled:
            return BatchShuffled(
                slot=claims.slot,
                nonce=nonce,
                terms=claims.terms,
                consumed=consumed,
                produced=produced_ranges(batches, offsets[: len(batches)]),
                records=about_rows,
                dead_letters=len(refused),
                skipped=list(skipped),
            )

        published = keyed_messages(batches, settings.topics.keyed, nonce, settings.schema_id)
        return PreparedTransaction(nonce, consumed, [*published, *refused_messages], build_entry)


def _partition(lane: str) -> TopicPartition:
    return TopicPartition(*parse_shuffle_lane(lane))


def _input_log(lane: str) -> str:
    return split_lane(lane)[0]


def _size(messages: Sequence[Message]) -> int:
    return sum(len(message.value or b"") + len(message.key or b"") for message in messages)
