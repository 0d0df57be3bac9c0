"""Leases of slots and lanes in both stages, behind one lock, and the fencing of slots whose lease has ended.

gRPC threads call `Members`; its own thread expires leases. To fence a slot is to call `init_transactions`
with its transactional id (0.6 to 1 s if a transaction is open). It aborts the dead process's open
transaction, which holds back all read_committed readers of the partition. Only then may the slot's lanes go
to another process.

A process may die together with the former coordinator, and then it has no lease here that could end. So the
slots that owned lanes at the takeover, and that nobody takes again within one lease, are fenced as well.
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
    Uncommitted,
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
    """The process's lease has ended: it has to join again, and to claim its lanes anew."""

    kind = ErrorKind.FENCED


def transactional_id(table: str, stage: Stage, slot: int) -> str:
    """The transactional id of a slot. It is fixed, so the slot's next holder fences the one before."""
    return f"{table}-{stage.value}-{slot}"


class Members:
    """Thread-safe: a `Membership` for each stage, stopped lanes, and deaths of readers. Times: Unix epoch,
    ms.
    """

    def __init__(
        self,
        table: str,
        client: KafkaClient,
        clock: Clock,
        lease_ms: int,
        lanes: Mapping[Stage, Iterable[str]],
        position: Callable[[Stage, str], int] = lambda *_: 0,
    ) -> None:
        """``lanes``: the lanes of each stage when the coordinator starts. ``position``: returns the next
        offset of a lane that no counting transaction covers.
        """
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
        """Replaces the lanes of the stage that are worked on."""
        with self._lock:
            self._stages[stage].set_lanes(lanes)

    def took_over(self, state: FoldState, term: Term) -> None:
        """Gives the slots that own lanes by the fold's ``state`` one lease of time to join again.

        ``term``: the coordinator's right to write, with which deaths of readers are stored.
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
        """Ends the expiring thread, and stores that this coordinator ended in order (`DeathRecord.keep`)."""
        self._stopped.set()
        if self._expirer.is_alive():
            self._expirer.join()
        self.deaths.keep(serving=False)

    def join(self, stage: Stage, process_id: str, address: str, preferred_slot: int | None = None) -> Member:
        """Gives the process a slot; see `Membership.join`. Raises ValueError when all slots are taken."""
        with self._lock:
            return self._stages[stage].join(self._clock.now_ms(), process_id, address, preferred_slot)

    def renew(
        self,
        stage: Stage,
        process_id: str,
        held: Iterable[str],
        uncommitted: int,
        stats: Mapping[str, float],
        stopped: Sequence[StoppedLane] = (),
        empty: Sequence[EmptyRange] = (),
        uncommitted_memory: int = 0,
    ) -> Grant:
        """Extends the lease and takes what the process reports; answers with the lanes to work on.

        ``held``: lanes that it still works on. ``stopped``, ``empty``: its lanes that stopped, and the ranges
        of offsets in which it found no records. Raises LeaseEndedError when the lease ended before.
        """
        with self._lock:
            membership = self._stages[stage]
            try:
                grant = membership.renew(self._clock.now_ms(), process_id, held)
            except UnknownMemberError as error:
                raise LeaseEndedError(f"the lease of {process_id} has ended: join again") from error
            for member in membership.members():
                if member.process_id == process_id:
                    member.uncommitted_entries, member.stats = uncommitted, dict(stats)
                    member.uncommitted_memory = uncommitted_memory
                    member.stopped, member.empty = tuple(stopped), tuple(empty)
            return grant

    def leave(self, stage: Stage, process_id: str, by_error: bool = False) -> None:
        """Frees the process's lanes and slot at once. ``by_error``: it counts as a death of their reader."""
        with self._lock:
            if by_error:
                self._died(stage, process_id)
            self._stages[stage].leave(process_id)

    def suspects(self, stage: Stage, lanes: Iterable[str]) -> list[str]:
        """Those of the lanes that must be read in a separate process: two readers died at their positions."""
        known = {lane: self.deaths.get(stage, lane) for lane in lanes}
        return [lane for lane, at in known.items() if at and is_suspect(at, self._position(stage, lane))]

    def empty_ranges(self) -> list[EmptyRange]:
        """The ranges of offsets without records that live owners found just behind their lanes' positions."""
        return [empty for stage in Stage for member in self.members(stage) for empty in member.empty]

    def _died(self, stage: Stage, process_id: str) -> None:
        """Counts a death for each lane that the process held, if the stage reads the input."""
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
        """The live member that the lane is granted to, or None."""
        with self._lock:
            return self._stages[stage].holder(lane)

    def leases(self, stage: Stage) -> dict[str, tuple[LaneLease, int | None]]:
        """Lane -> state and slot of its lease."""
        with self._lock:
            return self._stages[stage].leases()

    def _reported_stops(self) -> list[StoppedLane]:
        return [stop for stage in Stage for member in self.members(stage) for stop in member.stopped]

    def uncommitted(self) -> Uncommitted:
        """The index entries that live assigners hold for rows that are not committed."""
        members = self.members(Stage.ASSIGN)
        return Uncommitted(
            sum(member.uncommitted_entries for member in members),
            sum(member.uncommitted_memory for member in members),
        )

    def expire(self) -> None:
        """One round: fences the slots whose lease has ended, and frees each that could be fenced."""
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
        """The slots that have to be fenced since the last call."""
        now_ms = self._clock.now_ms()
        with self._lock:
            # Deaths first: `expire` takes the lanes away that they are counted for.
            for stage, membership in self._stages.items():
                for process_id in membership.ended(now_ms):
                    self._died(stage, process_id)
            ended = [(stage, slot) for stage, of in self._stages.items() for slot in of.expire(now_ms)]
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
        _log.info("%s is fenced: no process holds its slot", identity)
        return True
