"""Leases of slots and lanes (ARCHITECTURE.md, "Membership"); pure, one `Membership` per stage.

A lane goes from one process to the next only when the first has given it up, has left, or its lease has
ended *and* its slot was fenced::

    FREE ──grant──► GRANTED ──holder told to give up──► REVOKED ──holder no longer reports it──► FREE
                       └────────────── lease ended ──────────────► FENCING ──slot fenced───────► FREE

`LEASE_TRANSITIONS` lists these steps, docs/lifecycles.md has the picture. Leases save work, safety does not
rest on them: if two processes work on one lane at a time, the transactions of only one of them count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tidemark.epoch_protocol.errors import LaneTransitionError
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.stopped_lanes import StoppedLane

SLOTS_MAX = 256


class LaneLease(Enum):
    """The lease of one lane; `Membership` alone changes it."""

    FREE = "free"
    GRANTED = "granted"
    REVOKED = "revoked"
    FENCING = "fencing"


LEASE_TRANSITIONS: Final[Mapping[LaneLease, frozenset[LaneLease]]] = {
    LaneLease.FREE: frozenset({LaneLease.GRANTED}),
    LaneLease.GRANTED: frozenset({LaneLease.REVOKED, LaneLease.FENCING, LaneLease.FREE}),
    LaneLease.REVOKED: frozenset({LaneLease.FENCING, LaneLease.FREE}),
    LaneLease.FENCING: frozenset({LaneLease.FREE}),
}
assert set(LEASE_TRANSITIONS) == set(LaneLease)


@dataclass
class Member:
    """A live process of the stage."""

    process_id: str
    slot: int
    address: str
    expires_ms: int
    claim_token: int = 0
    stats: dict[str, float] = field(default_factory=dict)
    uncommitted_entries: int = 0
    uncommitted_memory: int = 0
    stopped: tuple[StoppedLane, ...] = ()
    empty: tuple[EmptyRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Uncommitted:
    """Index entries of rows that no epoch covers yet, and the bytes of memory that they take."""

    entries: int = 0
    memory: int = 0


@dataclass
class _Lane:
    lease: LaneLease = LaneLease.FREE
    slot: int | None = None

    def to(self, lease: LaneLease, slot: int | None) -> None:
        """Moves the lane to ``lease`` and ``slot``; it may also stay in the same state.

        Raises LaneTransitionError when `LEASE_TRANSITIONS` does not list the move.
        """
        if lease is not self.lease and lease not in LEASE_TRANSITIONS[self.lease]:
            raise LaneTransitionError(f"a lane's lease cannot go from {self.lease.value} to {lease.value}")
        self.lease, self.slot = lease, slot


@dataclass(frozen=True)
class Grant:
    """Answer to a renewal: the lanes to work on now, and a token that changes with every new grant."""

    lanes: tuple[str, ...]
    claim_token: int


class UnknownMemberError(Exception):
    """The process has no lease, or its lease has ended: it has to join again, and to claim its lanes anew."""


class Membership:
    """Spreads the lanes of one stage over its live members. The caller gives all times (Unix epoch, ms)."""

    def __init__(self, lease_ms: int) -> None:
        self._lease_ms = lease_ms
        self._members: dict[str, Member] = {}
        self._lanes: dict[str, _Lane] = {}
        self._wanted: frozenset[str] = frozenset()
        self._fencing: set[int] = set()

    def set_lanes(self, lanes: Iterable[str]) -> None:
        """Sets which lanes are worked on: from the next renewals on they are spread over the members.

        A process that holds any other lane is told to give it up.
        """
        self._wanted = frozenset(lanes)
        for lane in self._wanted:
            self._lanes.setdefault(lane, _Lane())
        for name in [n for n, lane in self._lanes.items() if n not in self._wanted and lane.slot is None]:
            del self._lanes[name]

    def join(self, now_ms: int, process_id: str, address: str, preferred_slot: int | None = None) -> Member:
        """Gives the process a slot: the one it has, else the preferred one if free, else the lowest free one.

        Raises ValueError when all `SLOTS_MAX` slots are taken.
        """
        member = self._members.get(process_id)
        if member is None:
            slot = self._free_slot(preferred_slot)
            member = Member(process_id, slot, address, now_ms + self._lease_ms)
            self._members[process_id] = member
        member.expires_ms = now_ms + self._lease_ms
        return member

    def renew(self, now_ms: int, process_id: str, held: Iterable[str]) -> Grant:
        """Extends the lease and moves lanes one step towards an even spread.

        ``held``: lanes the process still works on. Raises UnknownMemberError.
        """
        member = self._members.get(process_id)
        if member is None:
            raise UnknownMemberError(process_id)
        member.expires_ms = now_ms + self._lease_ms
        self._release_given_up(member, set(held))
        target = set(self._targets()[process_id])
        for name, lane in self._lanes.items():
            if lane.slot == member.slot and name not in target:
                lane.to(LaneLease.REVOKED, member.slot)
            elif lane.lease is LaneLease.FREE and name in target:
                lane.to(LaneLease.GRANTED, member.slot)
                member.claim_token += 1
        return Grant(tuple(self._granted(member)), member.claim_token)

    def leave(self, process_id: str) -> None:
        """Frees the slot and its lanes at once; does nothing for an unknown process."""
        member = self._members.pop(process_id, None)
        if member is not None:
            self._free(member.slot)

    def expire(self, now_ms: int) -> list[int]:
        """Slots whose lease has ended since the last call. The caller fences each, then calls `fenced`."""
        ended = [m for m in self._members.values() if m.expires_ms <= now_ms]
        for member in ended:
            del self._members[member.process_id]
            self._fencing.add(member.slot)
            for lane in self._lanes.values():
                if lane.slot == member.slot:
                    lane.to(LaneLease.FENCING, member.slot)
        return [m.slot for m in ended]

    def fenced(self, slot: int) -> None:
        """The slot's transactional id was taken over: frees its lanes, and the slot itself."""
        self._fencing.discard(slot)
        self._free(slot)

    def fence_absent(self, slots: Iterable[int]) -> list[int]:
        """Those of ``slots`` (of a former term) that no process has taken in this term.

        The caller fences each, then calls `fenced`.
        """
        taken = {m.slot for m in self._members.values()} | self._fencing
        absent = sorted(set(slots) - taken)
        self._fencing.update(absent)
        return absent

    def members(self) -> Sequence[Member]:
        """Live members by slot."""
        return sorted(self._members.values(), key=lambda m: m.slot)

    def holder(self, lane: str) -> Member | None:
        """The live member that the lane is granted to."""
        held = self._lanes.get(lane)
        if held is None or held.lease is not LaneLease.GRANTED:
            return None
        return next((m for m in self._members.values() if m.slot == held.slot), None)

    def held_by(self, process_id: str) -> list[str]:
        """Lanes that the process holds or has not given up yet; empty for an unknown process."""
        member = self._members.get(process_id)
        return [] if member is None else [n for n, lane in self._lanes.items() if lane.slot == member.slot]

    def ended(self, now_ms: int) -> list[str]:
        """Ids of processes whose lease has ended by now; `expire` takes their lanes away."""
        return [m.process_id for m in self._members.values() if m.expires_ms <= now_ms]

    def leases(self) -> dict[str, tuple[LaneLease, int | None]]:
        """For `tidemark status`: state and slot of each lane that is worked on, or still held."""
        return {
            name: (lane.lease, lane.slot)
            for name, lane in self._lanes.items()
            if name in self._wanted or lane.slot is not None
        }

    def _free_slot(self, preferred: int | None) -> int:
        taken = {m.slot for m in self._members.values()} | self._fencing
        if preferred is not None and preferred < SLOTS_MAX and preferred not in taken:
            return preferred
        for slot in range(SLOTS_MAX):
            if slot not in taken:
                return slot
        raise ValueError(f"all {SLOTS_MAX} slots of the stage are taken")

    def _free(self, slot: int) -> None:
        for lane in self._lanes.values():
            if lane.slot == slot:
                lane.to(LaneLease.FREE, None)

    def _release_given_up(self, member: Member, held: set[str]) -> None:
        for name, lane in self._lanes.items():
            if lane.slot == member.slot and lane.lease is LaneLease.REVOKED and name not in held:
                lane.to(LaneLease.FREE, None)

    def _granted(self, member: Member) -> list[str]:
        return [
            n
            for n, lane in self._lanes.items()
            if lane.slot == member.slot and lane.lease is LaneLease.GRANTED
        ]

    def _targets(self) -> dict[str, list[str]]:
        """Process id -> lanes: an even spread that moves few lanes; the same members give the same spread.

        Example: of 5 lanes slot 0 holds a, b, c, d and slot 1 joins. Slot 0 may have 3 and keeps a, b, c;
        slot 1 gets d and the free lane e.
        """
        members = self.members()
        quota, extra = divmod(len(self._wanted), len(members))
        targets: dict[str, list[str]] = {m.process_id: [] for m in members}
        by_slot = {m.slot: m.process_id for m in members}
        unplaced: list[str] = []
        room = {m.process_id: quota + (1 if i < extra else 0) for i, m in enumerate(members)}
        for name in sorted(self._wanted):
            owner = by_slot.get(slot) if (slot := self._lanes[name].slot) is not None else None
            if owner is not None and len(targets[owner]) < room[owner]:
                targets[owner].append(name)
            else:
                unplaced.append(name)
        for name in unplaced:
            process_id = next(p for p in targets if len(targets[p]) < room[p])
            targets[process_id].append(name)
        return targets
