"""Lanes whose readers die where they stand: counted by the coordinator, told to the next owner."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from commit_coordinator.domain.reader_deaths import DeathsAt, after_death, is_suspect
from commit_coordinator.members import Members
from epoch_protocol.entries import Stage
from tests.unit.ledger_client.memory_cluster import MemoryCluster

LEASE_MS = 3_000


@pytest.mark.parametrize(
    ("known", "position", "after", "suspect"),
    [
        (None, 7, DeathsAt(7, 1), False),
        (DeathsAt(7, 1), 7, DeathsAt(7, 2), True),
        (DeathsAt(7, 2), 7, DeathsAt(7, 3), True),
        (DeathsAt(7, 1), 8, DeathsAt(8, 1), False),
        (DeathsAt(7, 5), 8, DeathsAt(8, 1), False),
    ],
)
def test_the_rule(known: DeathsAt | None, position: int, after: DeathsAt, suspect: bool) -> None:
    assert after_death(known, position) == after
    assert is_suspect(after, position) is suspect
    assert not is_suspect(after, position + 1)


class Seats:
    """Processes that come and go, and where the lanes stand."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.positions = {"in:0": 5, "in:1": 5}
        self.members = Members(
            "t",
            self.cluster.client,
            self.cluster.clock,
            LEASE_MS,
            {Stage.SHUFFLE: ["in:0", "in:1"]},
            lambda _, lane: self.positions[lane],
        )
        self.made = 0

    def owner(self) -> str:
        """A process that holds both lanes."""
        self.made += 1
        name = f"process-{self.made}"
        self.members.join(Stage.SHUFFLE, name, "at")
        assert set(self.members.renew(Stage.SHUFFLE, name, [], 0, {}).lanes) == set(self.positions)
        return name

    def dies(self) -> None:
        """Who holds the lanes does not come back."""
        self.owner()
        self.cluster.clock.advance((LEASE_MS + 1) / 1000)
        self.members.expire()

    def suspects(self) -> list[str]:
        return self.members.suspects(Stage.SHUFFLE, self.positions)


@pytest.fixture
def seats() -> Iterator[Seats]:
    made = Seats()
    yield made
    made.members.stop()


def test_two_deaths_where_a_lane_stands_make_it_suspect_whoever_dies(seats: Seats) -> None:
    seats.dies()
    assert seats.suspects() == []
    seats.dies()
    assert seats.suspects() == ["in:0", "in:1"]
    seats.positions["in:1"] = 6
    assert seats.suspects() == ["in:0"]
    seats.dies()
    assert seats.suspects() == ["in:0"]
    seats.positions["in:0"] = 9
    assert seats.suspects() == []


def test_a_good_bye_is_no_death_unless_an_error_ended_the_process(seats: Seats) -> None:
    for _ in range(3):
        seats.members.leave(Stage.SHUFFLE, seats.owner())
    assert seats.suspects() == []
    for _ in range(2):
        seats.members.leave(Stage.SHUFFLE, seats.owner(), by_error=True)
    assert seats.suspects() == ["in:0", "in:1"]
    assert seats.members.suspects(Stage.ASSIGN, ["0"]) == []


def test_who_is_not_known_died_of_nothing(seats: Seats) -> None:
    for _ in range(3):
        seats.members.leave(Stage.SHUFFLE, "nobody", by_error=True)
    assert seats.suspects() == []
