"""The transaction loop of one slot of one stage, the same for both stages.

1. The coordinator's lease names the slot and the lanes that it should work on.
2. The loop appends a claim of the lanes to the ledger, and waits until it has read its own claim back.
3. The stage gathers input.
4. One Kafka transaction publishes the stage's messages and one ledger entry.
5. The loop waits until it has read that entry back. If the fold says that it counts, it goes on at 3.

An aborted or unknown transaction, an entry that does not count, a reloaded fold, or a new slot casts doubt
on all claims: the loop drops everything in memory, closes the producer, and goes on at 2. When another
process claims one lane, the loop drops that lane alone. The lease says who *should* claim a lane, the fold
who *has* claimed it; only the fold decides what counts (ARCHITECTURE.md, "What counts" and "Membership").
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.epoch_protocol.entries import LanesClaimed, Stage
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.owner import LaneStatus, must_claim_anew
from tidemark.epoch_protocol.state import LaneState
from tidemark.errors import ErrorKind
from tidemark.index_assigner.slots.lease import LaneTable, SlotLease, StageLease, StageReport
from tidemark.index_assigner.slots.observer import (
    NULL_OBSERVER,
    AssignerObserver,
    CountedTransaction,
    SlotCounters,
)
from tidemark.index_assigner.slots.pace import TransactionLimits, TransactionPace
from tidemark.index_assigner.slots.producer import SlotProducer
from tidemark.index_assigner.slots.same_table import check_same_ledger
from tidemark.index_assigner.slots.stage_work import ClaimFacts, PreparedTransaction, StageWork
from tidemark.ledger_client.fold_reader import Applied, FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.errors import InputWaitsError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.errors import REFUSED, KafkaError
from tidemark.stream_runtime.kafka.ledger_transaction import TransactionOutcome, TransactionResult
from tidemark.stream_runtime.kafka.ports import KafkaClient

_IDLE_WAIT_S: Final = 0.05
_VERDICT_WAIT_S: Final = 0.02
_NO_PROGRESS_WAIT_S: Final = 0.005
_REFUSED_WAIT_S: Final = 0.5
_REFUSED_WAIT_MAX_S: Final = 10.0
_REFUSED_SHOWN_S: Final = 5.0
_REPORT_EVERY_S: Final = 0.25
_CLAIM_WAIT_MIN_S: Final = 0.05
_CLAIM_WAIT_MAX_S: Final = 2.0
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class SlotParts:
    """What a slot's loop works with. ``owner``: the process's id, for its claims. ``claimed``: set once a
    slot of the process has claimed lanes; its slots share it.
    """

    topics: TopicNames
    client: KafkaClient
    folds: FoldReader
    lease: SlotLease
    limits: TransactionLimits
    clock: Clock
    ids: IdSource
    failpoints: FailpointRegistry
    owner: str
    claimed: threading.Event
    observer: AssignerObserver = NULL_OBSERVER
    ledger: str = ""
    """The identity of the table's ledger, as the coordinator told it; "": its version tells none."""


class _Pending(NamedTuple):
    """The own transaction that was committed, while the fold has not read its entry yet."""

    prepared: PreparedTransaction
    offset: int
    records: int
    began_ms: int
    ended_ms: int


class SlotLoop:
    """Owned by one thread. `run` works until told to stop and closes; tests call `step` and `close`
    instead.
    """

    def __init__(self, parts: SlotParts, work: StageWork) -> None:
        self._parts = parts
        self._work = work
        self._stage = work.stage
        self._lanes = LaneTable()
        self._producer = SlotProducer(parts.client, parts.topics, self._stage, parts.failpoints)
        self._pending: _Pending | None = None
        self._pace = TransactionPace(parts.limits, parts.clock)
        self._reported_s = -1.0
        self._resets = parts.folds.resets
        self._failures = 0
        self._claim_from_s = 0.0
        self._suspects: frozenset[str] = frozenset()
        self._said, self._refusals, self._refused_s = "", 0, 0.0
        self.counters = SlotCounters()

    def run(self, stop: threading.Event) -> None:
        """Works until ``stop``. Raises errors that no retry cures: lost input, torn ranges, messages above
        the limit of a topic.
        """
        try:
            while not stop.is_set():
                self.step()
        finally:
            self.close()

    def close(self) -> None:
        """Drops the lanes, and closes producer, stage and fold. The lease stays the caller's.

        To be called between two steps, so never within a transaction.
        """
        self._work.drop(self._lanes.names())
        self._lanes = LaneTable()
        self._parts.lease.report(StageReport())
        self._producer.close()
        self._work.close()
        self._parts.folds.close()

    def step(self) -> None:
        """One round: reads the fold, follows the lease, gathers input, and runs a transaction if one is
        due.
        """
        lease = self._parts.lease.lease()
        try:
            self._suspects = lease.suspects if lease is not None else self._suspects
            self._follow_fold()
            if lease is None:
                self._doubt_all("no lease")
                self._parts.clock.sleep(_IDLE_WAIT_S)
                return
            if lease.slot != self._producer.slot:
                self._change_slot(lease.slot)
            if self._pending is None:
                self._follow_lease(lease)
            if self._parts.clock.monotonic_s() - self._reported_s >= _REPORT_EVERY_S:
                self._report()
            self._work_on(lease)
            self.counters.input_waits = False
            self._worked(lease)
        except InputWaitsError:
            # The stage logged why its records cannot be decoded yet, and keeps what it has gathered.
            self.counters.input_waits = True
            self._parts.clock.sleep(_IDLE_WAIT_S)
        except KafkaError as error:
            at_start = lease is not None and lease.lanes and not self._parts.claimed.is_set()
            if isinstance(error, REFUSED) and not at_start:
                self._refused(error)
                return
            # A failed transaction is reported by its result. An error raised here came from a read or from
            # making the producer, and changed nothing: the next round tries again.
            if error.kind is not ErrorKind.RETRYABLE:
                raise
            _log.warning("%s stage waits for Kafka: %s", self._stage.value, error)
            self._parts.clock.sleep(_IDLE_WAIT_S)

    def _refused(self, error: KafkaError) -> None:
        """Kafka refuses what it took before, as while somebody sets ACLs anew. The loop starts over, because
        gathered input may be lost with the request, and tries again for as long as it takes. A process that
        has lanes and never claimed any ends instead: it lacks a right, or has a wrong setting.
        """
        if str(error) != self._said:
            _log.error("%s stage waits, Kafka refuses, it is tried again: %s", self._stage.value, error)
        self._said = str(error)
        self.counters.kafka_refuses = True
        self._doubt_all(f"Kafka refuses: {error}")
        self._report()
        self._parts.clock.sleep(min(_REFUSED_WAIT_S * 2.0 ** min(self._refusals, 16), _REFUSED_WAIT_MAX_S))
        self._refusals += 1
        self._refused_s = self._parts.clock.monotonic_s()

    def _worked(self, lease: StageLease) -> None:
        """A round was carried out. What Kafka refuses may come later: each claim is taken before that."""
        if not lease.lanes or self._lanes.names(LaneStatus.CURRENT):
            quiet_s = self._parts.clock.monotonic_s() - self._refused_s
            self.counters.kafka_refuses = self.counters.kafka_refuses and quiet_s < _REFUSED_SHOWN_S

    # ------------------------------------------------------------ what the ledger says

    def _follow_fold(self) -> None:
        applied = self._parts.folds.poll(self._fold_wait_s())
        self._work.observe(applied)
        for entry in applied:
            self._parts.observer.applied(self._stage, entry)
        if self._parts.folds.resets != self._resets:
            self._resets = self._parts.folds.resets
            self._doubt_all("the fold was reloaded")
        if self._pending is not None:
            self._settle(self._pending, applied)
        state = self._parts.folds.fold.state
        lost = self._lanes.superseded(self._lane_states(), state.ledger_next)
        if lost:
            self._doubt(lost, "claimed by another, or rewound")
        confirmed = self._lanes.confirmed(self._lane_states())
        if confirmed:
            # The lanes become CURRENT only after the start: a start that fails is repeated in the next round.
            positions = {name: self._lane_states()[name].next for name in confirmed}
            self._work.start(positions, self._suspects & positions.keys())
            self._lanes.current(confirmed)

    def _fold_wait_s(self) -> float:
        """How long the fold's read may wait. While a lane can be read, waiting for input is up to the
        stage.
        """
        if self._pending is not None or not self._lanes.names(LaneStatus.CURRENT):
            return _VERDICT_WAIT_S
        return 0.0 if self._pace.progressed else _NO_PROGRESS_WAIT_S

    def _settle(self, pending: _Pending, applied: Iterable[Applied]) -> None:
        prepared, offset = pending.prepared, pending.offset
        own = [one for one in applied if one.offset == offset and _nonce_of(one) == prepared.nonce]
        if not own:
            return
        self._pending = None
        verdict = own[0].verdict
        if verdict is Verdict.COUNTS:
            self.counters.counted += 1
            self._failures, self._refusals, self._said = 0, 0, ""
            self._work.counted(prepared, offset)
            self._parts.observer.counted(self._seen(pending))
            return
        assert must_claim_anew(verdict), verdict
        self.counters.not_counted += 1
        self._doubt_all(f"own transaction does not count: {verdict.value}")

    def _seen(self, pending: _Pending) -> CountedTransaction:
        return CountedTransaction(
            self._stage,
            self._producer.slot,
            pending.offset,
            pending.records,
            pending.began_ms,
            pending.ended_ms,
        )

    def _lane_states(self) -> dict[str, LaneState]:
        state = self._parts.folds.fold.state
        return state.shuffle_lanes if self._stage is Stage.SHUFFLE else state.assign_lanes

    # ------------------------------------------------------------ what the lease says

    def _follow_lease(self, lease: StageLease) -> None:
        given_up = [name for name in self._lanes.names() if name not in lease.lanes]
        if given_up:
            self._work.drop(given_up)
            self._lanes.release(given_up)
            self._pace.forget()
            _log.info(
                "%s slot %d gives up lanes %s", self._stage.value, self._producer.slot, ", ".join(given_up)
            )
            self._report()
            self._parts.lease.renew_now()
        self._lanes.grant(sorted(lease.lanes))
        granted = self._lanes.names(LaneStatus.GRANTED)
        if granted and self._parts.clock.monotonic_s() >= self._claim_from_s:
            self._claim(granted)

    def _change_slot(self, slot: int) -> None:
        self._doubt_all(f"now in slot {slot}")
        self._producer.change_slot(slot)

    def _report(self) -> None:
        held = self._lanes.names(LaneStatus.CLAIMED, LaneStatus.CURRENT)
        stats = {**self._work.stats(), **self.counters.stats()}
        report = StageReport(
            held,
            self._work.uncommitted_entries(),
            stats,
            self._work.stopped_lanes(),
            self._work.skip_results(),
            self._work.empty_ranges(),
            self._work.uncommitted_memory(),
        )
        self._parts.lease.report(report)
        self._reported_s = self._parts.clock.monotonic_s()

    # ------------------------------------------------------------ claims

    def _claim(self, lanes: list[str]) -> None:
        """Asks the coordinator anew, and claims those of ``lanes`` that it still grants."""
        lease = self._parts.lease.renew_now()
        wanted = [name for name in lanes if lease is not None and name in lease.lanes]
        self._back_off()
        if not wanted or lease is None or lease.slot != self._producer.slot:
            return
        self._work.drop(wanted)
        state = self._parts.folds.fold.state
        ledger = self._parts.ledger
        check_same_ledger(self._parts.topics.table, ledger, state.ledger)
        generation = state.generation if self._stage is Stage.ASSIGN else 0
        claim = LanesClaimed(
            self._stage, wanted, generation, self._producer.slot, self._parts.owner, ledger=ledger
        )
        self._producer.hit_before_claim()
        started_s = self._parts.clock.monotonic_s()
        result = self._producer.run(self._parts.ids.uuid(), [], lambda _: claim)
        self._ended(result, started_s)
        if result.outcome is not TransactionOutcome.COMMITTED or result.entry_offset is None:
            # If it was committed all the same, the new claim supersedes it.
            self._doubt_all(f"claim {result.outcome.value}: {result.error}")
            return
        self.counters.claims += 1
        self._parts.claimed.set()
        self._lanes.claimed(wanted, result.entry_offset, generation)
        self._report()
        slot, term = self._producer.slot, result.entry_offset
        extra = {"slot": slot, "term": term}
        names = ", ".join(wanted)
        _log.info("%s slot %d claims lanes %s as term %d", self._stage.value, slot, names, term, extra=extra)

    def _back_off(self) -> None:
        """Doubles the wait before the next claim, up to 2 s; a transaction that counts resets it."""
        wait_s = min(_CLAIM_WAIT_MIN_S * 2.0 ** min(self._failures, 16), _CLAIM_WAIT_MAX_S)
        self._failures += 1
        self._claim_from_s = self._parts.clock.monotonic_s() + wait_s

    # ------------------------------------------------------------ transactions

    def _work_on(self, lease: StageLease) -> None:
        if not self._lanes.names(LaneStatus.CURRENT):
            return
        if lease.paused or not lease.current:
            self._parts.clock.sleep(_IDLE_WAIT_S)
            return
        if lease.skips:
            self._work.skip(lease.skips)
        self._gather()
        if self._pending is None and self._pace.is_due():
            self._run_transaction()

    def _gather(self) -> None:
        budget = self._pace.budget()
        if budget is not None:
            wait_s = 0.0 if self._pending else self._pace.wait_s(_IDLE_WAIT_S)
            self._pace.took(self._work.gather(budget, wait_s))

    def _run_transaction(self) -> None:
        # The producer comes first because making it may fail: `prepare` takes the gathered input out of the
        # stage, and that input would be lost.
        self._producer.ready()
        clock, records, began_ms = self._parts.clock, self._pace.records, self._parts.clock.now_ms()
        prepared = self._work.prepare(self._parts.ids.uuid())
        if prepared is None:
            return
        self._pace.forget()
        lanes = [self._lanes[part.lane] for part in prepared.consumed]
        terms = {part.lane: self._lanes[part.lane].term for part in prepared.consumed}
        facts = ClaimFacts(self._producer.slot, terms, max(lane.generation for lane in lanes))
        self.counters.transactions += 1
        started_s = clock.monotonic_s()
        result = self._producer.run(
            prepared.nonce, prepared.messages, lambda offsets: prepared.build_entry(offsets, facts)
        )
        self._ended(result, started_s)
        if result.outcome is not TransactionOutcome.COMMITTED or result.entry_offset is None:
            self._doubt_all(f"transaction {result.outcome.value}: {result.error}")
            return
        self._pending = _Pending(prepared, result.entry_offset, records, began_ms, clock.now_ms())

    def _ended(self, result: TransactionResult, started_s: float) -> None:
        self.counters.ended(result.outcome)
        seconds = self._parts.clock.monotonic_s() - started_s
        self._parts.observer.transaction(self._stage, result.outcome.value, seconds)

    # ------------------------------------------------------------ doubt

    def _doubt_all(self, reason: str) -> None:
        self._pending = None
        self._producer.close()
        self._doubt(self._lanes.names(), reason)

    def _doubt(self, lanes: Iterable[str], reason: str) -> None:
        doubted = self._lanes.doubt(lanes)
        if not doubted:
            return
        self._work.drop(doubted)
        self._pace.forget()
        self.counters.doubt(reason)
        stage, slot, names = self._stage.value, self._producer.slot, ", ".join(doubted)
        _log.warning("%s slot %d starts over on lanes %s: %s", stage, slot, names, reason)


def _nonce_of(applied: Applied) -> str | None:
    return getattr(applied.entry, "nonce", None)
