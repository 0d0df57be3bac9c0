"""Whole worlds of a table that keeps a secondary index, or gets one that another engine or an operator builds
beside our epochs; and that they find what a simpler design would lose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.secondary import NAME
from tests.simulation.world.generate import generate
from tests.simulation.world.script import Script, parse
from tests.simulation.world.serviced import with_services
from tests.simulation.world.with_secondary import has_secondary
from tests.simulation.world.world import World, run_script, run_world
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.index_definitions import remove_index_definitions
from tidemark.hudi_format.metadata_table.index_creation import unlist_indexes
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SecondaryChanges
from tidemark.hudi_format.table_config import update_properties
from tidemark.stream_writer import secondary_task

OVER_OBJECTS = 2
WITH_SERVICES = 2
STEPS = 9
WRITES = 5
"""The step that begins the deltacommit of the metadata table."""
KILLED_AT = ("1 hoodie.properties", "1 index_defs", "1 beat", "2 lock", "5 storage.list", "3 storage.read")
BUILD = ("foreign", "build")
# The first commit.
BEGUN = """
setup {setup} shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
round
feed up k0 d0 1
feed up k1 d1 2
hurry
round
round
round
round
round
round
"""
# An epoch of what was fed is planned, written and not decided.
WRITTEN = """hurry
step shuffler-0
step assigner-0
wait 300
step coordinator
step writer
"""
# Then the index is defined; its builder dies behind so many steps, or finishes; then there are epochs of ours
# and commits of the other engine.
BUILT = f"""{BEGUN}feed up k0 d0 5
feed up k3 d1 5
{WRITTEN}foreign build begin
round
{{steps}}
round
round
foreign build {{end}}
round
round
wait 2500
feed long k9
feed up k2 d0 6
feed del k1 7
foreign update k0
foreign delete k3
hurry
round
round
round
"""

# An epoch is written when an operator's command begins, which may be killed; then there are more.
COMMANDED = f"""{BEGUN}{{before}}
feed up k2 d1 5
{WRITTEN}index {{command}}
round
feed up k0 d1 7
feed del k1 8
hurry
round
round
round
round
"""

# The other engine restores the table: its own commits go, and with them the index. An epoch of ours is
# planned, written and not decided by then.
RESTORED = f"""{BEGUN}{{before}}
feed up k2 d0 5
{WRITTEN}foreign restore
round
round
{{behind}}
feed up k0 d0 7
feed del k1 8
hurry
round
round
round
round
round
"""
# The savepoint is from before the index was made.
OLDER = """foreign savepoint
foreign insert d0
foreign build begin
foreign build finish
foreign update k0"""


def restored(setup: str, behind: str, before: str = "") -> Script:
    return parse(RESTORED.format(setup=setup, before=before, behind=behind))


def with_index(script: Script, store: str = "folders") -> Script:
    return replace(script, setup=replace(script.setup, secondary=True, store=store))


def built(steps: int, end: str, setup: str = "type=mor") -> Script:
    return parse(BUILT.format(setup=setup, steps="foreign build next\n" * (steps - 1), end=end))


def test_every_guarantee_holds_over_a_store_of_objects() -> None:
    outcome = run_script(with_index(generate(OVER_OBJECTS), "objects"))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["entry of a secondary index"]


def test_every_guarantee_holds_beside_services() -> None:
    outcome = run_script(with_index(with_services(WITH_SERVICES)))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["entry of a secondary index"]


@pytest.mark.parametrize("setup", ["type=mor", "type=cow", "type=mor store=objects"])
def test_an_index_that_another_engine_builds_has_all_rows(setup: str) -> None:
    outcome = run_script(built(1, "finish", setup))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["entry of a secondary index"]
    assert outcome.reached["value too long for the index"]
    assert outcome.epochs > 1


@pytest.mark.parametrize("steps", range(1, STEPS))
def test_what_a_builder_left_that_died_is_taken_out(steps: int) -> None:
    """It is whole when the table names it no more as being built: then it stays. What it left pending on the
    timelines goes with the index.
    """
    world = World(built(steps, "die"))
    outcome = run_world(world)
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    is_whole = steps == STEPS - 1
    building = world.foreign.building
    assert building.died_writing == building.rolled_back == (steps == WRITES), "its next write ends that"
    assert bool(pending_builds(world)) is is_whole
    assert bool(outcome.reached.get("waits until an index is taken out")) is not is_whole
    assert bool(outcome.reached.get("entry of a secondary index")) is is_whole
    assert outcome.epochs > 1


@pytest.mark.parametrize("steps", [WRITES, STEPS - 1])
def test_services_end_what_a_dead_builder_left_of_an_index_that_nobody_misses(steps: int) -> None:
    """Of one that is whole its indexing instant. Of the other somebody dropped the definition: no epoch waits
    for it.
    """
    text = built(steps, "die", "type=mor services=yes").text()
    text = text.replace("foreign build begin", "round\n" * 6 + "foreign build begin")
    world = World(parse(text + "\nwait 3605000\n" + "round\n" * 12))
    die = world.foreign.building.act

    def die_and_drop(look: Look, what: str) -> None:
        die(look, what)
        if what == "die" and steps == WRITES:
            remove_index_definitions(world.storage, [NAME])
            update_properties(world.storage, {}, [keys.METADATA_PARTITIONS_INFLIGHT])

    world.foreign._build = die_and_drop
    outcome = run_world(world)
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert "waits until an index is taken out" not in outcome.reached
    assert world.foreign.done["build"] == steps + 1
    assert pending_builds(world) == []


def pending_builds(world: World) -> list[str]:
    """Names of instants of builds that are pending, on either timeline."""
    names = [path.rpartition("/")[2] for path in world.storage.paths() if "/timeline/" in path]
    of_builds = [name for name in names if ".indexing" in name or name.startswith("0" * 14)]
    done = {name.partition("_")[0] for name in of_builds if "_" in name}
    return [name for name in of_builds if name.partition(".")[0].partition("_")[0] not in done]


def test_what_a_dead_indexer_left_of_another_kind_is_taken_out_too() -> None:
    """While Spark builds a secondary index beside it, which stays."""
    text = built(1, "finish").text().replace("foreign build begin", "foreign leave-build column_stats\n{}")
    outcome = run_script(parse(text.format("foreign build begin")))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["waits until an index is taken out"]
    assert outcome.reached["entry of a secondary index"]
    assert outcome.epochs > 1


@pytest.mark.parametrize("type_", ["mor", "cow"])
@pytest.mark.parametrize(("setup", "before"), [("secondary=yes", ""), ("", OLDER)])
def test_what_a_restore_dropped_and_nobody_builds_is_taken_out(type_: str, setup: str, before: str) -> None:
    outcome = run_script(restored(f"type={type_} {setup}", "", before))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["foreign restore"]
    assert outcome.reached["waits until an index is taken out"]
    assert outcome.reached["our commit after a foreign restore"]
    assert "index built anew" not in outcome.reached


@pytest.mark.parametrize("type_", ["mor", "cow"])
@pytest.mark.parametrize(("setup", "before"), [("secondary=yes", ""), ("", OLDER)])
def test_what_a_restore_dropped_has_all_rows_when_a_write_built_it(
    type_: str, setup: str, before: str
) -> None:
    outcome = run_script(restored(f"type={type_} {setup}", "foreign update k0", before))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["index built anew"]
    assert outcome.reached["our commit after a foreign restore"]
    assert "waits until an index is taken out" not in outcome.reached


def test_a_second_builder_goes_on_where_the_first_one_died() -> None:
    again = ["wait 3605000", "round", "round", "round", "foreign build begin", "foreign build finish"]
    first = built(5, "die").text() + "\n".join([*again, "feed up k4 d2 9", "hurry", "round", "round"])
    outcome = run_script(parse(first))
    assert outcome.violations == (), "\n".join(outcome.log[-20:])
    assert outcome.reached["entry of a secondary index"]


def commanded(command: str, setup: str = "type=mor") -> Script:
    """All but the first command find an index that another one made."""
    before = "" if command.startswith("create") else "index create"
    return parse(COMMANDED.format(setup=setup, before=before, command=command))


@pytest.mark.parametrize("setup", ["type=mor nullable=yes", "type=cow"])
def test_an_operator_makes_repairs_and_drops_an_index_beside_epochs(setup: str) -> None:
    for command in ("create", "repair", "drop"):
        outcome = run_script(commanded(command, setup))
        assert outcome.violations == (), "\n".join(outcome.log[-20:])
        assert outcome.reached[f"index {command} is done"]
        assert outcome.reached["entry of a secondary index"]
        assert ("null in a secondary index" in outcome.reached) == ("nullable" in setup)
        assert outcome.epochs > 1


@pytest.mark.parametrize("place", KILLED_AT)
def test_a_command_that_is_killed_leaves_the_index_whole_or_none(place: str) -> None:
    for command in ("create", "drop"):
        outcome = run_script(commanded(f"{command} {place}"))
        assert outcome.violations == (), "\n".join(outcome.log[-20:])
        assert outcome.reached[f"index {command} is killed"], command
        assert outcome.epochs > 1


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda storage: unlist_indexes(storage, [NAME]), "is whole is taken out"),
        (lambda storage: remove_index_definitions(storage, [NAME]), "is listed, and is not defined"),
    ],
    ids=["unlisted", "undefined"],
)
def test_an_index_that_goes_without_a_command_of_an_operator_is_noticed(
    harm: Callable[[Any], None], said: str
) -> None:
    world = World(parse(BEGUN.format(setup="secondary=yes")))
    with world.edges.in_place(world.setup):
        for event in world.script.events:
            world.apply(event)
            world._happened()
        assert world.judge.indexes.indexed == "ts"
        harm(world.storage)
        for actor in world._actors():
            actor.process.kill()
    assert said in world.judge.violations[0]


def test_random_worlds_have_builders_and_commands_that_die_and_that_finish() -> None:
    """As many as with column stats; and indexes of columns with nulls."""
    scripts = [generate(seed) for seed in range(5_000, 5_200) if has_secondary(seed)]
    ends = Counter(event[2] for script in scripts for event in script.events if event[:2] == BUILD)
    assert min(ends["die"], ends["finish"], sum(script.setup.secondary for script in scripts)) > 0
    commands = [event for script in scripts for event in script.events if event[0] == "index"]
    for command in ("create", "repair", "drop"):
        killed = [len(event) > 2 for event in commands if event[1] == command]
        assert {True, False} <= set(killed), command
    assert 0 < sum(script.setup.nullable for script in scripts) < len(scripts)


def test_a_delete_that_beats_a_put_loses_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counterexamples 3 and 4 of the design: a row that comes back, or moves, with the value that it had."""
    real = secondary_task.reduced

    def delete_first(parts: Sequence[pa.Table]) -> SecondaryChanges:
        entries = pa.concat_tables(parts).combine_chunks()
        keys, is_put = entries.column("key").combine_chunks(), entries.column("is_put").combine_chunks()
        deletes = keys.filter(pc.invert(is_put)).unique()
        puts = real(parts).puts
        return SecondaryChanges(puts.filter(pc.invert(pc.is_in(puts, value_set=deletes))), deletes)

    monkeypatch.setattr(secondary_task, "reduced", delete_first)
    script = with_index(generate(1))
    outcome = run_script(script.of(event for event in script.events if event[0] != "foreign"))
    assert any("the secondary index lacks" in violation for violation in outcome.violations)
