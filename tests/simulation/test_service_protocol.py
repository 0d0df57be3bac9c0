"""A service action beside the epochs, cut at every place: it ends once, as a whole or not at all."""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from tests.simulation.noop_service import FILES, USELESS, Noop, work
from tests.simulation.scripted_epochs import check_end, first_epoch, second_epoch
from tests.simulation.service_path import ServicePath
from tidemark.commit_coordinator.failpoints import OF_A_ROLLBACK, SERVICE_FAILPOINTS, CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import Dropped, LockedStep
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceKind,
    ServiceOutcome,
    ServiceVoided,
)
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.timeline import DATA_ROOT
from tidemark.ledger_client.errors import SupersededError
from tidemark.stream_runtime.failpoint import FailpointAction, FailpointHitError

PLACES_MAX = 200
NOT_IN_A_PLAIN_RUN = {
    CoordinatorFailpoint.AFTER_SERVICE_METADATA,
    *OF_A_ROLLBACK,
    CoordinatorFailpoint.AFTER_TICKETS_REVOKED,
    CoordinatorFailpoint.IN_TAKE_BACK,
    CoordinatorFailpoint.BEFORE_SERVICE_VOIDED,
    CoordinatorFailpoint.AFTER_SERVICE_VOIDED,
}


class Holding:
    """Whether plans hold: a switch of the test."""

    def __init__(self) -> None:
        self.now = True

    def __call__(self) -> bool:
        return self.now


def begun(
    folder: Path, wanted: int = 1, holds: Callable[[], bool] = lambda: True, *, beside_epoch: bool = True
) -> ServicePath:
    """The first epoch is committed, the second one tagged or committed, and there is something to sweep."""
    path = ServicePath(folder, lambda _: [], {ServiceKind.COMPACT_DATA: work})
    first_epoch(path)
    path.run_until_idle()
    second_epoch(path)
    if not beside_epoch:
        path.run_until_idle()
    path.crash()
    path.handlers = lambda _: [Noop(wanted, holds)]
    for number in range(3):
        path.storage.create(f"{USELESS}/{number}", b"")
    return path


def run_until_ended(path: ServicePath, number: int) -> None:
    """Until the action with this number has ended, and nothing is to be done any more."""
    for _ in range(400):
        if number in path.ended():
            break
        path.step()
    path.run_until_idle()


def check_services(path: ServicePath) -> None:
    """Every action ended, and is in the table as a whole, or not at all."""
    ended, planned = path.ended(), path.planned_services()
    assert set(ended) == set(planned)
    assert not path.storage.walk(".hoodie/.aux/tidemark/ended")
    assert not [each for each in path.files() if "/service-" in each]
    for number, end in ended.items():
        names = path.names_with(planned[number].instant)
        if isinstance(end, ServiceVoided):
            assert names == []
            continue
        [decided] = path.decided_services()[number]
        timeline = f"{DATA_ROOT}/timeline/{planned[number].instant}"
        assert end.outcome is ServiceOutcome.DONE
        assert sorted(name for name in names if name.startswith(timeline)) == [
            f"{timeline}.clean.inflight",
            f"{timeline}.clean.requested",
            f"{timeline}_{decided.data_completion}.clean",
        ]
        files = [name for name in names if "/noop/" in name]
        assert [path.storage.read(name) for name in files] == [name.encode() for name in files]
        assert len(files) == FILES


def check_done(path: ServicePath) -> None:
    """Both epochs and the one action are in the table, and what it made useless is gone."""
    assert [type(end) for end in path.ended().values()] == [ServiceCommitted]
    assert not path.storage.walk(USELESS)
    check_services(path)
    check_end(path)


def die() -> None:
    raise FailpointHitError("here")


def visible_before_requested(path: ServicePath) -> list[str]:
    """Files of an action that are there before its requested file is (rule A)."""
    files = path.files()
    noop = [each for each in files if "/noop/" in each]
    return [
        each
        for each in noop
        if f"{DATA_ROOT}/timeline/{each.rpartition('-')[2]}.clean.requested" not in files
    ]


def test_an_action_goes_from_its_plan_to_its_sweep_beside_an_epoch(tmp_path: Path) -> None:
    path = begun(tmp_path)
    path.run_until_idle()
    check_done(path)


@pytest.mark.parametrize("failpoint", sorted(SERVICE_FAILPOINTS - NOT_IN_A_PLAIN_RUN))
def test_a_coordinator_dies_at_each_failpoint(tmp_path: Path, failpoint: CoordinatorFailpoint) -> None:
    path = begun(tmp_path)
    path.failpoints.arm(failpoint, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    assert visible_before_requested(path) == []
    path.crash()
    path.run_until_idle()
    check_done(path)


def test_a_coordinator_dies_at_every_place(tmp_path: Path) -> None:
    """One that dies between using a ticket up and the file's name leaves an action that is made anew."""
    for nth in range(1, PLACES_MAX):
        path = begun(tmp_path / str(nth), beside_epoch=False)
        path.start_coordinator()
        path.points.arm(nth, die)
        try:
            path.run_until_idle()
        except FailpointHitError:
            assert visible_before_requested(path) == []
            path.crash()
            path.run_until_idle()
            check_services(path)
            check_end(path)
            continue
        assert path.points.is_armed
        check_done(path)
        assert nth > 30, f"only {path.points.passed}"
        return
    raise AssertionError("the scenario has no end")


def test_a_thawed_coordinator_changes_nothing(tmp_path: Path) -> None:
    """Frozen before every place in turn, thawed when its successor has finished."""
    for nth in range(1, PLACES_MAX):
        path = begun(tmp_path / str(nth), beside_epoch=False)
        old, after = path.start_coordinator(), dict[str, str]()

        def successor_finishes(path: ServicePath = path, after: dict[str, str] = after) -> None:
            path.crash()
            path.run_until_idle()
            after.update(path.files())

        points = path.points
        points.arm(nth, successor_finishes)
        try:
            path.run_until_idle()
        except SupersededError:
            assert not points.is_armed
        if points.is_armed:
            assert nth > 30, f"only {points.passed}"
            return
        with pytest.raises(SupersededError):
            old.step(0.0)
        assert path.files() == after, f"frozen at place {nth}, last at {points.passed[-1]}"
        check_services(path)
        check_end(path)
    raise AssertionError("the scenario has no end")


def test_work_that_was_done_is_not_done_again_by_a_successor(tmp_path: Path) -> None:
    path = begun(tmp_path)
    while not path.work_on_services():
        path.step_coordinator()
        path.write_open_attempt()
    staged = {each: hashed for each, hashed in path.files().items() if "/service-1/" in each}
    assert staged
    for _ in range(3):
        path.crash()
        path.start_coordinator()
    path.step_coordinator()
    path.work_on_services()
    taken_over = {each: hashed for each, hashed in path.files().items() if "/service-1/" in each}
    assert sorted(taken_over.values()) == sorted(staged.values())
    path.run_until_idle()
    check_done(path)


def test_an_action_that_nobody_works_on_holds_up_no_epoch(tmp_path: Path) -> None:
    path = begun(tmp_path)
    path.works = False
    for _ in range(30):
        path.step()
    assert path.state().committed.epoch == 2
    path.works = True
    path.run_until_idle()
    check_done(path)


def test_tasks_that_fail_again_and_again_void_the_action_and_the_next_one_waits(tmp_path: Path) -> None:
    path = begun(tmp_path, wanted=2)
    failures = []
    path.works = False
    for _ in range(400):
        path.step()
        offered = path.handoff.wait_for_work("worker", 0.0)
        if offered is not None and offered.planned.service == 1:
            failures.append(path.clock.now_ms())
            assert path.handoff.fail(1, "worker", "disk full")
        elif offered is not None:
            path.handoff.offer(offered)
            break
    assert len(failures) == 3
    voided = path.ended()[1]
    assert isinstance(voided, ServiceVoided)
    assert voided.reason == "disk full"
    path.works = True
    run_until_ended(path, 2)
    assert isinstance(path.ended()[2], ServiceCommitted)
    check_services(path)
    check_end(path)


def test_what_holds_a_plan_up_is_logged_and_the_next_one_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[int] = []

    class Held(Noop):
        def plan(self, step: LockedStep, instant: str) -> Dropped:
            asked.append(step.context.clock.now_ms())
            return Dropped("another engine is about to do it")

    path = begun(tmp_path)
    path.handlers = lambda _: [Held()]
    with caplog.at_level(logging.WARNING, "tidemark.coordinator"):
        for _ in range(40):
            path.step()
    said = [each for each in caplog.messages if "another engine is about to do it" in each]
    assert set(said) == {
        "no service action (compact-data) could be planned: another engine is about to do it"
    }
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert len(said) == len(asked) > 2
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 1.5 * pauses[0]
    assert path.planned_services() == {}


def test_a_plan_that_does_not_hold_at_the_decision_is_void(tmp_path: Path) -> None:
    holds = Holding()
    path = begun(tmp_path, wanted=2, holds=holds)
    holds.now = False
    run_until_ended(path, 1)
    holds.now = True
    run_until_ended(path, 2)
    assert isinstance(path.ended()[1], ServiceVoided)
    assert isinstance(path.ended()[2], ServiceCommitted)
    check_services(path)
    check_end(path)


@pytest.mark.parametrize("coordinator", ["lives", "dies"])
@pytest.mark.parametrize("standing", [True, False])
@pytest.mark.parametrize(
    "failpoint",
    [
        CoordinatorFailpoint.AFTER_SERVICE_DECIDED,
        CoordinatorFailpoint.AFTER_SERVICE_REQUESTED,
        CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT,
        CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE,
    ],
)
def test_a_lock_that_was_lost_after_the_decision_has_all_rules_asked_again(
    tmp_path: Path, failpoint: CoordinatorFailpoint, standing: bool, coordinator: str
) -> None:
    """While the plan holds it goes on; else the decision is taken back, with all that was made, and planned
    anew.
    """
    holds = Holding()
    path = begun(tmp_path, wanted=1 if standing else 2, holds=holds)
    path.failpoints.arm(failpoint, 1, FailpointAction.RAISE)
    with pytest.raises(FailpointHitError):
        path.run_until_idle()
    path.storage.delete_tree(LOCK_PATH)
    holds.now = standing
    if coordinator == "dies":
        path.crash()
    run_until_ended(path, 1)
    holds.now = True
    if not standing:
        run_until_ended(path, 2)
    assert isinstance(path.ended()[1], ServiceCommitted if standing else ServiceVoided)
    if not standing:
        first = path.ended()[1]
        assert isinstance(first, ServiceVoided)
        assert first.undecides == path.decided_services()[1][0].data_completion
        assert isinstance(path.ended()[2], ServiceCommitted)
    check_services(path)
    check_end(path)
