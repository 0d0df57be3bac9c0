"""The coordinator's next action: one case for each rule, and the order in which rules bind."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tests.unit.epoch_protocol.builders import keyed, shuffled, tagged
from tidemark.commit_coordinator.domain.actions import (
    CleanVoided,
    CloseEmpty,
    Decide,
    Finish,
    FreeLock,
    NextAction,
    OpenAttempt,
    Plan,
    RewindLanes,
    VoidAttempt,
    Wait,
)
from tidemark.commit_coordinator.domain.next_action import (
    HOLD_LOCK_AFTER_ATTEMPTS,
    SETTLE_MS_MAX,
    AttemptProblem,
    AwaitedPlan,
    Limits,
    Observed,
    attempts_exhausted,
    choose_through,
    has_rows,
    next_action,
    rest_s,
)
from tidemark.epoch_protocol.entries import CommitDecided, EpochPlanned
from tidemark.epoch_protocol.state import CountedShuffle, CountedTagged, FoldState, LaneState, VoidedAttempt

LIMITS = Limits(interval_ms=1_000, bytes_max=1_000, attempts_max=4)
NOW = 1_000_000
PLANNED = EpochPlanned(
    term=0, epoch=1, attempt=1, generation=0, through=9, instant="20260101000000000", as_of="0", schema="",
    planned_ms=0,
)  # fmt: skip
DECIDED = CommitDecided(0, 1, 1, "m", "d", "path", "sha", 0)
VOIDED = VoidedAttempt(1, 1, "20260101000000000")
PROBLEM = AttemptProblem("disk full", rewind=False)
THIS = (1, 1)
OTHER = (1, 7)


def counted(*offsets: int, rows: int = 1) -> list[CountedTagged]:
    return [CountedTagged(o, tagged({"0": (o, o + 1)}, {"0": 0}, rows=rows)) for o in offsets]


def chosen(state: FoldState, seen: Observed) -> NextAction:
    return next_action(state, seen, LIMITS, NOW)


def test_a_planned_attempt_goes_from_opened_to_reported_to_decided_to_finished() -> None:
    state, seen = FoldState(planned=PLANNED), Observed()
    assert chosen(state, seen) == OpenAttempt(PLANNED)
    seen.opened = THIS
    assert isinstance(chosen(state, seen), Wait)
    seen.reported = THIS
    assert chosen(state, seen) == Decide(PLANNED)
    state.decided = DECIDED
    assert chosen(state, seen) == Finish(PLANNED, DECIDED)


def test_what_was_seen_of_another_attempt_says_nothing_about_this_one() -> None:
    state = FoldState(planned=PLANNED)
    seen = Observed(opened=OTHER, reported=OTHER, problem=(OTHER, PROBLEM))
    assert chosen(state, seen) == OpenAttempt(PLANNED)
    seen.opened = THIS
    assert isinstance(chosen(state, seen), Wait)


def test_a_problem_voids_before_anything_else_is_done_with_the_attempt() -> None:
    for opened, reported in itertools.product([None, THIS], [None, THIS]):
        seen = Observed(opened=opened, reported=reported, problem=(THIS, PROBLEM))
        assert chosen(FoldState(planned=PLANNED), seen) == VoidAttempt(PLANNED, "disk full", False)


def test_an_epoch_without_rows_is_closed() -> None:
    empty = EpochPlanned(0, 1, 1, 0, 9, None, "0", "", 0)
    assert chosen(FoldState(planned=empty), Observed()) == CloseEmpty(empty)


def test_precedence_over_all_states() -> None:
    """Finish > planned attempt > clean > halted > rewind > plan, whatever else is the case."""
    ranks: list[type[NextAction] | tuple[type[NextAction], ...]] = [
        Finish,
        (OpenAttempt, Decide, VoidAttempt, Wait),
        CleanVoided,
        Wait,
        RewindLanes,
        Plan,
    ]
    for decided, planned, dirty, halted, due in itertools.product([True, False], repeat=5):
        state = FoldState(
            planned=PLANNED if planned else None,
            decided=DECIDED if decided and planned else None,
            voided=[VOIDED] if dirty else [],
            tagged=counted(3),
        )
        seen = Observed(halted="x" if halted else None, rewind_due="y" if due else None)
        rank = [decided and planned, planned, dirty, halted, due, True].index(True)
        assert isinstance(chosen(state, seen), ranks[rank])


@pytest.mark.parametrize(
    ("doing", "state", "expected"),
    [
        (Wait("nothing new counts"), FoldState(), 5.0),
        (Wait("not due", until_ms=NOW + 1_500), FoldState(), 1.5),
        (Wait("not due", until_ms=NOW + 60_000), FoldState(), 5.0),
        (Wait("was due", until_ms=NOW - 1), FoldState(), 0.0),
        (Wait("the writer has not reported"), FoldState(planned=PLANNED), 0.02),
        (FreeLock(), FoldState(), 0.0),
        (OpenAttempt(PLANNED), FoldState(planned=PLANNED), 0.0),
    ],
)
def test_nothing_is_done_until_something_arrives_or_is_due(
    doing: NextAction, state: FoldState, expected: float
) -> None:
    assert rest_s(doing, state, 5.0, NOW) == expected
    assert rest_s(doing, state, 0.0, NOW) == 0.0


def test_a_void_attempt_that_is_not_settled_is_asked_again_at_its_time() -> None:
    other = VoidedAttempt(1, 2, "20260101000000001")
    state, seen = FoldState(voided=[VOIDED, other], tagged=counted(3)), Observed(rewind_due="another writer")
    seen.cleaned_up([VOIDED, other], {VOIDED: NOW + 900})
    waits = chosen(state, seen)
    assert isinstance(waits, Wait)
    assert (waits.until_ms, seen.cleaned) == (NOW + 900, {other})
    assert "attempt 1 is void" in waits.reason
    assert next_action(state, seen, LIMITS, NOW + 900) == CleanVoided((VOIDED,))
    seen.cleaned_up([VOIDED], {})
    assert (seen.cleaned, seen.unsettled) == ({VOIDED, other}, {})
    assert chosen(state, seen) == RewindLanes("another writer")


def test_a_clock_that_was_set_back_does_not_keep_a_void_attempt_for_ever() -> None:
    seen = Observed(unsettled={VOIDED: NOW + SETTLE_MS_MAX + 1})
    assert chosen(FoldState(voided=[VOIDED]), seen) == CleanVoided((VOIDED,))


def test_voided_attempts_are_cleaned_once_in_a_life() -> None:
    state, seen = FoldState(voided=[VOIDED]), Observed()
    assert chosen(state, seen) == CleanVoided((VOIDED,))
    seen.cleaned.add(VOIDED)
    assert isinstance(chosen(state, seen), Wait)
    seen.rewind_due = "another writer"
    assert chosen(state, seen) == RewindLanes("another writer")


def test_a_plan_waits_for_its_interval_unless_it_is_full() -> None:
    state, seen = FoldState(tagged=counted(3)), Observed(planned_at_ms=NOW - 400)
    assert chosen(state, seen) == Wait("the next epoch is not due", until_ms=NOW + 600)
    state.tagged = counted(*range(10))
    assert isinstance(chosen(state, seen), Plan)
    state.tagged = counted(3)
    assert isinstance(chosen(state, replace(seen, planned_at_ms=0)), Plan)


def test_a_plan_that_had_to_wait_for_something_waits_for_no_interval_behind_it() -> None:
    state, seen = FoldState(tagged=counted(3)), Observed(planned_at_ms=NOW)
    seen.awaited = AwaitedPlan("by_city", "a command makes by_city", look_at_ms=NOW + 200)
    limits = replace(LIMITS, interval_ms=60_000)
    assert next_action(state, seen, limits, NOW) == Wait("a command makes by_city", until_ms=NOW + 200)
    assert isinstance(next_action(state, seen, limits, NOW + 200), Plan)


@pytest.mark.parametrize(("rows", "worth"), [(3, False), (4, True), (100, True)])
def test_a_plan_waits_a_little_for_much_that_is_shuffled_and_not_tagged(rows: int, worth: bool) -> None:
    limits = replace(LIMITS, gather_ms=300)
    lanes = {"0": LaneState(next=2), "1": LaneState(next=7)}
    waiting = CountedShuffle(2, shuffled("in:0", 0, rows, 0, [keyed(0, 2, rows + 1), keyed(1, 0, 6)]))
    state = FoldState(tagged=counted(3, rows=16), shuffled=[waiting], assign_lanes=lanes)
    seen = Observed(counts_since_ms=NOW - 100)
    found = next_action(state, seen, limits, NOW)
    assert isinstance(found, Wait) is worth
    assert not worth or found == Wait("more of the same input is being tagged", until_ms=NOW + 200)
    # Not for ever, not when the epoch is full, and not once it is tagged.
    assert isinstance(next_action(state, seen, limits, NOW + 200), Plan)
    assert isinstance(next_action(state, seen, replace(limits, bytes_max=100), NOW), Plan)
    lanes["0"].next = rows + 2
    assert isinstance(next_action(state, seen, limits, NOW), Plan)


def test_a_plan_names_epoch_attempt_and_whether_the_lock_is_held() -> None:
    for attempts in range(6):
        plan = chosen(FoldState(tagged=counted(3, 5), attempts=attempts), Observed())
        assert plan == Plan(1, attempts + 1, 5, True, hold_lock=attempts >= HOLD_LOCK_AFTER_ATTEMPTS)


def test_transactions_without_rows_are_planned_as_such() -> None:
    plan = chosen(FoldState(tagged=counted(3, rows=0)), Observed())
    assert isinstance(plan, Plan)
    assert not plan.has_rows
    assert not has_rows([])


@pytest.mark.parametrize(
    ("sizes", "bytes_max", "through"),
    [(3, 1_000, 2), (3, 200, 1), (3, 250, 1), (3, 100, 0), (3, 1, 0), (0, 100, None)],
)
def test_an_epoch_takes_as_many_transactions_as_fit_and_at_least_one(
    sizes: int, bytes_max: int, through: int | None
) -> None:
    assert choose_through(FoldState(tagged=counted(*range(sizes))), bytes_max) == through


def test_an_epoch_that_fails_again_and_again_is_planned_smaller() -> None:
    seen, throughs = Observed(), []
    for _ in range(6):
        plan = chosen(FoldState(tagged=counted(*range(8))), seen)
        assert isinstance(plan, Plan)
        throughs.append(plan.through)
        seen.failures += 1
    assert throughs == [7, 7, 3, 1, 0, 0]
    seen.succeeded()
    plan = chosen(FoldState(tagged=counted(*range(8))), seen)
    assert isinstance(plan, Plan)
    assert plan.through == 7


def test_dead_letters_alone_move_the_input_on_and_untagged_input_does_not() -> None:
    only_dead = CountedShuffle(4, shuffled("in:0", 0, 3, 0, [], dead_letters=3))
    assert choose_through(FoldState(shuffled=[only_dead]), 100) == 4
    waiting = CountedShuffle(4, shuffled("in:0", 0, 3, 0, [keyed(0, 0, 2)]))
    assert choose_through(FoldState(shuffled=[waiting]), 100) is None


def test_attempts_are_exhausted_per_life_and_per_epoch() -> None:
    state = FoldState(attempts=4)
    assert "4 attempts" in (attempts_exhausted(state, Observed(), LIMITS) or "")
    assert attempts_exhausted(state, Observed(tried_before=(0, 4)), LIMITS) is None
    assert attempts_exhausted(FoldState(attempts=7), Observed(tried_before=(0, 4)), LIMITS) is None
    assert attempts_exhausted(FoldState(attempts=8), Observed(tried_before=(0, 4)), LIMITS)
    # What was tried before was another epoch.
    assert attempts_exhausted(FoldState(attempts=4), Observed(tried_before=(7, 4)), LIMITS)
    assert attempts_exhausted(FoldState(attempts=4, planned=PLANNED), Observed(), LIMITS) is None


@pytest.mark.parametrize("rewind", [True, False])
def test_a_decision_that_cannot_be_carried_out_is_taken_back_and_no_other_one(rewind: bool) -> None:
    state, problem = FoldState(planned=PLANNED, decided=DECIDED), AttemptProblem("rolled back", rewind)
    assert chosen(state, Observed(taken_back=("d", problem))) == VoidAttempt(
        PLANNED, "rolled back", rewind, revokes="d"
    )
    # One that was superseded since is finished; so is one whose writer reports a problem too late.
    assert chosen(state, Observed(taken_back=("c", problem))) == Finish(PLANNED, DECIDED)
    assert chosen(state, Observed(problem=(THIS, PROBLEM))) == Finish(PLANNED, DECIDED)


def test_an_attempt_that_failed_is_followed_by_a_wait_that_says_why() -> None:
    state, seen = FoldState(tagged=counted(3), attempts=1), Observed(last_problem="disk full")
    seen.failed(replace(LIMITS, retry_ms=500), NOW - 100)
    waits = chosen(state, seen)
    assert waits == Wait("epoch 1 failed 1 times, it is tried again: disk full", until_ms=NOW + 400)
    assert isinstance(next_action(state, seen, LIMITS, NOW + 400), Plan)
    seen.succeeded()
    assert isinstance(chosen(state, seen), Plan)
