"""Leases of lanes and slots: never two holders, an even spread, and fencing before a lane moves on."""

from __future__ import annotations

import random

import pytest

from tidemark.commit_coordinator.domain.membership import (
    SLOTS_MAX,
    LaneLease,
    Membership,
    UnknownMemberError,
)

LEASE_MS = 3_000


class Process:
    """Works on what it was granted until it is told otherwise, a renewal later."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lanes: set[str] = set()
        self.token = 0


class World:
    """A membership and its processes, on one clock."""

    def __init__(self, lanes: int) -> None:
        self.membership = Membership(LEASE_MS)
        self.membership.set_lanes(str(lane) for lane in range(lanes))
        self.now = 0
        self.live: dict[str, Process] = {}
        self.unfenced: list[tuple[int, Process]] = []
        self._named = 0

    def join(self, preferred: int | None = None) -> Process:
        self._named += 1
        process = Process(f"p{self._named}")
        self.membership.join(self.now, process.name, "at", preferred)
        self.live[process.name] = process
        return process

    def slot_of(self, process: Process) -> int:
        return next(m.slot for m in self.membership.members() if m.process_id == process.name)

    def renew(self, process: Process) -> None:
        grant = self.membership.renew(self.now, process.name, process.lanes)
        fresh = set(grant.lanes) - process.lanes
        assert not fresh or grant.claim_token != process.token, "a new grant without a new token"
        process.lanes, process.token = set(grant.lanes), grant.claim_token

    def renew_all(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            self.now += 1_000
            for process in list(self.live.values()):
                self.renew(process)

    def die(self, process: Process) -> None:
        """It stops renewing, but may still work until its slot is fenced."""
        del self.live[process.name]
        self.unfenced.append((self.slot_of(process), process))

    def expire(self) -> None:
        ended = self.membership.expire(self.now)
        assert set(ended) <= {slot for slot, _ in self.unfenced}

    def fence_all(self) -> None:
        members = {m.slot for m in self.membership.members()}
        for slot, process in self.unfenced:
            if slot not in members:
                process.lanes = set()
                self.membership.fenced(slot)
        self.unfenced = [(slot, process) for slot, process in self.unfenced if slot in members]

    def chance(self, dice: random.Random) -> None:
        """Somebody joins, dies, leaves, or the dead are fenced; or nothing of it."""
        what = dice.random()
        if what < 0.12 and len(self.live) < 6:
            self.join(dice.choice([None, 0, 1, 2]))
        elif what < 0.18 and self.live:
            self.die(dice.choice(list(self.live.values())))
        elif what < 0.22 and self.live:
            process = dice.choice(list(self.live.values()))
            del self.live[process.name]
            self.membership.leave(process.name)
        elif what < 0.3:
            self.fence_all()

    def expire_late(self) -> None:
        """The lease of a process that still lives may have ended: it works on until it is fenced."""
        slots = {m.slot: m.process_id for m in self.membership.members()}
        for slot in self.membership.expire(self.now):
            process = self.live.pop(slots[slot], None)
            if process is not None:
                self.unfenced.append((slot, process))

    def check(self) -> None:
        working = [*self.live.values(), *(process for _, process in self.unfenced)]
        held = [lane for process in working for lane in process.lanes]
        assert len(held) == len(set(held)), "a lane has two holders"

    def spread(self) -> list[int]:
        return sorted(len(process.lanes) for process in self.live.values())


def test_lanes_are_spread_evenly_and_move_no_more_than_they_must() -> None:
    world = World(8)
    first = world.join()
    world.renew_all()
    assert world.spread() == [8]
    second = world.join()
    world.renew_all()
    assert world.spread() == [4, 4]
    before = {lane for process in (first, second) for lane in process.lanes}
    kept = set(first.lanes)
    world.join()
    world.renew_all()
    assert world.spread() == [2, 3, 3]
    assert first.lanes < kept
    assert {lane for process in world.live.values() for lane in process.lanes} == before


def test_a_lane_is_granted_only_after_its_holder_gave_it_up() -> None:
    world = World(2)
    first = world.join()
    world.renew_all()
    second = world.join()
    world.renew(second)
    assert second.lanes == set()
    grant = world.membership.renew(world.now, first.name, first.lanes)
    moved = (first.lanes - set(grant.lanes)).pop()
    assert world.membership.leases()[moved] == (LaneLease.REVOKED, 0)
    world.renew(second)
    assert second.lanes == set(), "its holder may still work on it"
    first.lanes = set(grant.lanes)
    world.renew(first)
    world.renew(second)
    assert second.lanes == {moved}


def test_a_lease_that_ended_frees_its_lanes_only_once_the_slot_is_fenced() -> None:
    world = World(2)
    first, second = world.join(), world.join()
    world.renew_all()
    lane = next(iter(first.lanes))
    world.die(first)
    for _ in range(2):
        world.now += 2_000
        world.renew(second)
        world.expire()
    assert world.membership.leases()[lane] == (LaneLease.FENCING, 0)
    assert world.membership.holder(lane) is None
    with pytest.raises(UnknownMemberError):
        world.membership.renew(world.now, first.name, [])
    assert world.slot_of(world.join(preferred=0)) == 2, "the slot is not free before it is fenced"
    world.membership.fenced(0)
    world.renew(second)
    world.renew_all()
    assert world.membership.leases()[lane][0] is LaneLease.GRANTED
    assert world.slot_of(world.join(preferred=0)) == 0


def test_good_bye_frees_lanes_and_slot_at_once() -> None:
    world = World(4)
    first, second = world.join(), world.join()
    world.renew_all()
    world.membership.leave(first.name)
    world.membership.leave(first.name)
    world.membership.leave("nobody")
    world.renew(second)
    assert len(second.lanes) == 4
    assert world.membership.expire(world.now + 1) == []


def test_a_process_keeps_its_slot_and_gets_the_one_it_prefers() -> None:
    world = World(1)
    process = world.join(preferred=5)
    assert world.slot_of(process) == 5
    assert world.membership.join(world.now, process.name, "at", 9).slot == 5
    assert world.slot_of(world.join(preferred=5)) == 0
    for _ in range(SLOTS_MAX - 2):
        world.join()
    with pytest.raises(ValueError, match="256 slots"):
        world.join()


@pytest.mark.parametrize("seed", range(60))
def test_whatever_happens_no_lane_has_two_holders_and_the_spread_comes_out_even(seed: int) -> None:
    dice = random.Random(seed)
    lanes = dice.randint(1, 12)
    world = World(lanes)
    for _ in range(150):
        world.now += dice.randint(0, 900)
        world.chance(dice)
        for process in list(world.live.values()):
            if dice.random() < 0.7:
                world.renew(process)
        world.expire_late()
        world.check()
    world.join()
    for _ in range(8):
        world.now += 1_000
        for process in list(world.live.values()):
            world.renew(process)
        world.expire_late()
        world.fence_all()
    world.renew_all(4)
    world.check()
    assert sum(world.spread()) == lanes
    assert world.spread()[-1] - world.spread()[0] <= 1
