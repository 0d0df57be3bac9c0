"""Which commands of the secondary index the kill campaign gives, and how it lets them die."""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import cast

import pytest

from testing.clock import ManualClock
from tests.chaos.index_commands import (
    COMMANDS_END_S,
    KEPT,
    NONE,
    REMADE,
    Command,
    Death,
    IndexCommands,
    next_command,
    next_death,
)
from tests.input_model import Row
from tidemark.hudi_format.metadata_table.secondary_creation import SecondaryFailpoint
from tidemark.stream_runtime.failpoint import ENVIRONMENT_VARIABLE, EXIT_CODE

INDEX = "secondary_index_by_it"
CREATE, DROP, REPAIR = Command("create", "ts"), Command("drop"), Command("repair")
HANGS_S, A_PLACE = 240.0, Death("after_secondary_written")


@dataclass(frozen=True)
class End:
    """How a process ends, and after how many seconds; one with `code` None does not end by itself."""

    code: int | None
    said: str = ""
    after_s: float = 1.0


class Process:
    """As much of a process as the commands ask for."""

    pid = 1

    def __init__(self, clock: ManualClock, end: End) -> None:
        self._clock, self._end, self._end_s = clock, end, clock.monotonic_s() + end.after_s
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None and self._clock.monotonic_s() >= self._end_s:
            self.returncode = self._end.code
        return self.returncode

    def kill(self) -> None:
        self.returncode = -9


class Scripted(IndexCommands):
    """Its processes end one after the other as it is told, the last ones all in the same way. `ran`: the verb
    of each, and the place at which it was to die. `stop_at`, `abandon_at`: the number of the process (from 1)
    during which the round comes to its end, or is given up.
    """

    def __init__(
        self,
        kind: str,
        table: Path,
        *ends: End,
        stop_at: int = 1,
        abandon_at: int = 0,
        kills: float = math.inf,
        rest: float = 1.0,
    ) -> None:
        self.clock = ManualClock()
        paths = (table, lambda: table / "config", table / "log")
        super().__init__(kind, *paths, 1, 1.0, kills, rest, self.clock)
        self._ends, self._stop_at, self._abandon_at = [*ends], stop_at, abandon_at
        self.ran: list[tuple[str, str]] = []

    def _spawn(self, command: Command, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        self.ran.append((command.verb, environment.get(ENVIRONMENT_VARIABLE, "")))
        if len(self.ran) == self._stop_at:
            self.rests()
        if len(self.ran) == self._abandon_at:
            self.end()
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        with self._log.open("a") as log:
            log.write(f"--- {command.verb}\n{end.said}\n")
        return cast("subprocess.Popen[bytes]", Process(self.clock, end))


LOCKED, DONE, DIED, HANGS = End(1, "the lock is held"), End(0), End(EXIT_CODE), End(None)
HANGS_SAYING = End(None, "reads rows")


def make(table: Path, column: str | None, listed: str) -> None:
    """The two files of a table that say which index it has."""
    (table / ".hoodie/.index_defs").mkdir(parents=True, exist_ok=True)
    known = {INDEX: {"sourceFields": [column]}} if column else {}
    (table / ".hoodie/.index_defs/index.json").write_text(json.dumps({"indexDefinitions": known}))
    (table / ".hoodie/hoodie.properties").write_text(f"hoodie.table.metadata.partitions=files{listed}\n")


def drawn(table: Path) -> Counter[str]:
    return Counter(next_command(Random(seed), table).verb for seed in range(200))


def commands(kind: str, table: Path) -> IndexCommands:
    return IndexCommands(kind, table, lambda: table / "config", table / "log", 1, 1.0)


def test_what_is_there_is_repaired_made_anew_and_dropped(tmp_path: Path):
    make(tmp_path, "ts", f",{INDEX}")
    assert drawn(tmp_path).keys() == {"create", "drop", "repair"}
    made = [next_command(Random(seed), tmp_path) for seed in range(200)]
    assert {each.column for each in made if each.verb == "create"} == {"ts"}, "another one is refused"


def test_what_is_half_made_is_made_or_dropped_and_never_repaired(tmp_path: Path):
    make(tmp_path, "region", "")
    assert drawn(tmp_path).keys() == {"create", "drop"}


def test_without_an_index_one_is_made_of_any_of_the_columns(tmp_path: Path):
    make(tmp_path, None, "")
    made = [next_command(Random(seed), tmp_path) for seed in range(200)]
    assert {each.verb for each in made} == {"create"}
    assert {each.column for each in made} == {"name", "ts", "region"}


def test_commands_die_at_every_step_under_the_lock_and_at_any_time():
    deaths = [
        (verb, next_death(Random(seed), verb, 3.0)) for verb in ("create", "drop") for seed in range(200)
    ]
    places = {(verb, death.place) for verb, death in deaths if death.place}
    assert {place for verb, place in places if verb == "create"} == set(SecondaryFailpoint)
    assert {place for verb, place in places if verb == "drop"} == {
        SecondaryFailpoint.AFTER_SECONDARY_UNLISTED,
        SecondaryFailpoint.AFTER_SECONDARY_UNDEFINED,
        SecondaryFailpoint.AFTER_SECONDARY_DELETED,
    }
    later = [death.after_s for _, death in deaths if not death.place]
    assert later
    assert all(0.5 < seconds < 3.5 for seconds in later)
    assert all(next_death(Random(seed), "repair", 3.0).after_s for seed in range(50))


@pytest.mark.parametrize("wrong", [{"missing": 1}, {"extra": 1}, {"anew": True}])
def test_a_repair_that_finds_something_is_a_finding(tmp_path: Path, wrong: dict[str, object]):
    right = {"missing": 0, "extra": 0, "anew": False}
    judge = commands(REMADE, tmp_path)
    judge.judge(Command("repair"), f"reading\n{json.dumps(right)}\n")
    judge.judge(Command("create", "ts"), "said nothing")
    with pytest.raises(AssertionError, match="epochs left the secondary index wrong"):
        judge.judge(Command("repair"), json.dumps({**right, **wrong}))


def test_a_campaign_without_an_index_asks_and_compares_nothing(tmp_path: Path):
    nothing = commands(NONE, tmp_path)
    nothing.start()
    assert nothing.is_there()
    assert nothing.rests()
    assert nothing.summary() == ""
    assert list(nothing.check({})) == []
    nothing.end()


@pytest.mark.parametrize("kind", [KEPT, REMADE])
def test_a_campaign_whose_index_is_gone_in_the_end_fails(tmp_path: Path, kind: str):
    make(tmp_path, None, "")
    rows: dict[str, Row] = {}
    assert "the table has no secondary index that is listed: None" in commands(kind, tmp_path).check(rows)


def test_a_campaign_of_remade_indexes_in_which_no_command_was_killed_fails(tmp_path: Path):
    make(tmp_path, None, "")
    told = "no command of the secondary index was killed"
    assert told in commands(REMADE, tmp_path).check({})
    assert told not in commands(KEPT, tmp_path).check({})


@pytest.mark.parametrize(("verb", "count"), [("create", 6), ("drop", 3)])
def test_the_first_command_dies_at_one_of_its_own_steps(verb: str, count: int):
    deaths = [next_death(Random(seed), verb, 3.0, at_a_step=1.0) for seed in range(100)]
    assert len({death.place for death in deaths}) == count
    assert all(death.place for death in deaths)
    assert next_death(Random(1), "repair", 3.0, at_a_step=1.0).place == "", "it has no steps"


@pytest.mark.parametrize("command", [CREATE, DROP, REPAIR])
def test_a_command_that_is_to_be_the_first_to_die_dies_whatever_it_is(tmp_path: Path, command: Command):
    tried = Scripted(REMADE, tmp_path, HANGS if command is REPAIR else DIED)
    tried._kill_first(command)
    assert tried.killed == {command.verb: 1}
    assert len(tried.ran) == 1


def test_the_index_that_is_kept_is_made_although_the_lock_is_held_at_first(tmp_path: Path):
    make(tmp_path, None, "")
    kept = Scripted(KEPT, tmp_path, LOCKED, LOCKED, DONE)
    kept._run()
    assert kept.failures == []
    assert kept.ran == [("create", "")] * 3
    assert kept.done == {"create": 1}
    assert kept.refused == {"the lock is held": 2}


def test_a_short_round_kills_its_first_command_although_the_lock_is_held_at_first(tmp_path: Path):
    """Killed at the step that was drawn, repeated, and made once more, since this table never gets it."""
    make(tmp_path, None, "")
    remade = Scripted(REMADE, tmp_path, LOCKED, LOCKED, DIED, DONE)
    remade._run()
    assert remade.failures == []
    assert remade.killed == {"create": 1}
    assert remade.done == {"create": 2}
    places = [place for _, place in remade.ran]
    assert places[0]
    assert places == [places[0]] * 3 + [""] * 2
    assert "no command of the secondary index was killed" not in remade.check({})


@pytest.mark.parametrize("most", [1, 2])
def test_a_round_that_is_to_be_short_kills_only_so_many_commands(tmp_path: Path, most: int):
    make(tmp_path, "ts", f",{INDEX}")
    answer = End(0, json.dumps({"missing": 0, "extra": 0, "anew": False}))
    deaths = []
    for kills in (most, math.inf):
        remade = Scripted(REMADE, tmp_path, DIED, DIED, answer, stop_at=60, kills=kills)
        remade._run()
        assert remade.failures == []
        deaths.append(sum(bool(place) for _, place in remade.ran))
    assert deaths[0] <= most < deaths[1]


def test_pauses_between_commands_are_as_long_as_the_round_says(tmp_path: Path):
    make(tmp_path, "ts", f",{INDEX}")
    answer = End(0, json.dumps({"missing": 0, "extra": 0, "anew": False}))
    took_s = []
    for rest in (0.0, 1.0, 4.0):
        remade = Scripted(REMADE, tmp_path, DIED, answer, stop_at=60, kills=1, rest=rest)
        remade._run()
        took_s.append(remade.clock.monotonic_s())
    commands_s, with_pauses_s, with_longer_ones_s = took_s
    assert with_pauses_s > commands_s
    longer_s = with_longer_ones_s - commands_s
    assert longer_s == pytest.approx(4 * (with_pauses_s - commands_s), rel=0.05)


def test_a_command_for_which_the_lock_is_held_for_ever_fails_the_round(tmp_path: Path):
    make(tmp_path, None, "")
    for kind in (KEPT, REMADE):
        tried = Scripted(kind, tmp_path, LOCKED)
        tried._run()
        (told,) = tried.failures
        assert "ends with 1" in told
        assert "the lock is held" in told
        assert tried.clock.monotonic_s() < COMMANDS_END_S


def test_a_command_that_hangs_fails_the_round(tmp_path: Path):
    make(tmp_path, None, "")
    kept, remade = Scripted(KEPT, tmp_path, HANGS_SAYING), Scripted(REMADE, tmp_path, HANGS_SAYING)
    for tried in (kept, remade):
        tried._run()
        (told,) = tried.failures
        assert "hangs" in told
        assert "reads rows" in told
        assert tried.clock.monotonic_s() == pytest.approx(HANGS_S, abs=1.0)
    assert "came to no after_secondary_" in remade.failures[0]
    assert not remade.killed, "a place to which it never comes is no death"


@pytest.mark.parametrize("abandon_at", [1, 2])
def test_a_round_that_is_given_up_finds_and_counts_nothing(tmp_path: Path, abandon_at: int):
    make(tmp_path, None, "")
    for kind in (KEPT, REMADE):
        tried = Scripted(kind, tmp_path, *[LOCKED] * (abandon_at - 1), HANGS, abandon_at=abandon_at)
        tried._run()
        assert tried.failures == []
        assert not tried.killed
        assert not tried.done
        assert len(tried.ran) == abandon_at


def test_a_command_dies_at_its_place_or_after_its_time_or_ends_before(tmp_path: Path):
    tried = Scripted(REMADE, tmp_path, DIED, HANGS, DONE, LOCKED, DONE)
    assert tried._die(CREATE, A_PLACE)
    assert tried._die(REPAIR, Death(after_s=2.0))
    assert tried.killed == {"create": 1, "repair": 1}
    assert tried.clock.monotonic_s() == pytest.approx(3.0, abs=0.5)
    assert tried._die(CREATE, A_PLACE), "it has ended with success"
    assert not tried._die(CREATE, A_PLACE)
    assert tried.refused == {"the lock is held": 1}
    assert tried.killed == {"create": 1, "repair": 1}
    assert [place for _, place in tried.ran] == [A_PLACE.place, "", A_PLACE.place, A_PLACE.place]


def test_a_repair_that_was_to_die_and_ends_before_is_judged_too(tmp_path: Path):
    wrong = End(0, json.dumps({"missing": 2, "extra": 0, "anew": False}))
    with pytest.raises(AssertionError, match="epochs left the secondary index wrong"):
        Scripted(REMADE, tmp_path, wrong)._die(REPAIR, Death(after_s=5.0))
    with pytest.raises(AssertionError, match="epochs left the secondary index wrong"):
        Scripted(REMADE, tmp_path, wrong)._whole(REPAIR)


def test_a_drop_behind_one_that_died_at_its_last_step_has_nothing_to_do(tmp_path: Path):
    dropped = Scripted(REMADE, tmp_path, DIED, End(1, "the table has no secondary index by_it"))
    assert dropped._die(DROP, Death("after_secondary_deleted"))
    assert dropped._die(DROP, Death("after_secondary_deleted"))
    dropped._whole(DROP)
    assert dropped.done == {"drop": 1}
    assert not dropped.refused


def test_the_round_waits_for_as_long_as_the_last_commands_may_take(tmp_path: Path):
    """Each try takes almost as long as a command may."""
    make(tmp_path, None, "")
    slow_s = HANGS_S - 1.0
    first = [End(1, after_s=slow_s), End(EXIT_CODE, after_s=slow_s)]
    others = [End(1, after_s=slow_s), End(0, after_s=slow_s)]
    remade = Scripted(REMADE, tmp_path, *first, *others, *others)
    remade._run()
    assert remade.failures == []
    assert remade.done == {"create": 2}
    assert 5 * slow_s < remade.clock.monotonic_s() < COMMANDS_END_S
