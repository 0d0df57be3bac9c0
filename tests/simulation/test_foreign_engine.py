"""What another engine may do to the table beside us, an operation at a time: afterwards our inserts, updates
and deletes go on, and the judge holds rows, index and readers.

In a script `rounds N` stands for N times `round`. The table has k0 and k1 in d0 and k2 in d1 when the other
engine begins; the key that it inserts first is k4.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.script import Script, parse
from tests.simulation.world.world import Outcome, run_script
from tidemark.commit_coordinator.bootstrap import CoordinatorService

TYPES = ("mor", "cow")
BEGIN = """
rounds 7
feed up k0 d0 5
feed up k1 d0 6
feed up k2 d1 7
hurry
rounds 7
"""
SECOND = """
feed up k0 d0 10
feed del k1 11
feed up k5 d0 12
hurry
rounds 7
"""
# Updates, a move, deletes, keys that are new, and what the engine inserted.
GO_ON = """
feed up k0 d0 1040
feed up k1 d1 1041
feed null k2
feed up k3 d0 1042
feed up k4 d0 1043
feed up k5 d2 1044
hurry
rounds 7
feed del k0 1050
feed up k4 d1 1051
hurry
rounds 7
"""
# Tagged and planned; the writer has not begun.
PLANNED = """
feed up k0 d0 20
feed up k3 d0 21
hurry
step shuffler-0
step shuffler-0
step assigner-0
step assigner-1
step assigner-0
step assigner-1
step coordinator
step coordinator
"""


def played(setup: str, *parts: str) -> Outcome:
    """Runs the parts as one script."""
    return run_script(script_of(setup, *parts))


def script_of(setup: str, *parts: str) -> Script:
    """The parts, one after the other."""
    lines: list[str] = []
    for line in "\n".join(parts).splitlines():
        word, _, count = line.partition(" ")
        lines += ["round"] * int(count) if word == "rounds" else [line]
    return parse("\n".join([f"setup {setup}", *lines]))


def must_hold(outcome: Outcome) -> None:
    """Every operation of the engine was done, and nothing is wrong."""
    left_out = [line for line in outcome.log if "it does not" in line]
    assert left_out == [], "the script does not do what it is for any more"
    assert outcome.violations == ()


# A new base file of what has old ones.
REWRITTEN = "\n{a new base file}\n"

ONCE = {
    "insert": "foreign insert d0",
    "insert into a file group of ours": "foreign insert-into d0",
    "update": "foreign update k0",
    "delete": "foreign delete k0",
    "move": "foreign move k0 d1",
    "delete and insert": "foreign delete k0\nforeign insert d0\nforeign insert d1",
    "in flight over our commit": "foreign begin update k0\nfeed up k2 d1 12\nhurry\nrounds 7\nforeign finish",
    "rolled back pending": "foreign begin fresh d0\nforeign rollback",
    "clean by commits": f"{SECOND}{REWRITTEN}foreign insert d2\nforeign clean commits 1",
    "clean by versions": f"{SECOND}{REWRITTEN}foreign clean versions 1",
    "clean by time": f"{SECOND}{REWRITTEN}wait 5000\nforeign insert d2\nforeign clean time 1",
    "archive": f"{SECOND}{SECOND}\nforeign compact-index\nforeign insert d1\nforeign archive",
    "savepoint and clean": f"{SECOND}{REWRITTEN}foreign savepoint\n{SECOND}\nforeign update k5\n{REWRITTEN}"
    "foreign clean versions 1\nforeign delete-savepoints\nforeign clean versions 1",
}


@pytest.mark.parametrize("ordered", ["yes", "no"])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ONCE)
def test_we_go_on_after_what_another_engine_did(name: str, kind: str, ordered: str) -> None:
    rewritten = "foreign compact" if kind == "mor" else "foreign update k0"
    must_hold(
        played(
            f"type={kind} ordered={ordered}", BEGIN, ONCE[name].replace(REWRITTEN, f"\n{rewritten}\n"), GO_ON
        )
    )


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("what", ["update k0", "insert-into d0", "delete k0", "move k0 d1", "insert d0"])
def test_another_engine_commits_between_our_plan_and_our_write(what: str, kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, PLANNED, f"foreign {what}", "rounds 7", GO_ON))


def test_a_write_in_flight_that_loses_to_our_commit_is_rolled_back() -> None:
    begun = "foreign begin update k0\nfeed up k0 d0 12\nhurry\nrounds 7\nforeign finish\nforeign undo"
    outcome = played("type=cow", BEGIN, begun, GO_ON)
    assert outcome.violations == ()
    assert any("changed the same file groups" in line for line in outcome.log)


@pytest.mark.parametrize("when", ["before our plan", "after our plan"])
def test_a_compaction_that_is_planned_and_done_around_our_commit(when: str) -> None:
    plan = "foreign plan-compaction"
    parts = (plan, PLANNED) if when == "before our plan" else (PLANNED, plan)
    must_hold(played("type=mor", BEGIN, SECOND, *parts, "rounds 7", GO_ON, "foreign run-compaction", SECOND))


def test_compaction_and_clean_between_our_plan_and_our_write() -> None:
    done = "foreign compact\nforeign clean versions 1\nrounds 7"
    must_hold(played("type=mor", BEGIN, SECOND, PLANNED, done, GO_ON))


# ---------------------------------------------------------------- a clock of its own

BEHIND = "foreign clock -400\nforeign insert d0"
AHEAD_ONCE = """
foreign clock 600000
foreign empty
feed up k0 d0 10
hurry
rounds 7
foreign clock 0
foreign insert d0
"""


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("clock", [BEHIND, AHEAD_ONCE], ids=["behind", "ahead once"])
def test_a_commit_below_what_we_handled_is_noticed(clock: str, kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, clock, "feed up k4 d1 30\nhurry\nrounds 7", GO_ON))


# ---------------------------------------------------------------- what is taken back, or replaced

# Its lanes are opened, and k4 is tagged, with the commit in sight; planned is after it is gone.
OPENED_AT_ITS_COMMIT = """
lose-disk assigner-0
lose-disk assigner-1
wait 3500
foreign insert d0
feed up k4 d0 3000
rounds 20
foreign rollback-own
hurry
rounds 7
"""


@pytest.mark.parametrize("kind", TYPES)
def test_a_completed_commit_is_rolled_back_after_we_tagged_with_it(kind: str) -> None:
    must_hold(played(f"type={kind} interval_ms=600000", BEGIN, OPENED_AT_ITS_COMMIT, GO_ON))


REPLACES = {
    "clustering": "foreign cluster d0",
    "insert_overwrite": "foreign overwrite d0",
    "delete_partition": "foreign drop d0",
    "delete_partition and clean": "foreign drop d0\nforeign clean versions 1",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", REPLACES)
def test_inserts_after_file_groups_were_replaced_are_seen(name: str, kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, REPLACES[name], GO_ON))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", REPLACES)
def test_file_groups_are_replaced_between_our_plan_and_our_write(name: str, kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, PLANNED, REPLACES[name], "rounds 7", GO_ON))


@pytest.mark.parametrize("kind", TYPES)
def test_a_clustering_that_is_planned_before_our_commit_and_done_after_it(kind: str) -> None:
    planned = "foreign plan-clustering d0"
    outcome = played(f"type={kind}", BEGIN, planned, GO_ON, "foreign run-clustering", SECOND)
    assert outcome.violations == ()


# ---------------------------------------------------------------- a column that was added

COLUMN = "foreign column k0\nfeed up k1 d0 30\nhurry\nrounds 7"


def test_a_column_that_another_engine_added_stays_in_log_files() -> None:
    must_hold(played("type=mor", BEGIN, COLUMN, GO_ON))


def test_a_column_that_another_engine_added_stays_in_rewritten_files() -> None:
    must_hold(played("type=cow", BEGIN, COLUMN, GO_ON))


# ---------------------------------------------------------------- a restore

RESTORED = """
foreign savepoint
foreign insert d0
foreign update k0
foreign restore
"""


@pytest.mark.parametrize("kind", TYPES)
def test_a_restore_to_a_savepoint_of_our_newest_commit(kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, RESTORED, GO_ON))


@pytest.mark.parametrize("kind", TYPES)
def test_the_record_index_is_compacted_after_a_restore(kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, RESTORED, "foreign compact-index", GO_ON))


@pytest.mark.parametrize("kind", TYPES)
def test_a_coordinator_starts_after_what_a_restore_kept_was_archived(kind: str) -> None:
    archived = "foreign delete-savepoints\nforeign insert d1\nforeign compact-index\nforeign archive\n"
    restarted = "kill coordinator\nrounds 3"
    must_hold(played(f"type={kind}", BEGIN, RESTORED, archived, restarted, GO_ON))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("what", ["update k0", "fresh d2"])
def test_a_restore_takes_the_files_of_a_write_in_flight_along(what: str, kind: str) -> None:
    in_flight = f"foreign savepoint\nforeign begin {what}\nforeign insert d0\nforeign restore\n"
    must_hold(played(f"type={kind}", BEGIN, in_flight, GO_ON))


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_is_added_where_readers_look_for_it_alone(kind: str) -> None:
    behind = "foreign clock 5000\nforeign insert d2\nforeign clock 0\n"
    outcome = played(f"type={kind}", BEGIN, f"{behind}foreign column k0\nforeign begin fresh d0", GO_ON)
    assert outcome.violations == ()
    assert "    it does not: its clock is behind a commit that lacks the column" in outcome.log
    must_hold(played(f"type={kind}", BEGIN, f"{behind}wait 6000\nforeign column k0", GO_ON))


# ---------------------------------------------------------------- we start beside a write in flight

# In d1, where what is in flight changes no file group.
ELSEWHERE = "feed up k2 d1 30\nfeed up k5 d1 31\nhurry\nrounds 12"
RESTARTS = {
    "killed": "kill coordinator",
    "replaced, and not dead": "replace coordinator",
    "killed with an attempt open": PLANNED.replace("k0 d0", "k2 d1").replace("k3 d0", "k3 d1")
    + "kill coordinator",
    "killed with an epoch decided": f"crash coordinator 1 after_commit_decided\n{ELSEWHERE}",
    "killed between its two commits": f"crash coordinator 1 after_metadata_commit\n{ELSEWHERE}",
    "all services killed": "kill coordinator\nkill shuffler-0\nkill assigner-0\nkill assigner-1\nkill writer",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("what", ["update k0", "fresh d0"])
@pytest.mark.parametrize("how", RESTARTS)
def test_a_coordinator_starts_again_beside_a_write_in_flight(
    how: str, what: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts, commits go on, and then the other engine completes what it has begun."""
    restarted = f"foreign begin {what}", RESTARTS[how], "rounds 7", ELSEWHERE, "foreign finish", "rounds 7"
    outcome = played(f"type={kind}", BEGIN, *restarted, GO_ON)
    must_hold(outcome)
    assert outcome.reached["foreign finish over our commit"] == 1
    # One that asks for pending writes as at its first start does not start.
    monkeypatch.setattr(CoordinatorService, "_has_begun", lambda _: False)
    found = played(f"type={kind}", BEGIN, *restarted, GO_ON).violations
    assert found, "no coordinator starts beside the write any more"
    assert "ends with UnsupportedTableError: another writer's" in found[0], found[0]
