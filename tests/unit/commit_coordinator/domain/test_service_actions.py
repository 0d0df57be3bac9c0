"""Which step of a service is next, and that services and epochs leave each other their turns."""

from __future__ import annotations

import msgspec
import pytest

from tidemark.commit_coordinator.domain.actions import Finish, NextAction, OpenAttempt, Plan, Wait
from tidemark.commit_coordinator.domain.next_action import Limits, Observed, next_action
from tidemark.commit_coordinator.domain.service_actions import (
    ATTEMPT_MS,
    RETRY_MS_MAX,
    CompleteService,
    DecideService,
    OfferService,
    PlanService,
    SeenServices,
    SweepService,
    VoidService,
    pause_ms,
)
from tidemark.epoch_protocol.entries import (
    CommitDecided,
    Counts,
    EpochPlanned,
    Produced,
    Topic,
    TransactionTagged,
)
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.state import CountedTagged, FoldState

NOW = 1_000_000
T = "20260101000000000"
MERGE, TIDY = ServiceKind.COMPACT_DATA, ServiceKind.ARCHIVE
EPOCH = EpochPlanned(0, 1, 1, 0, 9, T, "0", "", 0)
DECIDED_EPOCH = CommitDecided(0, 1, 1, "2", "3", "p", "s", 0)


def planned(number: int = 1, kind: ServiceKind = MERGE) -> ServicePlanned:
    return ServicePlanned(0, number, kind, T, "p", "s", 0)


def decided(number: int = 1) -> ServiceDecided:
    return ServiceDecided(0, number, "2", "3", "p", "s", 0)


def world(*services: OpenService, due: bool = False) -> tuple[FoldState, Observed]:
    """``due``: an epoch is to be planned."""
    state = FoldState(services={each.planned.kind: each for each in services})
    state.next_service = len(services) + 1
    if due:
        entry = TransactionTagged(0, "n", 0, {}, [], [], Counts(input=1), 10, "x")
        state.tagged = [CountedTagged(5, entry)]
    seen = Observed(services=SeenServices(tasks=[MERGE], locked_sweeps=[TIDY]))
    return state, seen


def following(state: FoldState, seen: Observed, now_ms: int = NOW) -> NextAction:
    return next_action(state, seen, Limits(0, 1 << 20, 8), now_ms)


def test_an_action_with_tasks_goes_from_its_offer_to_its_sweep() -> None:
    state, seen = world(OpenService(planned()))
    assert following(state, seen) == OfferService(planned())
    seen.services.action(1).offered = True
    assert isinstance(following(state, seen), Wait)
    seen.services.action(1).reported = True
    seen.services.action(1).decide_at_ms = NOW + 1
    assert isinstance(following(state, seen), Wait)
    assert following(state, seen, NOW + 1) == DecideService(planned())
    state.services[MERGE] = OpenService(planned(), decided())
    assert following(state, seen) == CompleteService(planned(), decided())
    seen.services.action(1).completed = True
    assert following(state, seen) == SweepService(planned(), decided())


def test_an_action_without_tasks_is_decided_at_once() -> None:
    state, seen = world(OpenService(planned(1, TIDY)))
    assert following(state, seen) == DecideService(planned(1, TIDY))


def test_a_lost_action_is_void_whether_or_not_it_was_decided() -> None:
    state, seen = world(OpenService(planned()))
    seen.services.action(1).lost = "why"
    assert following(state, seen) == VoidService(planned(), "why")
    state.services[MERGE] = OpenService(planned(), decided())
    assert following(state, seen) == VoidService(planned(), "why", decided())


def test_of_the_kinds_that_are_due_those_without_an_open_action_are_planned_in_turn() -> None:
    state, seen = world(OpenService(planned(1, TIDY), decided(1)))
    seen.services.action(1).completed = True
    seen.services.due = {TIDY: "many", MERGE: "large"}
    seen.services.action(1).retry_at_ms = NOW + 1
    assert following(state, seen) == PlanService(MERGE, 2, "large")
    seen.services.kind(MERGE).not_before_ms = NOW + 1
    assert isinstance(following(state, seen), Wait)


def test_decided_epochs_go_first_then_decided_services_then_other_steps_of_epochs() -> None:
    state, seen = world(OpenService(planned(), decided()))
    state.planned = EPOCH
    assert isinstance(following(state, seen), CompleteService)
    state.decided = DECIDED_EPOCH
    assert following(state, seen) == Finish(EPOCH, DECIDED_EPOCH)


def test_a_planned_epoch_goes_first_and_while_its_writer_writes_services_go_on() -> None:
    state, seen = world(OpenService(planned(1, TIDY)))
    state.planned = EPOCH
    assert following(state, seen) == OpenAttempt(EPOCH)
    seen.opened = (1, 1)
    assert following(state, seen) == DecideService(planned(1, TIDY))
    seen.reported = (1, 1)
    assert type(following(state, seen)).__name__ == "Decide"


def test_an_epoch_that_is_due_leaves_services_one_step_and_they_leave_it_the_next() -> None:
    state, seen = world(due=True)
    seen.services.due = {TIDY: "many"}
    assert isinstance(following(state, seen), PlanService)
    seen.services.had_turn = True
    assert isinstance(following(state, seen), Plan)


def test_a_compaction_of_data_is_planned_between_two_epochs_and_beside_one_that_takes_long() -> None:
    state, seen = world(due=True)
    seen.services.due = {MERGE: "large", ServiceKind.COMPACT_INDEX: "large"}
    state.planned, seen.opened = msgspec.structs.replace(EPOCH, planned_ms=NOW), (1, 1)
    assert following(state, seen) == PlanService(ServiceKind.COMPACT_INDEX, 1, "large")
    seen.services.due = {MERGE: "large"}
    assert isinstance(following(state, seen), Wait)
    assert isinstance(following(state, seen, NOW + ATTEMPT_MS - 1), Wait)
    assert isinstance(following(state, seen, NOW + ATTEMPT_MS), PlanService), "perhaps no writer comes"
    assert isinstance(following(state, seen, NOW - 1), PlanService), "the clock was set back"
    state.planned, seen.services.had_turn = None, True
    assert following(state, seen) == PlanService(MERGE, 1, "large"), (
        "the epoch that is due has an attempt next"
    )
    seen.services.kind_failed(MERGE, "disk full", NOW)
    assert isinstance(following(state, seen), Plan), "it fails, and the epoch waits for no second try"


@pytest.mark.parametrize("why", ["kept", "left"])
def test_a_compaction_of_data_before_an_epoch_waits_for_its_turn_at_the_lock(why: str) -> None:
    state, seen = world(due=True)
    seen.services.due, seen.services.had_turn = {MERGE: "large"}, True
    seen.services.lock_kept = why == "kept"
    seen.others_until_ms = NOW + 1 if why == "left" else 0
    assert isinstance(following(state, seen), Plan), "it has no rows, and takes no lock"


def test_a_commit_that_failed_waits_and_epochs_go_on_meanwhile() -> None:
    state, seen = world(OpenService(planned(), decided()), due=True)
    seen.services.step_failed(1, "disk full", NOW)
    assert isinstance(following(state, seen), Plan)
    assert following(state, seen, NOW + pause_ms(1)) == CompleteService(planned(), decided())


@pytest.mark.parametrize("halted", [None, "halted"])
def test_while_the_lock_is_kept_for_an_epoch_no_service_uses_it(halted: str | None) -> None:
    state, seen = world(OpenService(planned(1, TIDY)), OpenService(planned(2), decided(2)))
    seen.halted = halted
    seen.services.lock_kept = True
    seen.services.due = {ServiceKind.ROLLBACK: "dead"}
    assert isinstance(following(state, seen), Wait)
    seen.services.action(2).completed = True
    assert isinstance(following(state, seen), SweepService)


def test_while_other_writers_have_their_turn_at_the_lock_nothing_is_begun() -> None:
    state, seen = world(OpenService(planned(1, TIDY)))
    seen.others_until_ms = NOW + 1
    assert isinstance(following(state, seen), Wait)
    assert following(state, seen, NOW + 1) == DecideService(planned(1, TIDY))


def test_a_sweep_under_the_lock_leaves_it_to_other_writers_and_to_an_epoch_that_waits_for_it() -> None:
    """Its slices take the lock again and again: they would wait for the end of all of them."""
    state, seen = world(OpenService(planned(1, TIDY), decided()), due=True)
    rows = [Produced(Topic.DATA, 0, 0, 1, 1, 1, 0)]
    state.tagged = [CountedTagged(5, TransactionTagged(0, "n", 0, {}, [], rows, Counts(input=1), 10, "x"))]
    seen.services.action(1).completed = seen.services.had_turn = True
    seen.others_until_ms = NOW + 1
    assert isinstance(following(state, seen), Wait)
    assert isinstance(following(state, seen, NOW + 1), Plan)
    state.tagged = []
    assert isinstance(following(state, seen), Wait), "other writers may wait"
    assert isinstance(following(state, seen, NOW + 1), SweepService)


def test_a_sweep_under_the_lock_comes_behind_all_other_steps_and_one_without_it_at_once() -> None:
    state, seen = world(OpenService(planned(1, TIDY), decided()), OpenService(planned(2), decided(2)))
    for number in (1, 2):
        seen.services.action(number).completed = True
    assert following(state, seen) == SweepService(planned(2), decided(2))
    del state.services[MERGE]
    seen.services.due = {MERGE: "large"}
    assert isinstance(following(state, seen), PlanService)
    seen.services.due = {}
    assert following(state, seen) == SweepService(planned(1, TIDY), decided())
    state, seen = world(OpenService(planned(), decided()))
    seen.services.action(1).completed = True
    seen.others_until_ms = NOW + 1
    assert isinstance(following(state, seen), SweepService), "it takes no lock"


def test_a_coordinator_that_has_stopped_for_good_does_nothing() -> None:
    state, seen = world(OpenService(planned(), decided()))
    seen.halted, seen.stopped = "why", True
    assert isinstance(following(state, seen), Wait)


def test_pauses_grow_to_their_bound_and_a_success_forgets_them() -> None:
    assert [pause_ms(n) for n in (1, 2, 3)] == [2_000, 4_000, 8_000]
    assert pause_ms(1_000) == RETRY_MS_MAX
    seen = SeenServices()
    for _ in range(3):
        seen.kind_failed(MERGE, "why", NOW)
    assert (seen.kind(MERGE).not_before_ms, seen.kind(MERGE).problem) == (NOW + 8_000, "why")
    seen.ended(planned(), NOW)
    seen.succeeded(MERGE)
    assert msgspec.to_builtins(seen.kind(MERGE)) == {
        "failures": 0,
        "problem": "",
        "not_before_ms": 0,
        "ended_ms": NOW,
        "found_nothing": False,
    }
