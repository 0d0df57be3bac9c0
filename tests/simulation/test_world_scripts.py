"""Scripts that once found a defect, shrunk; and that a script is what its text says."""

from __future__ import annotations

import logging

import pytest

from tests.simulation.reached_states import CHUNKS, REACHED, REQUIRED, ReachedStates
from tests.simulation.world.checkers import judge as judge_module
from tests.simulation.world.checkers.model import replayed
from tests.simulation.world.generate import generate
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script
from tidemark.commit_coordinator.commit import attempt_effects
from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.table_state import Rollbacks
from tidemark.index_assigner.index.shown_timeline import ShownTimeline

ROLLBACK_CUT = """
# Who died in a rollback of its own was taken for another writer by every successor.
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
round
feed up k1 d0 5
round
fail-job
round
round
crash coordinator 1 storage.delete d0
round
round
round
round
"""

# What another engine left was cleared away; then power failed, and its lock was there again: the coordinator
# waits for it and says so, until somebody removes it once more.
LOCK_COMES_BACK = """
setup type=cow shards=2 lanes=2 assigners=1 uncommitted=1000 interval_ms=0
step coordinator
foreign half d2
foreign undo
feed up k1 d1 24
machine-crash 0
round
round
round
round
round
round
"""

# A coordinator sleeps between its two listings, of data and metadata timeline; its successor ends the epoch
# and makes the next. What it then sees is half old and half new, and was called another writer's doing.
SLEPT_WHILE_LISTING = """
setup type=cow shufflers=1 assigners=1 interval_ms=50 trim=1 ids=1023
feed up k1 d1 15
round
round
round
round
feed up k0 d1 16
round
round
round
freeze coordinator 6
round
replace coordinator
round
round
round
round
round
"""

# k4's delete was tagged before a rewind. After it comes an epoch of the upsert before it: the delete's
# tombstone counts no more than its tag does.
EARLY_DELETE = """
setup lanes=1 records=3 trim=1 ids=567
feed up k4 d2 11
feed up k3 d2 12
feed null k5
feed null k3
feed up k0 d0 14
feed del k0 15
round
round
round
feed up k0 d1 22
feed del k3 23
round
foreign insert d0
feed del k4 31
"""

# An epoch is requested before a compaction and completes after it; then its instant is archived, and the
# compaction's is all that the timeline has. The epoch's log file stays in the newer slice, and an assigner
# that opens its lane then waits for no newer commit. (The waits: until then the lock is left to others.)
ARCHIVED_AFTER_A_COMPACTION = """
setup ordered=no shards=3 assigners=1 records=3 uncommitted=6 interval_ms=0 ids=876
feed up k0 d2 15
feed up k3 d0 26
feed up k1 d2 35
feed up k1 d2 35
wait 400
round
wait 400
round
wait 400
round
wait 400
round
wait 400
round
wait 400
round
wait 400
round
wait 400
round
feed up k2 d2 41
feed up k5 d1 43
feed up k5 d1 43
wait 400
round
wait 400
step coordinator
foreign compact
wait 400
round
wait 400
round
wait 400
step coordinator
foreign compact-index clean
foreign archive
kill assigner-0
feed up k3 d2 50
"""

# Another engine rolls back an attempt that is being written, in a table that has no commit yet, and commits.
# What the writer still publishes lies before the timeline's start, as if it had been archived, until the
# coordinator notices.
ROLLED_BACK_BEFORE_THE_FIRST_COMMIT = """
setup type=mor ordered=no shards=3 lanes=2 inputs=2 shufflers=1 assigners=2 interval_ms=300 ids=1464
feed up k2 d1 19
round
round
feed up k0 d0 20
round
round
round
round
round
step coordinator
foreign rollback
foreign insert d0
"""

# A writer sleeps between its markers and its files. Another engine rolls the attempt back and takes the
# markers along; then the writer makes its file, of which nobody has a note any more.
FILE_AFTER_ITS_MARKERS_ARE_GONE = """
setup type=cow shards=2 lanes=2 inputs=1 assigners=1 records=3 uncommitted=6 interval_ms=300 ids=371
round
freeze writer 3 storage.publish
feed up k0 d1 37
round
round
round
round
round
foreign rollback
"""


ROLLED_BACK_BY_A_CLOCK_THAT_IS_BEHIND = """
setup type=cow shards=3 lanes=2 inputs=1 shufflers=1 assigners=1 records=3 interval_ms=300 trim=0 ids=4004827
step coordinator
jump -5000
round
freeze writer 3 storage.publish
feed up k4 d2 22
round
round
round
round
round
foreign rollback
"""
"""The writer's file comes after the rollback, whose time lies before our instant."""


@pytest.mark.parametrize("text", [ROLLBACK_CUT], ids=["rollback cut"])
def test_a_script_that_once_failed_keeps_every_guarantee(text: str) -> None:
    outcome = run_script(parse(text))
    assert outcome.violations == ()
    assert any("is gone at" in line for line in outcome.log), "the script does not reach its cut any more"


def test_a_lock_that_comes_back_with_a_crash_is_waited_for_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "tidemark.coordinator"):
        outcome = run_script(parse(LOCK_COMES_BACK))
    assert outcome.violations == ()
    assert outcome.epochs == 1
    said = [each for each in caplog.messages if "/.hoodie/lock is held by another writer" in each]
    assert len(said) == 1, "said once, and not once a try"
    assert "If it is dead, delete it" in said[0]


def test_a_coordinator_that_slept_while_it_listed_is_superseded_and_blames_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_script(parse(SLEPT_WHILE_LISTING)).violations == ()
    monkeypatch.setattr(DecisionsLog, "check_term", lambda log: None)
    found = run_script(parse(SLEPT_WHILE_LISTING)).violations
    assert found, "the script does not reach its sleep any more"
    assert "DivergedError" in found[0], found[0]


def test_a_row_below_a_delete_of_before_a_rewind_is_there_until_the_delete_is_tagged_again() -> None:
    assert run_script(parse(EARLY_DELETE)).violations == ()


def test_rows_of_another_engine_are_part_of_the_replay_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome = run_script(parse(ROLLED_BACK_BEFORE_THE_FIRST_COMMIT))
    assert outcome.violations == ()
    monkeypatch.setattr(judge_module, "replayed", lambda changes, _, *asked: replayed(changes, (), *asked))
    found = run_script(parse(ROLLED_BACK_BEFORE_THE_FIRST_COMMIT)).violations
    assert [text for text in found if text.startswith("G1: at rest")], found


def test_what_was_rolled_back_by_another_engine_is_gone_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt_effects, "_roll_back", lambda *_: None)
    found = run_script(parse(ROLLED_BACK_BEFORE_THE_FIRST_COMMIT)).violations
    assert any("G5: orphans" in text for text in found), found


@pytest.mark.parametrize("text", [FILE_AFTER_ITS_MARKERS_ARE_GONE, ROLLED_BACK_BY_A_CLOCK_THAT_IS_BEHIND])
def test_a_file_that_is_made_after_another_engine_took_its_markers_goes_too(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_script(parse(text)).violations == ()
    monkeypatch.setattr(Rollbacks, "naming", lambda *_: None)
    found = run_script(parse(text)).violations
    assert found, "the script does not reach its file any more"
    assert "G5: orphans" in found[0], found[0]


def test_an_epoch_that_completed_after_a_compaction_and_was_archived_keeps_its_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_script(parse(ARCHIVED_AFTER_A_COMPACTION)).violations == ()
    # It reaches the case: whoever takes what is not active for undone opens no lane, and ends.
    monkeypatch.setattr(ShownTimeline, "shows", _is_active)
    found = run_script(parse(ARCHIVED_AFTER_A_COMPACTION)).violations
    assert found
    assert found[0].startswith("G7: assigner-0#1 ends without a cause: SnapshotBehindError"), found[0]


def _is_active(shown: ShownTimeline, instant: str | None) -> bool:
    return instant is None or shown.timeline.contains(instant)


def test_a_script_read_from_its_text_runs_as_the_seed_does() -> None:
    script = generate(11)
    first, second = run_script(script), run_script(parse(script.text()))
    assert first == second


# An assigner slept while it opened its lanes; its successor's commits were trimmed behind them.
SLEPT_WHILE_IT_WAS_TRIMMED = """
setup inputs=1 records=3 interval_ms=300 trim=2 ids=715
round
step assigner-0
step assigner-0
foreign half d0
thaw assigner-0
round
foreign undo
feed del k0 31
feed bad
step coordinator
round
step coordinator
round
step assigner-0
feed del k2 32
feed del k3 42
feed up k4 d0 43
freeze assigner-1 1 storage.list
round
round
replace assigner-1
round
round
zombie assigner-1
step assigner-1
round
kill coordinator
round
feed up k2 d0 59
round
round
feed up k0 d1 60
round
round
crash assigner-1 2
round
round
round
round
feed up k5 d0 53
round
round
round
round
round
round
round
round
round
round
feed null k3
round
round
round
round
round
round
"""


def test_an_assigner_that_slept_while_its_lanes_were_trimmed_has_lost_nothing() -> None:
    """It learns from the ledger that they are another's: nobody is told to begin a new ledger."""
    assert run_script(parse(SLEPT_WHILE_IT_WAS_TRIMMED)).violations == ()


def test_equal_worlds_reach_equal_states() -> None:
    states = ReachedStates()
    reached = run_script(generate(1)).reached
    assert reached
    for _ in CHUNKS:
        assert states.missing() == []
        states.note([("other", 1), (REACHED, dict(reached))])
    assert {state: count * len(CHUNKS) for state, count in reached.items()} == states.counts
    assert states.missing() == sorted(REQUIRED - reached.keys())
