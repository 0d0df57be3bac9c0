"""G7: nobody rewinds, gives an attempt up, ends or dies more often than a world has causes for. Every row is
right all the same: only this judge tells.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.simulation.world.actors import CoordinatorActor, StageActor
from tests.simulation.world.checkers.needless_work import NeedlessWork
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script
from tidemark.commit_coordinator.calls import members
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.domain.next_action import AttemptProblem
from tidemark.epoch_protocol import committing
from tidemark.stream_runtime.kafka.errors import KafkaError

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
    monkeypatch.setattr(NeedlessWork, "wished", lambda _: None)
    found = run_script(parse(NOBODY_ASKED)).violations
    assert found == ("G7: rewind 1 has no cause: an assigner asks for it",)


_ROUNDS = 6 * "round\n"
# The lock of the one that died behind its decision is deleted before the successor takes it over.
SLIPPED_LOCK = f"""
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
feed up k1 d0 5
hurry
crash coordinator 1 after_commit_decided
{_ROUNDS}
step coordinator
lose-lock
"""


@pytest.mark.parametrize("what", ["plan-compact-index", "compact-index"])
def test_a_compaction_beside_a_decided_epoch_has_it_planned_again_and_nothing_tagged_anew(
    what: str,
) -> None:
    outcome = run_script(parse(f"{SLIPPED_LOCK}foreign {what}\n"))
    assert outcome.violations == ()
    assert outcome.reached["void"] == 1
    assert "rewind" not in outcome.reached


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
        assert found[0].startswith("G7: rewind 1 has no cause: another writer"), found


@pytest.mark.parametrize("actor", [StageActor, CoordinatorActor])
def test_a_process_that_ends_without_a_cause_is_found(
    actor: type[StageActor] | type[CoordinatorActor], monkeypatch: pytest.MonkeyPatch
) -> None:
    step, steps = actor.step, 0

    def tired(self: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 9:
            raise KafkaError("it had enough")
        step(self)

    monkeypatch.setattr(actor, "step", tired)
    found = run_script(parse(SOME_EPOCHS)).violations
    assert len(found) == 1
    assert found[0].endswith("#0 ends without a cause: KafkaError: it had enough"), found
    steps = 0
    away = SOME_EPOCHS.replace("hurry", "round\nbroker down\nbroker up", 1)
    assert run_script(parse(away)).violations == (), "the broker was away"


BESIDE = {
    "nothing": "",
    "faults of an assigner": "crash assigner-0 1\nend-fault assign-0 LOST_REQUEST\nround\nround\n",
    "what ends no attempt": "foreign savepoint\nforeign compact-index\n",
    "a job that failed before": "fail-job\nfeed up k2 d0 60\nhurry\n" + _ROUNDS + 5 * "wait 1000\nround\n",
    "a claim before": "kill coordinator\nround\nround\n",
    "another engine's commit before": f"foreign insert d1\n{_ROUNDS}{_ROUNDS}",
}


@pytest.mark.parametrize("beside", BESIDE)
def test_one_attempt_that_is_given_up_without_a_cause_of_its_own_is_found(
    beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = parse(f"{SOME_EPOCHS}{BESIDE[beside]}feed up k3 d0 70\nhurry\n{_ROUNDS}")
    without = run_script(script)
    assert without.violations == ()
    report, last = AttemptHandoff.report, without.epochs

    def last_in_vain(
        attempts: AttemptHandoff, epoch: int, attempt: int, instant: str, written: Report
    ) -> bool:
        if (epoch, attempt) == (last, 1):
            return attempts.fail(epoch, attempt, instant, AttemptProblem("no reason", rewind=False))
        return report(attempts, epoch, attempt, instant, written)

    monkeypatch.setattr(AttemptHandoff, "report", last_in_vain)
    found = run_script(script).violations
    assert found == (f"G7: epoch {last} attempt 1 is given up without a cause: no reason",)


FOREIGN = "20250101000000001_20250101000000002"
CLUSTERING = "20250101000000003"


class Decisions:
    """A ledger of decisions, entry by entry; ``said``: what is needless of it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.names: list[str] = []
        self.work = NeedlessWork(lambda _, text: self.said.append(text), lambda: self.names)
        self._offset = self._generation = self._attempt = self.term = 0
        self.term = self.add({"type": "coordinator_claimed"})

    def add(self, *entries: dict[str, Any]) -> int:
        """One transaction; its end takes an offset, too. Returns the offset of its first entry."""
        first = self._offset
        for entry in entries:
            self.work.decided(self._offset, {"term": self.term, **entry})
            self._offset += 1
        self._offset += 1
        return first

    def plan(self) -> None:
        self._attempt += 1
        self.add({"type": "epoch_planned", "epoch": 1, "attempt": self._attempt, "instant": "9"})

    def void(self) -> dict[str, Any]:
        return {"type": "attempt_voided", "epoch": 1, "attempt": self._attempt, "reason": "so"}

    def rewind(self) -> dict[str, Any]:
        self._generation += 1
        return {"type": "rewound", "generation": self._generation, "reason": "so"}

    def seen(self, *names: str) -> dict[str, Any]:
        return {"type": "timeline_seen", "added": list(names)}

    def foreign(self, word: str) -> str:
        self.names.append(f"{FOREIGN}.{word}")
        self.work.foreign_completed(self.names[-1])
        return self.names[-1]


def test_what_another_engine_completes_excuses_the_attempt_that_is_open_and_one_rewind() -> None:
    log = Decisions()
    log.plan()
    name = log.foreign("deltacommit")
    log.add(log.void(), log.rewind(), log.seen(name))
    log.plan()
    assert log.said == []
    log.add(log.void(), log.rewind())
    log.plan()
    assert log.said == ["epoch 1 attempt 2 is given up without a cause: so", "rewind 2 has no cause: so"]


def test_a_broker_that_is_away_excuses_the_attempt_that_is_open() -> None:
    log = Decisions()
    log.work.broker(is_down=True)
    log.plan()
    log.work.broker(is_down=False)
    log.add(log.void())
    log.plan()
    assert log.said == []
    log.add(log.void())
    log.plan()
    assert log.said == ["epoch 1 attempt 2 is given up without a cause: so"]


def test_a_clean_excuses_an_attempt_and_no_rewind_and_a_compaction_moves_nothing() -> None:
    log = Decisions()
    log.plan()
    log.foreign("clean")
    log.add(log.void())
    log.names.append(f"{FOREIGN[:17]}.compaction.requested")
    log.foreign("commit")
    assert log.said == []
    log.add(log.rewind())
    assert log.said == ["rewind 1 has no cause: so"]


def test_a_compaction_that_is_archived_before_anybody_looked_is_taken_for_a_commit() -> None:
    """The history has no word of its own for it (ADR 0005); what was seen before is no cause."""
    log = Decisions()
    for seen in (True, False):
        log.names.append(f"{FOREIGN[:17]}.compaction.requested")
        name = log.foreign("commit")
        if seen:
            log.add(log.seen(name))
        log.names.clear()
        log.add(log.rewind(), *(() if seen else [log.seen(name)]))
    assert log.said == ["rewind 1 has no cause: so"]
    log.add(log.rewind())
    assert log.said[1:] == ["rewind 3 has no cause: so"]


ARCHIVED_UNSEEN = f"""
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
{_ROUNDS}feed up k1 d0 5
hurry
{_ROUNDS}feed up k1 d0 6
hurry
{_ROUNDS}foreign plan-compaction
feed up k1 d0 7
hurry
{_ROUNDS}feed up k1 d0 8
hurry
{_ROUNDS}foreign run-compaction
foreign compact-index
foreign archive 1
feed up k1 d0 9
hurry
{_ROUNDS}
"""


def test_a_compaction_that_is_archived_before_anybody_looked_rewinds_nothing() -> None:
    """Its archived row says that it was a compaction."""
    outcome = run_script(parse(ARCHIVED_UNSEEN))
    assert outcome.violations == ()
    assert "rewind" not in outcome.reached


_OPENED = "step coordinator\nwait 200\nstep assigner-1\n"
THAWED = f"""
setup shards=1 lanes=1 inputs=1 assigners=2 interval_ms=0 trim=1
round
round
feed up k0 d0 5
hurry
{_ROUNDS}feed up k0 d0 6
step shuffler-0
step shuffler-0
step assigner-0
step assigner-0
kill assigner-0
wait 12000
freeze assigner-1 1 range_reader
{12 * _OPENED}{_ROUNDS}wait 12000
{2 * _ROUNDS}feed up k0 d0 7
{2 * _ROUNDS}feed up k0 d0 8
{2 * _ROUNDS}thaw assigner-1
{_ROUNDS}
"""


def test_who_was_frozen_while_what_it_opens_was_committed_and_deleted_rewinds_nothing() -> None:
    """It opens a lane with what is uncommitted then. Meanwhile that is committed, and deleted."""
    outcome = run_script(parse(THAWED))
    assert outcome.violations == ()
    assert any("assigner-1#0 is frozen at range_reader" in line for line in outcome.log)
    assert "rewind" not in outcome.reached


ROLLED_BACK = f"""
setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0
round
round
feed up k5 d2 14
jump -5000
round
round
round
step coordinator
step coordinator
wait 300
step coordinator
kill coordinator
foreign rollback
{2 * _ROUNDS}
"""


def test_an_instant_that_another_engine_rolled_back_is_not_planned_again() -> None:
    """Our clock was set back, and nothing on the timelines is as late as that instant was. Chosen again
    it would be rolled back already: the attempt is void before it begins.
    """
    outcome = run_script(parse(ROLLED_BACK))
    assert outcome.violations == ()
    assert (outcome.reached["foreign rollback"], outcome.reached["void"], outcome.epochs) == (1, 1, 1)


def test_a_rewind_whose_transaction_was_torn_is_made_again() -> None:
    log = Decisions()
    name = log.foreign("replacecommit")
    log.add(log.rewind())
    log.add(log.rewind(), log.seen(name))
    assert log.said == []
    log.add(log.rewind())
    assert log.said == ["rewind 3 has no cause: so"]


def test_a_pending_clustering_excuses_one_attempt_of_an_epoch_and_one_that_is_tagged_anew() -> None:
    log = Decisions()
    log.names.append(f"{CLUSTERING}.clustering.requested")
    log.plan()
    log.add(log.void(), log.rewind())
    log.plan()
    log.add(log.void())
    log.plan()
    assert log.said == []
    log.add(log.void())
    log.plan()
    assert log.said == ["epoch 1 attempt 3 is given up without a cause: so"]


def test_a_process_ends_for_the_claim_of_another_one_an_outage_or_a_fault_that_is_aimed_at_it() -> None:
    log = Decisions()
    for name in ("coordinator#0", "assigner-0#0", "shuffler-0#0", "writer#0"):
        log.work.begins(name, name.partition("#")[0].partition("-")[0])
    log.work.ends("coordinator#0", "coordinator", log.term, "why")
    log.work.aimed_at("assigner")
    log.work.ends("assigner-0#0", "assigner", None, "why")
    log.work.ends("shuffler-0#0", "shuffler", None, "why")
    assert [each.partition(" ")[0] for each in log.said] == ["coordinator#0", "shuffler-0#0"]
    former, log.term = log.term, log.add({"type": "coordinator_claimed"})
    log.work.ends("coordinator#0", "coordinator", former, "why")
    log.work.broker(is_down=True)
    log.work.ends("writer#0", "writer", None, "why")
    assert len(log.said) == 2


def test_readers_that_die_again_and_again_of_a_record_that_is_known_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two are enough to know. Here three are waited for; the third is one too many."""
    deadly = "setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0\nround\nfeed deadly k0\n"
    assert run_script(parse(deadly)).violations == ()
    monkeypatch.setattr(members, "is_suspect", lambda known, position: known.deaths >= 3)
    found = run_script(parse(deadly)).violations
    assert found == ("G7: 3 readers of in[0] at 0 died, the script has 0 causes",)
