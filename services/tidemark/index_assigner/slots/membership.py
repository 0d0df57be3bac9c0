"""Renews one stage's lease with the commit coordinator, on a thread of its own.

::

    UNKNOWN ──Join + Renew──► LEASED ──Renew each second──► LEASED
       ▲                        │ the coordinator does not know us: it restarted, or our lease ended
       └────────────────────────┘ (Join again, in the same slot if it is free)

While the coordinator does not answer, `lease` goes on returning the last lease, with ``current`` false once
its time is over. The stage then starts no new work, but keeps its lanes and memory: the fold, and not the
lease, keeps two owners of a lane from both counting.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.epoch_protocol.entries import PROTOCOL_VERSION, Stage
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, StoppedLane
from tidemark.errors import ErrorKind
from tidemark.index_assigner.slots.lease import StageLease, StageReport
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.rpc.channel import call
from tidemark.stream_runtime.rpc.errors import RpcError

_CALL_TIMEOUT_S: Final = 2.0
_RENEWALS_PER_LEASE: Final = 3
_FIRST_WAIT_MS: Final = 1_000
_STAGES: Final = {Stage.SHUFFLE: pb.STAGE_SHUFFLE, Stage.ASSIGN: pb.STAGE_ASSIGN}
_log = logging.getLogger("tidemark.assigner")


@dataclass(frozen=True)
class JoinFacts:
    """The coordinator's answer to Join, the same for all processes as long as the table exists."""

    num_shards: int
    lanes: int
    schema_id: str
    ledger: str = ""


@dataclass(frozen=True)
class Identity:
    """The process and stage that join. ``address``: of the process's own gRPC server."""

    table: str
    stage: Stage
    process_id: str
    address: str
    schema_avro: str


class MembershipClient:
    """A `SlotLease` over gRPC; ``stub`` is a CommitCoordinatorStub. `start` joins, `stop` leaves."""

    def __init__(self, stub: Any, identity: Identity, clock: Clock) -> None:
        self._stub = stub
        self._identity = identity
        self._clock = clock
        self._calls = threading.Lock()  # one call at a time: answers are taken in the order of the calls
        self._state = threading.Lock()
        self._lease: StageLease | None = None
        self._heard_s = 0.0
        self._lease_ms = _FIRST_WAIT_MS
        self._facts: JoinFacts | None = None
        self._report = StageReport()
        self._refused: Exception | None = None
        self._joined = False
        self._answers = True
        self._stopped = threading.Event()
        self._known = threading.Event()
        name = f"lease-{identity.stage.value}"
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread that joins and renews."""
        self._thread.start()

    def facts(self, stop: threading.Event) -> JoinFacts | None:
        """Waits for the answer to the first Join; None when ``stop`` comes first.

        Raises the coordinator's error when it refuses this process for good.
        """
        while not stop.is_set():
            self._known.wait(0.1)
            self._raise_refusal()
            if self._facts is not None:
                return self._facts
        return None

    def stop(self, failure: str = "", by_error: bool = False) -> None:
        """Ends the thread and leaves: slot and lanes are free for others at once.

        ``failure``: an error that every other process would have as well; `tidemark status` shows it.
        ``by_error``: an error ends the process, and the records that it read may be the cause.
        """
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._calls:
            if not self._joined or self._lease is None:
                return
            request = pb.LeaveRequest(
                slot=self._lease.slot, failure=failure, by_error=by_error, **self._base()
            )
            try:
                call(self._stub.Leave, request, _CALL_TIMEOUT_S)
            except RpcError as error:
                _log.warning("the coordinator did not take our good-bye: %s", error)

    def lease(self) -> StageLease | None:
        self._raise_refusal()
        with self._state:
            if self._lease is None:
                return None
            age_ms = (self._clock.monotonic_s() - self._heard_s) * 1000
            return self._lease if age_ms <= self._lease_ms else replace(self._lease, current=False)

    def report(self, report: StageReport) -> None:
        with self._state:
            self._report = report

    @property
    def reported(self) -> tuple[int, StageReport]:
        """Slot and newest report of the stage; slot -1: it has none yet."""
        with self._state:
            return self._lease.slot if self._lease is not None else -1, self._report

    def renew_now(self) -> StageLease | None:
        with self._calls:
            return self._guarded(self._renew)

    def _keep(self) -> None:
        while not self._stopped.wait(self._until_renewal_s()):
            had_joined = self._joined
            answered = self.renew_now() is not None
            if self._refused is not None:
                return
            # A coordinator that has just taken over knows no lease, and everybody waits for these lanes: the
            # next question, which joins, comes at once.
            lease_ended = had_joined and not self._joined
            if not answered and not lease_ended:
                self._stopped.wait(_FIRST_WAIT_MS / _RENEWALS_PER_LEASE / 1000)

    def _until_renewal_s(self) -> float:
        """A coordinator that died is back within seconds: it is asked as often as one that never answered."""
        rests = self._joined and self._answers
        return self._lease_ms / _RENEWALS_PER_LEASE / 1000 if rests else 0.0

    def _guarded(self, ask: Callable[[], StageLease]) -> StageLease | None:
        try:
            lease = ask()
        except RpcError as error:
            self._failed(error)
            return None
        if not self._answers:
            _log.info("the coordinator answers again")
        self._answers = True
        return lease

    def _failed(self, error: RpcError) -> None:
        if error.kind is ErrorKind.FENCED:
            _log.warning("%s lease is gone, joining again: %s", self._identity.stage.value, error)
            self._joined = False
        elif error.kind is ErrorKind.INVALID:
            self._refused = error
            self._known.set()
        elif self._answers:
            _log.warning("the coordinator does not answer: %s", error)
            self._answers = False

    def _renew(self) -> StageLease:
        """Renews once, and joins first when needed: only the answer to Renew names the lanes."""
        slot = self._join() if not self._joined or self._lease is None else self._lease.slot
        with self._state:
            report = self._report
        asked_s = self._clock.monotonic_s()
        request = pb.RenewRequest(
            slot=slot,
            lanes_held=sorted(report.lanes_held),
            uncommitted_entries=report.uncommitted_entries,
            uncommitted_memory=report.uncommitted_memory,
            figures=dict(report.stats),
            stopped=map(_stopped_message, report.stopped),
            skips=[pb.SkipResult(**result._asdict()) for result in report.skips],
            empty=[pb.EmptyRange(**empty._asdict()) for empty in report.empty],
            **self._base(),
        )
        answer = call(self._stub.Renew, request, _CALL_TIMEOUT_S)
        skips = tuple(SkipOrder(order.id, order.lane, order.offset) for order in answer.skips)
        lease = StageLease(
            slot,
            frozenset(answer.lanes),
            True,
            answer.paused,
            answer.pause_reason,
            skips,
            frozenset(answer.suspects),
        )
        with self._state:
            self._lease, self._heard_s = lease, asked_s
        self._joined = True
        return lease

    def _join(self) -> int:
        identity = self._identity
        request = pb.JoinRequest(
            address=identity.address,
            schema_avro=identity.schema_avro,
            protocol_version=PROTOCOL_VERSION,
            **self._base(),
        )
        if self._lease is not None:
            request.preferred_slot = self._lease.slot
        answer = call(self._stub.Join, request, _CALL_TIMEOUT_S)
        facts = JoinFacts(answer.num_shards, answer.lanes, answer.schema_id, answer.ledger)
        if self._facts is not None and self._facts != facts:
            self._refused = SetupError(
                f"the coordinator serves another table {identity.table} now: {self._facts} became {facts}: "
                "start this process again"
            )
        self._facts, self._lease_ms = facts, answer.lease_ms
        self._known.set()
        _log.info("%s stage has slot %d", identity.stage.value, answer.slot)
        return int(answer.slot)

    def _base(self) -> dict[str, Any]:
        identity = self._identity
        return {
            "table": identity.table,
            "stage": _STAGES[identity.stage],
            "process_id": identity.process_id,
        }

    def _raise_refusal(self) -> None:
        if self._refused is not None:
            raise self._refused


def _stopped_message(stopped: StoppedLane) -> pb.StoppedLane:
    return pb.StoppedLane(
        lane=stopped.lane,
        topic=stopped.topic,
        partition=stopped.partition,
        offset=stopped.offset,
        reason=stopped.reason.value,
        detail=stopped.detail,
        since_ms=stopped.since_ms,
    )
