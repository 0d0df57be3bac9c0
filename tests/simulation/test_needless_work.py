"""G7: nobody rewinds, gives an attempt up, ends or dies more often than a world has causes for. Every row is
right all the same: only this judge tells.
"""

from __future__ import annotations

from collections import Counter

import pytest

from commit_coordinator import members
from commit_coordinator.attempt_desk import AttemptDesk
from commit_coordinator.context import Report
from commit_coordinator.domain.next_action import AttemptProblem
from epoch_protocol import committing
from stream_runtime.kafka.errors import KafkaError
from tests.simulation.world import world as world_module
from tests.simulation.world.actors import StageActor
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

NOBODY_ASKED = """
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
feed up k1 d0 5
round
round
rewind-wish
round
"""


def test_a_rewind_that_the_script_has_no_cause_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_script(parse(NOBODY_ASKED)).violations == ()
    monkeypatch.setattr(world_module, "_REWINDING", frozenset())
    found = run_script(parse(NOBODY_ASKED)).violations
    assert found == ("G7: 1 rewinds, the script has 0 causes",)


_ROUNDS = 6 * "round\n"
SOME_EPOCHS = "setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0\n" + "".join(
    f"feed up k{n} d0 5\nhurry\n{_ROUNDS}" for n in range(5)
)


def test_own_commits_that_are_taken_for_foreign_ones_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row is right all the same: the rewinds alone tell. What moves nothing is no cause."""
    busy = f"{SOME_EPOCHS}foreign compact\nforeign clean commits 1\nforeign archive\nforeign savepoint\n"
    for script in (SOME_EPOCHS, busy):
        assert run_script(parse(script)).violations == ()
    monkeypatch.setattr(committing, "name_of", lambda *_: "20250101000000000_20250101000000001.commit")
    for script in (SOME_EPOCHS, busy):
        found = run_script(parse(script)).violations
        assert found, "no rewind"
        assert all(text.startswith("G7: ") for text in found), found
        assert found[0].endswith("the script has 0 causes"), found


def test_processes_that_end_again_and_again_without_a_cause_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert run_script(parse(SOME_EPOCHS)).violations == ()
    step, steps = StageActor.step, Counter[str]()

    def tired(self: StageActor) -> None:
        steps[self.process.name] += 1
        if steps[self.process.name] == 9:
            raise KafkaError("it had enough")
        step(self)

    monkeypatch.setattr(StageActor, "step", tired)
    found = run_script(parse(SOME_EPOCHS)).violations
    assert found
    assert found[0].endswith("processes ended, the script has cause for 0"), found


def test_attempts_that_are_given_up_without_a_cause_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_script(parse(SOME_EPOCHS)).violations == ()
    report = AttemptDesk.report

    def first_in_vain(desk: AttemptDesk, epoch: int, attempt: int, instant: str, written: Report) -> bool:
        if attempt == 1:
            return desk.fail(epoch, attempt, instant, AttemptProblem("no reason", rewind=False))
        return report(desk, epoch, attempt, instant, written)

    monkeypatch.setattr(AttemptDesk, "report", first_in_vain)
    found = run_script(parse(SOME_EPOCHS)).violations
    assert len(found) == 1
    assert found[0].endswith("attempts are void, the script has 0 causes"), found


def test_readers_that_die_again_and_again_of_a_record_that_is_known_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two are enough to know. Here three are waited for; the third is one too many."""
    deadly = "setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0\nround\nfeed deadly k0\n"
    assert run_script(parse(deadly)).violations == ()
    monkeypatch.setattr(members, "is_suspect", lambda known, position: known.deaths >= 3)
    found = run_script(parse(deadly)).violations
    assert found == ("G7: 3 readers of in[0] at 0 died, the script has 0 causes",)
