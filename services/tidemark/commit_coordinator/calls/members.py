"""Slots and lanes of both stages behind one lock, and the fencing of slots whose lease ended.

gRPC threads call in; a thread of its own expires leases. Fencing is `init_transactions` on the slot's
transactional id (0.6 to 1 s when a transaction is open): only after it may the slot's lanes be granted to
another process, and readers that its open transaction held back go on. Slots that owned lanes when a
coordinator took over, and that nobody took again within one lease, are fenced as well: who died together with
the former coordinator has no lease here that could end.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tidemark.commit_coordinator.calls.reader_death_record import DeathRecord, reads_input
from tidemark.commit_coordinator.domain.membership import (
    Grant,
    LaneLease,
    Member,
    Membership,
    UnknownMemberError,
)
from tidemark.commit_coordinator.domain.reader_deaths import is_suspect
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.input.stopped_lanes import StoppedLanes
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.state import FoldState
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.errors import ErrorKind
from tidemark.hudi_format.publication.port import Term
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient, KafkaError

_EXPIRE_EVERY_S: Final = 0.2
_log = logging.getLogger("tidemark.coordinator")


class LeaseEndedError(CoordinatorError):
    """The process's lease has ended: join again and claim anew."""

    kind = ErrorKind.FENCED


def transactional_id(table: str, stage: Stage, slot: int) -> str:
    """Fixed per slot, so that whoever holds the slot fences whoever held it."""
    return f"{table}-{stage.value}-{slot}"


class Members:
    """Thread-safe `Membership` of both stages. Times are the clock's wall time in milliseconds."""

    def __init__(
        self,
        table: str,
        client: KafkaClient,
        clock: Clock,
        lease_ms: int,
        lanes: Mapping[Stage, Iterable[str]],
        position: Callable[[Stage, str], int] = lambda *_: 0,
    ) -> None:
        """``position``: the next offset of a lane that counts, as the ledger has it now."""
        self._table = table
        self._position = position
        self.deaths = DeathRecord()
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._stages = {stage: Membership(lease_ms) for stage in Stage}
        for stage, names in lanes.items():
            self._stages[stage].set_lanes(names)
        self.stopped_lanes = StoppedLanes(self._reported_stops, clock)
        self._lease_ms = lease_ms
        self._former: dict[Stage, set[int]] = {}
        self._former_until_ms = 0
        self._to_fence: dict[tuple[Stage, int], None] = {}
        self._stopped = threading.Event()
        self._expirer = threading.Thread(target=self._expire_leases, name="leases", daemon=True)

    def set_lanes(self, stage: Stage, lanes: Iterable[str]) -> None:
        """The lanes of the stage that are to be worked on, instead of those before."""
        with self._lock:
            self._stages[stage].set_lanes(lanes)

    def took_over(self, state: FoldState, term: Term) -> None:
        """``state``: the fold at the takeover. Slots that it names as owners have a lease to come back.
        ``term``: the coordinator's.
        """
        lanes = {Stage.SHUFFLE: state.shuffle_lanes, Stage.ASSIGN: state.assign_lanes}
        self._former = {
            stage: {lane.slot for lane in held.values() if lane.slot is not None}
            for stage, held in lanes.items()
        }
        self._former_until_ms = self._clock.now_ms() + self._lease_ms
        self.deaths.took_over(term, state)

    def start(self) -> None:
        """Starts expiring leases, on a thread of its own."""
        self._expirer.start()

    def stop(self) -> None:
        """Ends the expiring thread, in order."""
        self._stopped.set()
        if self._expirer.is_alive():
            self._expirer.join()
        self.deaths.keep(serving=False)

    def join(self, stage: Stage, process_id: str, address: str, preferred_slot: int | None = None) -> Member:
        """A slot for the process."""
        with self._lock:
            return self._stages[stage].join(self._clock.now_ms(), process_id, address, preferred_slot)

    def renew(
        self,
        stage: Stage,
        process_id: str,
        held: Iterable[str],
        uncommitted: int,
        figures: Mapping[str, float],
        stopped: Sequence[StoppedLane] = (),
        empty: Sequence[EmptyRange] = (),
    ) -> Grant:
        """Extends the lease; raises LeaseEndedError when it ended before."""
        with self._lock:
            membership = self._stages[stage]
            try:
                grant = membership.renew(self._clock.now_ms(), process_id, held)
            except UnknownMemberError as error:
                raise LeaseEndedError(f"the lease of {process_id} has ended: join again") from error
            for member in membership.members():
                if member.process_id == process_id:
                    member.uncommitted_entries, member.figures = uncommitted, dict(figures)
                    member.stopped, member.empty = tuple(stopped), tuple(empty)
            return grant

    def leave(self, stage: Stage, process_id: str, by_error: bool = False) -> None:
        """Good-bye: lanes and slot are free at once. ``by_error``: it counts as a death of their reader."""
        with self._lock:
            if by_error:
                self._died(stage, process_id)
            self._stages[stage].leave(process_id)

    def suspects(self, stage: Stage, lanes: Iterable[str]) -> list[str]:
        """Those of the lanes that are to be read apart: two readers died where they stand."""
        known = {lane: self.deaths.get(stage, lane) for lane in lanes}
        return [lane for lane, at in known.items() if at and is_suspect(at, self._position(stage, lane))]

    def empty_ranges(self) -> list[EmptyRange]:
        """What live owners found without records, in front of where their lanes stand."""
        return [each for stage in Stage for member in self.members(stage) for each in member.empty]

    def _died(self, stage: Stage, process_id: str) -> None:
        """Counts for the lanes of the input alone."""
        if not reads_input(stage, bool(self._stages[Stage.SHUFFLE].leases())):
            return
        for lane in self._stages[stage].held_by(process_id):
            position = self._position(stage, lane)
            at = self.deaths.died(stage, lane, position)
            if is_suspect(at, position):
                _log.warning(
                    "%s lane %s is read apart from now on: its reader died %d times at offset %d",
                    stage.value,
                    lane,
                    at.deaths,
                    position,
                )

    def members(self, stage: Stage) -> list[Member]:
        """Live members by slot."""
        with self._lock:
            return list(self._stages[stage].members())

    def holder(self, stage: Stage, lane: str) -> Member | None:
        """Who the lane is granted to."""
        with self._lock:
            return self._stages[stage].holder(lane)

    def leases(self, stage: Stage) -> dict[str, tuple[LaneLease, int | None]]:
        """State and slot per lane."""
        with self._lock:
            return self._stages[stage].leases()

    def _reported_stops(self) -> list[StoppedLane]:
        return [each for stage in Stage for member in self.members(stage) for each in member.stopped]

    def uncommitted_entries(self) -> int:
        """Index entries that live assigners hold for what is not committed."""
        return sum(member.uncommitted_entries for member in self.members(Stage.ASSIGN))

    def expire(self) -> None:
        """One round: fences the slots whose lease has ended, and frees those for which that worked."""
        self._to_fence.update(dict.fromkeys(self._ended()))
        for stage, slot in list(self._to_fence):
            if self._fence(stage, slot):
                del self._to_fence[stage, slot]
                with self._lock:
                    self._stages[stage].fenced(slot)

    def _expire_leases(self) -> None:
        while not self._stopped.wait(_EXPIRE_EVERY_S):
            self.expire()
            self.deaths.keep()

    def _ended(self) -> list[tuple[Stage, int]]:
        """Slots to fence that are new since the last call."""
        now_ms = self._clock.now_ms()
        with self._lock:
            for stage, each in self._stages.items():
                for process_id in each.ended(now_ms):
                    self._died(stage, process_id)
            ended = [(stage, slot) for stage, each in self._stages.items() for slot in each.expire(now_ms)]
            if self._former and now_ms >= self._former_until_ms:
                for stage, slots in self._former.items():
                    ended += [(stage, slot) for slot in self._stages[stage].fence_absent(slots)]
                self._former = {}
        return ended

    def _fence(self, stage: Stage, slot: int) -> bool:
        identity = transactional_id(self._table, stage, slot)
        try:
            producer = self._client.producer(identity)
            try:
                producer.init()
            finally:
                producer.close()
        except KafkaError as error:
            _log.warning("fencing %s will be tried again: %s", identity, error)
            return False
        _log.info("nobody holds %s any more: fenced", identity)
        return True
