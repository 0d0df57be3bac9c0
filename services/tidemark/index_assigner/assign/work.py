"""The assign stage in one slot: a `StageWork` of the transaction loop.

The stage follows the fold entry by entry, in the ledger's order. So an own transaction counts before the
epoch that covers it is promoted, and a lane that another process claims is closed before later entries are
applied. In another order RocksDB would get the stamp of an epoch whose entries it does not hold, and a key
could be inserted twice.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Final

from tidemark.epoch_protocol.entries import (
    Counts,
    EpochCommitted,
    EpochPlanned,
    LanesClaimed,
    LedgerEntry,
    Rewound,
    Stage,
    Topic,
    TransactionTagged,
)
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.assign.emit import Emitter, outgoing, tagged_entry
from tidemark.index_assigner.assign.keyed_batch import consumed_ranges, keyed_batch, with_shards
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.assign.lookups import LookupQueue
from tidemark.index_assigner.assign.placement import Placement
from tidemark.index_assigner.assign.tagger import BatchTagger
from tidemark.index_assigner.assign.uncommitted_limits import UncommittedLimits
from tidemark.index_assigner.assign.warming import WarmRequests
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.errors import IndexRebuiltError, LaneNotOpenError
from tidemark.index_assigner.index.ports import KeyIndex
from tidemark.index_assigner.shuffle.dead_letters import by_reason, reason_of
from tidemark.index_assigner.shuffle.dropped_fields import DroppedFields, FieldCounts
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice, KeyedSource
from tidemark.index_assigner.slots.stage_work import Budget, ClaimFacts, Gathered, PreparedTransaction
from tidemark.ledger_client.fold_reader import Applied, FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.allocator import give_memory_back
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.errors import KafkaError, OffsetOutOfRangeError

_FAILURES_MAX: Final = 200
_FAILURE_WAIT_S: Final = 0.1
_ASK_EVERY_FAILURES: Final = 20
_PAUSED_RETRY_S: Final = 1.0
_STATS_EVERY_S: Final = 1.0
# After so long without input the transaction is not kept open for more: a lone record is tagged at once.
_QUIET_S: Final = 0.02
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class AssignParts:
    """The parts of the stage; `assign_stage.assign_work` makes them for a service. ``shards``: of a global
    record index, 0 with a partitioned one.
    """

    topics: TopicNames
    schema: TableSchema
    shards: int
    folds: FoldReader
    source: KeyedSource
    locations: Locations
    index: KeyIndex
    opener: LaneOpener
    placement: Placement
    tagger: BatchTagger
    emitter: Emitter
    lookups: LookupQueue
    clock: Clock
    uncommitted: UncommittedLimits
    want_rewind: Callable[[str, int, int], None]
    """(reason, generation, epoch): asks the coordinator to rewind, because tags of that generation cannot
    be read back; ``epoch``: the last committed one that the fold knew at that time.
    """
    close_index: Callable[[], None] = lambda: None
    warming: WarmRequests = field(default_factory=WarmRequests)


@dataclass
class _InFlight:
    """The one transaction whose entry has not been read back yet. ``tombstones_next``: per lane the
    position in the tombstones topic behind its batches.
    """

    nonce: str
    lanes: set[int]
    counts: Counts
    reasons: Counter[str]
    passed_over: int = 0
    dropped: FieldCounts = field(default_factory=Counter)
    tombstones_next: dict[int, int] = field(default_factory=dict)


class AssignWork:
    """A `StageWork`. Owned by the loop's thread."""

    def __init__(self, parts: AssignParts) -> None:
        self._parts = parts
        self._open: set[int] = set()
        self._to_open: dict[int, int] = {}
        self._suspects: frozenset[str] = frozenset()
        self._slices: list[KeyedSlice] = []
        self._in_flight: _InFlight | None = None
        self._planned: EpochPlanned | None = parts.folds.fold.state.planned
        self._failures, self._tried_s = 0, -_PAUSED_RETRY_S
        self._stats: dict[str, float] = {}
        self._stats_until_s = 0.0
        self._reasons: Counter[str] = Counter()
        self._passed_over = 0
        self._dropped = DroppedFields(parts.clock)
        self.counts = Counts()

    @property
    def stage(self) -> Stage:
        return Stage.ASSIGN

    # ------------------------------------------------------------ lanes

    def drop(self, lanes: Collection[str]) -> None:
        numbers = {int(lane) for lane in lanes}
        self._close(sorted(numbers))
        for lane in numbers:
            self._to_open.pop(lane, None)
        self._open -= numbers
        self._slices = [slice_ for slice_ in self._slices if int(slice_.lane) not in numbers]
        if self._in_flight is not None:
            self._in_flight.lanes -= numbers

    def start(self, lanes: Mapping[str, int], suspects: Collection[str] = ()) -> None:
        # The suspects of earlier calls are kept: their lanes may not be open yet.
        self._suspects = (self._suspects - lanes.keys()) | frozenset(suspects)
        self._to_open.update({int(lane): position for lane, position in lanes.items()})
        self._open_lanes()

    def _open_lanes(self) -> None:
        """Opens the lanes that were started. The next `gather` tries those again that cannot be opened
        now, and so does an `observe` a second later: nothing is gathered while tagging is paused.
        """
        if not self._to_open:
            return
        lanes, self._tried_s = sorted(self._to_open), self._parts.clock.monotonic_s()
        try:
            self._parts.opener.open(lanes, self._parts.folds.fold.state)
        except Exception as error:
            self._close(lanes)
            if isinstance(error, IncompleteRangeError | OffsetOutOfRangeError | IndexRebuiltError):
                self._wait_for_rewind(error)
            else:
                self._failed("opening lanes", error)
            return
        try:
            for lane in lanes:
                self._parts.source.assign(str(lane), self._to_open[lane], str(lane) in self._suspects)
        except Exception as error:
            self._close(lanes)
            self._failed("reading lanes", error)
            return
        self._to_open.clear()
        self._open.update(lanes)
        self._failures, self._tried_s = 0, -_PAUSED_RETRY_S

    def _close(self, lanes: Collection[int]) -> None:
        for lane in lanes:
            self._parts.source.release(str(lane))
            self._parts.index.close_lane(lane)

    def _wait_for_rewind(self, error: Exception) -> None:
        """Asks the coordinator for a rewind, since no retry helps: batches that counting entries name are
        gone, or another engine built the index anew with another number of shards.

        The coordinator has the input tagged anew, or reports what keeps it from that. Raises the error after
        200 failures.
        """
        self._failures += 1
        if self._failures >= _FAILURES_MAX:
            raise error
        if self._failures % _ASK_EVERY_FAILURES == 1:
            _log.error("asking for a rewind: %s", error)
            state = self._parts.folds.fold.state
            self._parts.want_rewind(str(error), state.generation, state.committed.epoch)
        self._parts.clock.sleep(_FAILURE_WAIT_S)

    # ------------------------------------------------------------ entries of the ledger and the decisions

    def observe(self, applied: Sequence[Applied]) -> None:
        for entry in applied:
            self._follow(entry)
        index, state = self._parts.index, self._parts.folds.fold.state
        self._planned = state.planned
        self._start_closed_again()
        if not applied and self._parts.clock.monotonic_s() - self._tried_s >= _PAUSED_RETRY_S:
            # Nothing is gathered while tagging is paused. What waits for the pause's end must not end the
            # stage meanwhile: failures do not count. An error that is raised here costs the caller no entry.
            failures = self._failures
            self._open_lanes()
            if self._to_open:
                self._failures = failures
        self._parts.lookups.answer(index, self._open, state.committed)
        self._parts.warming.answer(index, self._open | self._to_open.keys())

    def _follow(self, applied: Applied) -> None:
        entry, verdict = applied.entry, applied.verdict
        if isinstance(entry, TransactionTagged):
            if verdict is Verdict.COUNTS and self._in_flight and entry.nonce == self._in_flight.nonce:
                self._take_counted(self._in_flight, applied.offset)
        elif isinstance(entry, LanesClaimed):
            if verdict is Verdict.CLAIMED and entry.stage is Stage.ASSIGN:
                held = self._open | self._to_open.keys()
                self.drop([lane for lane in entry.lanes if int(lane) in held])
        elif verdict is not Verdict.APPLIED:
            return
        elif isinstance(entry, EpochPlanned):
            self._planned = entry
        elif isinstance(entry, EpochCommitted):
            assert self._planned is not None
            through = self._planned.through
            self._parts.index.promote(through, entry.completion, entry.epoch, entry.instant)
            give_memory_back()
        elif isinstance(entry, Rewound):
            self.drop([str(lane) for lane in self._open | self._to_open.keys()])
            self._parts.index.rewind()
            give_memory_back()

    # ------------------------------------------------------------ transactions

    def gather(self, budget: Budget, timeout_s: float) -> Gathered:
        self._open_lanes()
        clock = self._parts.clock
        allowed = self._parts.uncommitted.allowed(
            budget, self.uncommitted_entries(), self.uncommitted_memory(), self._slices
        )
        if self._slices and (allowed is None or any(slice_.ends_transaction for slice_ in self._slices)):
            return self._gathered(drained=True)
        if allowed is None:
            clock.sleep(timeout_s)
            return self._gathered(drained=False)
        timeout_s = min(timeout_s, _QUIET_S) if self._slices else self._parts.lookups.wait_s(timeout_s)
        asked_s = clock.monotonic_s()
        polled = self._parts.source.poll(allowed, timeout_s)
        self._slices += polled
        # A source that returns early without a slice has messages that it cannot judge yet: more will come.
        return self._gathered(drained=not polled and clock.monotonic_s() - asked_s >= _QUIET_S * 0.9)

    def _gathered(self, drained: bool) -> Gathered:
        # Records about no row count as well: without a transaction their lane would not move on.
        records = sum(slice_.records + slice_.passed_over for slice_ in self._slices)
        size = sum(batch.nbytes for slice_ in self._slices for batch in slice_.batches)
        dead_letter_bytes = sum(len(m.value or b"") for slice_ in self._slices for m in slice_.dead_letters)
        return Gathered(records, size + dead_letter_bytes, drained and records > 0)

    def prepare(self, nonce: str) -> PreparedTransaction | None:
        if not self._slices:
            return None
        parts = self._parts
        parts.placement.follow(parts.folds.fold.state.generation)
        try:
            rows = with_shards(keyed_batch(self._slices, parts.schema, parts.locations), parts.shards)
            tagged = parts.tagger.tag(rows)
            batches = parts.emitter.encode(tagged)
        except LaneNotOpenError as error:
            _log.warning("the index closed a lane: %s", error)
            self._start_over(self._open)
            return None
        except Exception as error:
            # Nothing was staged, so the next call tags the same slices again.
            self._failed("tagging", error)
            return None
        self._failures = 0
        slices, self._slices = self._slices, []
        for lane, changes in tagged.staged.items():
            parts.index.stage(lane, changes)
        dead_letters = [letter for slice_ in slices for letter in slice_.dead_letters]
        reasons = Counter(map(reason_of, dead_letters))
        lanes = {int(slice_.lane) for slice_ in slices}
        passed_over = sum(slice_.passed_over for slice_ in slices)
        dropped = sum((slice_.dropped for slice_ in slices), Counter[tuple[str, str]]())
        in_flight = _InFlight(nonce, lanes, tagged.counts, reasons, passed_over, dropped)
        self._in_flight = in_flight
        consumed = consumed_ranges(slices)
        messages = outgoing(batches, parts.topics, nonce, parts.schema.fingerprint)

        def build_entry(offsets: Sequence[int], facts: ClaimFacts) -> LedgerEntry:
            entry = tagged_entry(
                nonce, consumed, batches, offsets[: len(batches)], tagged, facts, parts.schema
            )
            in_flight.tombstones_next = {
                part.partition: part.last + 1 for part in entry.produced if part.topic is Topic.TOMBSTONES
            }
            return entry

        return PreparedTransaction(nonce, consumed, [*messages, *dead_letters], build_entry)

    def _start_closed_again(self) -> None:
        """Starts the lanes over that the index closed because it could not bring them to a newer snapshot: a
        look-up of somebody else, a promotion or `index warm` may have needed that.

        Not while a transaction is in flight: whether it counts decides at which position its lanes go on.
        """
        if self._in_flight is None or not self._in_flight.lanes:
            self._start_over(self._open - self._parts.index.open_lanes() - self._to_open.keys())

    def _start_over(self, lanes: Set[int]) -> None:
        """Drops these lanes, so that they are opened again. No transaction is in flight. They
        count as open meanwhile: look-ups of them are to be tried again.
        """
        if lanes:
            states, dropped = self._parts.folds.fold.state.assign_lanes, sorted(lanes)
            _log.warning("lanes %s are opened again", ", ".join(map(str, dropped)))
            self.drop([str(lane) for lane in dropped])
            self._to_open.update({lane: states[str(lane)].next for lane in dropped})
            self._open.update(dropped)

    def counted(self, prepared: PreparedTransaction, offset: int) -> None:
        """Only checks that `observe` has handled the entry: it came with the entries of the fold."""
        assert self._in_flight is None or self._in_flight.nonce != prepared.nonce, prepared.nonce

    def _take_counted(self, in_flight: _InFlight, offset: int) -> None:
        # Of a lane that the index closed meanwhile the next opening reads the transaction's rows back.
        lanes = sorted(in_flight.lanes & self._parts.index.open_lanes())
        self._parts.index.counted(lanes, offset, in_flight.tombstones_next)
        self.counts += in_flight.counts
        self._reasons.update(in_flight.reasons)
        self._passed_over += in_flight.passed_over
        self._dropped.add(in_flight.dropped)
        self._in_flight = None

    def _failed(self, what: str, error: Exception) -> None:
        """Waits before the next try. Raises the error when no retry cures it, or after 200 failures."""
        self._failures += 1
        if kind_of(error) not in (ErrorKind.RETRYABLE, ErrorKind.CONFLICT) or self._failures >= _FAILURES_MAX:
            raise error
        _log.warning("%s failed, try %d follows: %s", what, self._failures + 1, error)
        self._parts.clock.sleep(_FAILURE_WAIT_S)

    # ------------------------------------------------------------ stats

    def uncommitted_entries(self) -> int:
        return self._parts.index.uncommitted_entries()

    def uncommitted_memory(self) -> int:
        return self._parts.index.uncommitted_memory()

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        return self._parts.source.stopped_lanes()

    def empty_ranges(self) -> Sequence[EmptyRange]:
        return self._parts.source.empty_ranges()

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        self._parts.source.skip(orders)

    def skip_results(self) -> Sequence[SkipResult]:
        return self._parts.source.skip_results()

    def stats(self) -> Mapping[str, float]:
        now_s = self._parts.clock.monotonic_s()
        if now_s >= self._stats_until_s:
            self._stats_until_s = now_s + _STATS_EVERY_S
            self._stats |= self._parts.index.stats()
            self._stats |= {f"tagged_{name}": float(n) for name, n in _fields(self.counts).items()}
            self._stats |= by_reason(self._reasons)
            self._stats |= {"passed_over_records": float(self._passed_over), **self._dropped.stats()}
            self._stats |= self._lags()
        return self._stats

    def _lags(self) -> dict[str, float]:
        try:
            lags = self._parts.source.lags()
        except KafkaError as error:
            # A lag is only a stat. When the broker is away the stage's own reads report it.
            _log.debug("no lags: %s", error)
            return {}
        self._stats = {name: n for name, n in self._stats.items() if not name.startswith("lag_lane_")}
        return {f"lag_lane_{lane}": float(lag) for lane, lag in lags.items()}

    def close(self) -> None:
        self._parts.source.close()
        self._parts.opener.close()
        self._parts.close_index()


def _fields(counts: Counts) -> dict[str, int]:
    return {name: getattr(counts, name) for name in counts.__struct_fields__}
