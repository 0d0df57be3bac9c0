"""Another engine's table services that are planned, begun by a process that dies, taken back and carried out
by another one, with our commits in between; and restores. Afterwards our inserts, updates and deletes go on.
"""

from __future__ import annotations

import pytest

from tests.simulation.test_foreign_engine import BEGIN, GO_ON, PLANNED, SECOND, TYPES, must_hold, played

UNDO = "foreign undo\nrounds 12"

INDEX = {
    "planned": f"foreign plan-compact-index\n{GO_ON}\nforeign compact-index clean",
    "begun": f"foreign fail-compact-index\n{SECOND}\nforeign compact-index clean",
    "begun between our plan and our write": f"{PLANNED}\nforeign fail-compact-index\nrounds 12",
    "begun twice": "foreign fail-compact-index\nforeign fail-compact-index\nforeign compact-index",
    "taken back": f"foreign fail-compact-index\n{SECOND}\nforeign rollback-service index\n{PLANNED}\n"
    "rounds 12\nforeign compact-index",
    "carried out by its next write": f"foreign fail-compact-index\n{SECOND}\nforeign insert d2",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", INDEX)
def test_a_compaction_of_the_metadata_table(name: str, kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, INDEX[name], GO_ON))


CLUSTERING = {
    "begun": "foreign fail-clustering d1\nforeign run-clustering",
    "begun beside our commit": f"foreign fail-clustering d2\n{SECOND}\nforeign run-clustering",
    "taken back": f"foreign fail-clustering d2\n{SECOND}\nforeign rollback-service clustering\n{SECOND}\n"
    "foreign run-clustering",
    "dead between its commits": f"foreign fail-clustering d2 metadata\nrounds 3\n{UNDO}\n"
    "foreign run-clustering",
    "dead twice": f"foreign fail-clustering d2\nforeign fail-clustering d2 metadata\nrounds 3\n{UNDO}\n"
    "foreign rollback-service clustering\nforeign run-clustering",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CLUSTERING)
def test_a_clustering(name: str, kind: str) -> None:
    must_hold(played(f"type={kind}", BEGIN, "foreign insert d2", CLUSTERING[name], GO_ON))


COMPACTION = {
    "begun": f"foreign fail-compaction\n{SECOND}\nforeign run-compaction",
    "begun between our plan and our write": f"{PLANNED}\nforeign fail-compaction\nrounds 12",
    "taken back": f"foreign fail-compaction\n{SECOND}\nforeign rollback-service compaction\n{SECOND}\n"
    "foreign run-compaction",
    "dead between its commits": f"foreign fail-compaction metadata\nrounds 3\n{UNDO}\n{SECOND}\n"
    "foreign run-compaction",
    "dead twice": f"foreign fail-compaction\n{SECOND}\nforeign fail-compaction metadata\nrounds 3\n{UNDO}\n"
    "foreign run-compaction",
}


@pytest.mark.parametrize("name", COMPACTION)
def test_a_compaction(name: str) -> None:
    must_hold(played("type=mor", BEGIN, SECOND, COMPACTION[name], GO_ON))


# The clock of who carries a plan out is ahead of the plan and behind a compaction of the metadata table.
BEHIND = "wait 10000\nforeign compact-index\nforeign clock -5000"
LISTED = {
    "compaction": ("mor", f"foreign plan-compaction\n{BEHIND}\nforeign run-compaction"),
    "compaction that is planned behind it, too": ("mor", f"{BEHIND}\nforeign compact"),
    "compaction that dies": ("mor", f"{BEHIND}\nforeign fail-compaction metadata"),
    "clean": ("mor", f"foreign compact\nforeign plan-clean versions 1\n{BEHIND}\nforeign run-clean"),
    "clean of base files": ("cow", f"foreign plan-clean versions 1\n{BEHIND}\nforeign run-clean"),
    "clustering": ("mor", f"foreign plan-clustering d0\n{BEHIND}\nforeign run-clustering"),
}


@pytest.mark.parametrize("name", LISTED)
def test_what_the_metadata_table_would_not_list_is_left_out(name: str) -> None:
    """Such an entry of `files` lies in a slice that nobody reads: Hudi would lose it without us. At rest
    another one carries the plan out.
    """
    kind, script = LISTED[name]
    outcome = played(f"type={kind}", BEGIN, SECOND, script, GO_ON)
    assert outcome.violations == ()
    assert any("it does not" in line for line in outcome.log), "the entry would be listed"


RESTORE = {
    "at once": "foreign restore",
    "in an attempt": f"{PLANNED}\nforeign restore\nrounds 12",
    "above a compaction of the metadata table": "foreign compact-index clean\nforeign restore",
    "over a compaction of the metadata table": "foreign savepoint\nforeign insert d0\nforeign compact-index\n"
    "foreign insert d1\nforeign restore",
    "over a clean": "foreign savepoint\nforeign update k0\nforeign clean commits 1\nforeign restore",
    "twice": f"foreign restore\n{SECOND}\nforeign restore",
    "of a clock that is behind": "foreign clock -5000\nforeign restore\nforeign clock 0",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", RESTORE)
def test_a_restore(name: str, kind: str) -> None:
    outcome = played(f"type={kind}", BEGIN, SECOND, RESTORE[name], GO_ON)
    assert outcome.violations == ()
    assert outcome.reached["foreign restore"] >= 1
    assert outcome.reached["our commit after a foreign restore"]


# Its commit completes before ours that made the record index: a restore to it would take that back.
BELOW_THE_INDEX = "round\nforeign clock -5000\nforeign insert d1"
RESTORE_BELOW = {
    "the engine's newest commit": "foreign restore",
    "a savepoint": "foreign savepoint\nforeign clock 0\nforeign insert d1\nforeign restore",
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", RESTORE_BELOW)
def test_no_restore_takes_the_making_of_the_record_index_back(name: str, kind: str) -> None:
    """Hudi's would: of three shards those stay that the savepointed commit wrote to. The engine restores to a
    commit after it instead.
    """
    outcome = played(f"type={kind} shards=3", BELOW_THE_INDEX, RESTORE_BELOW[name], "foreign clock 0", GO_ON)
    assert outcome.violations == ()
    assert outcome.reached["foreign restore"] == 1
    assert outcome.reached["our commit after a foreign restore"]


@pytest.mark.parametrize("kind", TYPES)
def test_a_clean_that_is_planned_before_our_commit_and_done_after_it(kind: str) -> None:
    rewritten = "foreign compact" if kind == "mor" else "foreign update k0"
    cleaned = "foreign plan-clean versions 1", SECOND, "foreign run-clean"
    must_hold(played(f"type={kind}", BEGIN, SECOND, rewritten, *cleaned, GO_ON))


@pytest.mark.parametrize("kind", TYPES)
def test_a_pending_write_whose_writer_died_is_rolled_back_by_its_markers(kind: str) -> None:
    died = "foreign begin update k0", SECOND, "foreign die", "foreign undo"
    outcome = played(f"type={kind}", BEGIN, *died, GO_ON)
    must_hold(outcome)
    assert outcome.reached["rollback of its own pending write"] == 1


@pytest.mark.parametrize("kind", TYPES)
def test_a_heartbeat_that_a_crash_of_the_machine_brings_back_keeps_no_dead_write(kind: str) -> None:
    died = "foreign begin fresh d0", "foreign die", "machine-crash 0", "foreign undo"
    outcome = played(f"type={kind}", BEGIN, *died, GO_ON)
    must_hold(outcome)
    assert outcome.reached["rollback of its own pending write"] == 1


@pytest.mark.parametrize("kind", TYPES)
def test_two_writes_to_the_key_of_a_write_that_was_in_flight(kind: str) -> None:
    """The word `f` is the key f1: both writes change its file group, and the second to complete has lost."""
    fresh = (
        "foreign begin fresh d0\nforeign finish\nforeign begin move f d1\nforeign update f\nforeign finish"
    )
    outcome = played(f"type={kind}", BEGIN, fresh, GO_ON)
    assert outcome.violations == ()
    assert outcome.reached["foreign update"] == 1
    assert outcome.reached["lost to a commit"] == 1


def test_no_archival_shows_rows_again_whose_file_a_savepoint_kept_from_the_clean() -> None:
    """Hudi would archive the replacecommit: a clean that counts versions no longer holds it back."""
    kept = "foreign savepoint\nforeign overwrite d0\nforeign update k2\nforeign clean versions 1"
    archived = "foreign delete-savepoints\nforeign update k2\nforeign compact-index clean\nforeign update k2"
    outcome = played("type=cow", BEGIN, SECOND, kept, archived, "foreign archive 1", GO_ON)
    assert outcome.violations == ()
    assert "    it does not: it would show replaced file groups again" in outcome.log
