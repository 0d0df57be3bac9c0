"""Lanes whose readers die where they stand: counted by the coordinator, told to the next owner."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from testing.terms import begin_term
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.reader_death_record import READER_DEATHS, DeathRecord, ReaderDeaths
from tidemark.commit_coordinator.domain.reader_deaths import DeathsAt, after_death, is_suspect
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.state import FoldState, LaneState
from tidemark.hudi_format.storage.local import LocalStorage

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


def folded(position: int = 7, slot: int | None = 0) -> FoldState:
    lane = LaneState(position, slot=slot)
    # The assign stage reads what Tidemark wrote.
    return FoldState(shuffle_lanes={"in:0": lane}, assign_lanes={"0": lane})


class Terms:
    """Coordinators of one table, one after the other."""

    def __init__(self, folder: Path) -> None:
        self.storage = LocalStorage(folder)
        self.number = 0

    def begin(self, state: FoldState) -> DeathRecord:
        self.number += 1
        record = DeathRecord()
        record.took_over(begin_term(self.storage, self.number), state)
        return record


@pytest.fixture
def terms(tmp_path: Path) -> Terms:
    return Terms(tmp_path)


def test_who_dies_together_with_the_coordinator_is_counted_all_the_same(terms: Terms) -> None:
    """As where the memory of the machine, or of the container that runs everything, is used up."""
    assert terms.begin(folded()).get(Stage.SHUFFLE, "in:0") is None
    assert terms.begin(folded()).get(Stage.SHUFFLE, "in:0") == DeathsAt(7, 1)
    third = terms.begin(folded())
    assert third.get(Stage.SHUFFLE, "in:0") == DeathsAt(7, 2)
    assert third.get(Stage.ASSIGN, "0") is None
    assert terms.begin(folded(8)).get(Stage.SHUFFLE, "in:0") == DeathsAt(8, 1)
    assert terms.begin(folded(9, slot=None)).get(Stage.SHUFFLE, "in:0") is None


def test_a_good_bye_of_the_coordinator_is_no_death_and_forgets_none(terms: Terms) -> None:
    first = terms.begin(folded())
    assert first.died(Stage.SHUFFLE, "in:0", 7) == DeathsAt(7, 1)
    first.keep(serving=False)
    for _ in range(3):
        later = terms.begin(folded())
        assert later.get(Stage.SHUFFLE, "in:0") == DeathsAt(7, 1)
        later.keep(serving=False)
    assert terms.begin(folded(8)).get(Stage.SHUFFLE, "in:0") is None


def test_a_record_that_cannot_be_written_or_read_stops_nobody(
    terms: Terms, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = terms.begin(folded())
    first.died(Stage.SHUFFLE, "in:0", 7)
    with monkeypatch.context() as patch:
        patch.setattr(type(terms.storage), "publish", _refuse)
        first.keep()
    assert "trying again" in caplog.text
    first.keep()
    second = terms.begin(folded())
    assert second.get(Stage.SHUFFLE, "in:0") == DeathsAt(7, 2)
    # Its term is over: a successor counts on.
    first.died(Stage.SHUFFLE, "in:0", 7)
    first.keep()
    stored = terms.storage.read(READER_DEATHS)
    assert json.loads(bytes(stored))["deaths"] == {"shuffle": {"in:0": [7, 2]}}
    for term, damaged in ((2, b"{"), (3, b'{"deaths": {"\xff": {}}}')):
        folder = f".hoodie/.aux/tidemark/terms/{term}"
        terms.storage.publish(folder, READER_DEATHS, damaged, overwrite=True)
        assert terms.begin(folded()).get(Stage.SHUFFLE, "in:0") is None


def _refuse(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_leases_keep_the_record_and_say_good_bye(terms: Terms, seats: Seats) -> None:
    seats.members.took_over(FoldState(), begin_term(terms.storage))
    seats.members.start()
    seats.members.leave(Stage.SHUFFLE, seats.owner(), by_error=True)

    def stored() -> ReaderDeaths:
        return msgspec.json.decode(terms.storage.read(READER_DEATHS), type=ReaderDeaths)

    end = time.monotonic() + 60
    while not stored().deaths:
        assert time.monotonic() < end, "not within 60 s"
        time.sleep(0.02)
    assert stored() == ReaderDeaths(True, {"shuffle": {"in:0": DeathsAt(5, 1), "in:1": DeathsAt(5, 1)}})
    seats.members.stop()
    assert not stored().serving
