"""An epoch that cannot be written is given up: table services go on, and it is tried again after a while."""

from __future__ import annotations

from pathlib import Path

from tests.simulation.commit_path import ATTEMPTS_MAX
from tests.simulation.noop_service import Noop
from tests.simulation.scripted_epochs import check_end
from tests.simulation.service_path import ServicePath
from tests.simulation.test_service_protocol import begun
from tidemark.commit_coordinator.domain.next_action import TRY_AGAIN_MS, Observed
from tidemark.commit_coordinator.domain.service_actions import ATTEMPT_MS
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind

KIND = ServiceKind.COMPACT_DATA


class GivenUp:
    """A table whose second epoch was given up, for a cause that lasts until `heals`."""

    def __init__(self, folder: Path) -> None:
        self.noop = Noop(wanted=0)
        self.path: ServicePath = begun(folder)
        self.path.handlers = lambda _: [self.noop]
        self.path.start_coordinator()
        self.fail_until_halted()

    @property
    def seen(self) -> Observed:
        assert self.path.coordinator is not None
        return self.path.coordinator.seen

    def fail_until_halted(self) -> None:
        for _ in range(20 * ATTEMPTS_MAX):
            self.path.step_coordinator()
            if self.seen.halted is not None:
                return
            if self.path.attempts.wait_for_unreported(0.0) is not None:
                self.path.fail_open_attempt(rewind=False)
        raise AssertionError(self.seen)


def test_services_go_on_beside_an_epoch_that_was_given_up(tmp_path: Path) -> None:
    """What fills the disk is perhaps what they would delete."""
    given_up = GivenUp(tmp_path)
    path = given_up.path
    given_up.noop.wanted = 1
    for _ in range(100):
        path.step_coordinator()
        path.work_on_services()
        path.clock.advance(0.05)
        if 1 in path.ended():
            break
    assert isinstance(path.ended()[1], ServiceCommitted)
    assert given_up.seen.halted is not None
    assert path.state().committed.epoch == 1


def test_an_order_to_a_coordinator_that_may_not_touch_the_table_is_not_kept(tmp_path: Path) -> None:
    given_up = GivenUp(tmp_path)
    path = given_up.path
    given_up.seen.halted, given_up.seen.given_up = "another engine dropped the record index", None
    answers: list[tuple[int, str]] = []
    assert path.coordinator is not None
    path.coordinator.services.want(KIND, lambda number, why: answers.append((number, why)))
    path.step_coordinator()
    [(number, why)] = answers
    assert number == 0
    assert "another engine dropped the record index" in why
    path.coordinator.retry(2)
    path.run_until_idle()
    assert path.planned_services() == {}
    check_end(path)


def test_a_given_up_epoch_is_written_once_its_cause_is_over(tmp_path: Path) -> None:
    given_up = GivenUp(tmp_path)
    path = given_up.path
    path.step()
    assert path.state().planned is None
    path.clock.advance(TRY_AGAIN_MS / 1000)
    path.step_coordinator()
    assert path.state().planned is not None
    assert given_up.seen.given_up is not None, "status says so until it is committed"
    path.run_until_idle()
    seen: Observed = path.coordinator.seen
    assert (seen.halted, seen.given_up) == (None, None)
    assert path.state().committed.epoch > 1
    check_end(path)


def test_an_attempt_that_no_writer_takes_keeps_no_lock_from_services(tmp_path: Path) -> None:
    """Somebody has stopped the writer to repair what made the attempts fail, for days."""
    given_up = GivenUp(tmp_path)
    path = given_up.path
    path.clock.advance(TRY_AGAIN_MS / 1000)
    path.step_coordinator()
    assert path.state().planned is not None
    path.clock.advance(ATTEMPT_MS / 1000)
    given_up.noop.wanted = 1
    for _ in range(100):
        path.step_coordinator()
        path.work_on_services()
        path.clock.advance(0.05)
        if 1 in path.ended():
            break
    assert isinstance(path.ended()[1], ServiceCommitted)
    assert path.context is not None
    assert not path.context.lock.is_held


def test_a_given_up_epoch_is_tried_once_each_time(tmp_path: Path) -> None:
    given_up = GivenUp(tmp_path)
    path = given_up.path
    for more in range(1, 4):
        path.clock.advance(TRY_AGAIN_MS / 1000)
        given_up.fail_until_halted()
        assert path.state().attempts == ATTEMPTS_MAX + more
        given_up.fail_until_halted()
        assert path.state().attempts == ATTEMPTS_MAX + more
        assert f"in {ATTEMPTS_MAX} attempts and {more} more" in (given_up.seen.halted or "")
    path.clock.advance(TRY_AGAIN_MS / 1000)
    path.run_until_idle()
    check_end(path)


def test_a_rewind_comes_before_the_next_attempt_at_a_given_up_epoch(tmp_path: Path) -> None:
    given_up = GivenUp(tmp_path)
    path = given_up.path
    assert path.coordinator is not None
    path.coordinator.want_rewind("another writer has committed", path.state().generation)
    path.clock.advance(TRY_AGAIN_MS / 1000)
    path.step_coordinator()
    assert path.state().generation == 1
    assert given_up.seen.halted is None, "assigners tag anew"
