"""Which commands of the secondary index the kill campaign gives, and how it lets them die."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.chaos.index_commands import KEPT, NONE, REMADE, Command, IndexCommands, next_command, next_death
from tests.input_model import Row
from tidemark.hudi_format.metadata_table.secondary_creation import SecondaryFailpoint

INDEX = "secondary_index_by_it"


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
