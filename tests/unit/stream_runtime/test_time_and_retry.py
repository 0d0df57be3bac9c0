"""Clocks, ids, deadlines and retries."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.clock import SKEW_VARIABLE, SystemClock
from tidemark.stream_runtime.errors import DeadlineExceededError, StreamRuntimeError
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.retry import Deadline, RetryPolicy, retry


class UnavailableError(StreamRuntimeError):
    kind = ErrorKind.RETRYABLE


class WrongError(StreamRuntimeError):
    kind = ErrorKind.INVALID


def test_manual_clock_moves_both_times_together():
    clock = ManualClock(start_ms=1_000)
    clock.sleep(1.5)
    clock.advance(0.25)
    assert (clock.now_ms(), clock.monotonic_s()) == (2_750, 1.75)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_system_clock_sleeps_and_never_goes_back():
    clock = SystemClock()
    before_s, before_ms = clock.monotonic_s(), clock.now_ms()
    clock.sleep(0.02)
    clock.sleep(-1)
    assert clock.monotonic_s() - before_s >= 0.02
    assert clock.now_ms() - before_ms >= 19


def test_skewed_clock_is_wrong_by_what_its_environment_says():
    right = SystemClock.from_environment({})
    late = SystemClock.from_environment({SKEW_VARIABLE: "-3600000"})
    not_yet = SystemClock.from_environment({SKEW_VARIABLE: "-3600000@900"})
    assert abs(right.now_ms() - 3_600_000 - late.now_ms()) < 60_000
    assert abs(right.now_ms() - not_yet.now_ms()) < 60_000
    assert abs(right.monotonic_s() - late.monotonic_s()) < 60.0
    with pytest.raises(ValueError):
        SystemClock.from_environment({SKEW_VARIABLE: "an hour"})


class Machine:
    """The clocks of a machine, which a test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall_s, self.monotonic_s = 1_000_000.0, 50.0
        monkeypatch.setattr("time.time_ns", lambda: int(self.wall_s * 1e9))
        monkeypatch.setattr("time.monotonic_ns", lambda: int(self.monotonic_s * 1e9))
        self.slept_s = 0.0
        monkeypatch.setattr("time.CLOCK_BOOTTIME", 7, raising=False)
        monkeypatch.setattr("time.clock_gettime_ns", self._since_boot)
        self.clock = SystemClock()
        assert self.clock.now_ms() == 1_000_000_000

    def _since_boot(self, clock: int) -> int:
        assert clock == 7
        return int((self.monotonic_s + self.slept_s) * 1e9)

    def sleep(self, seconds: float) -> None:
        """The machine sleeps: its monotonic clock stands still."""
        self.wall_s, self.slept_s = self.wall_s + seconds, self.slept_s + seconds

    def after(self, seconds: float) -> float:
        """How far `now_ms` is ahead of the right time (s) when so much time has passed."""
        self.wall_s, self.monotonic_s = self.wall_s + seconds, self.monotonic_s + seconds
        return self.clock.now_ms() / 1000 - (1_000_000.0 + self.monotonic_s - 50.0)

    def right(self) -> None:
        """Somebody sets the wall clock to the right time."""
        self.wall_s = 1_000_000.0 + self.monotonic_s - 50.0


def test_a_wall_clock_that_is_set_back_makes_no_wait_much_longer_and_is_followed_by_and_by(monkeypatch):
    machine = Machine(monkeypatch)
    machine.wall_s -= 600.0
    assert machine.after(10.0) == pytest.approx(-1.0)
    assert machine.after(90.0) == pytest.approx(-10.0)
    for _ in range(1_000):
        machine.after(0.005)
    assert machine.after(0.0) == pytest.approx(-10.5, abs=0.01), "however often it is asked"
    assert machine.after(10_000.0) == pytest.approx(-600.0), "a clock that is right does not stay ahead"


def test_a_clock_that_began_ahead_is_right_again_after_ten_times_as_long(monkeypatch):
    machine = Machine(monkeypatch)
    machine.wall_s += 600.0
    machine.clock = SystemClock()
    assert machine.after(1.0) == pytest.approx(600.0)
    machine.right()
    assert machine.after(3_000.0) == pytest.approx(300.0)
    assert machine.after(3_001.0) == pytest.approx(0.0)
    assert machine.after(1.0) == pytest.approx(0.0)


def test_a_step_forward_counts_once_it_has_lasted_for_longer_than_a_living_writer_is_silent(monkeypatch):
    machine = Machine(monkeypatch)
    machine.wall_s += 315_360_000.0
    assert machine.after(1.0) == pytest.approx(0.0)
    machine.right()
    assert machine.after(1.0) == pytest.approx(0.0)
    machine.wall_s += 600.0
    assert machine.after(0.1) == pytest.approx(0.0), "the time of the former step does not count"
    assert machine.after(149.0) == pytest.approx(0.0)
    assert machine.after(1.5) == pytest.approx(600.0)
    machine.wall_s += 0.5
    assert machine.after(1.0) == pytest.approx(600.5), "a small one counts at once"


def test_a_machine_that_slept_is_late_until_writers_on_it_had_time_for_a_heartbeat(monkeypatch):
    """Their heartbeats are as old as its sleep was long. What must not end early ends by the right time."""
    machine = Machine(monkeypatch)
    fell_asleep_ms = machine.clock.now_ms()
    machine.sleep(600.0)
    assert machine.clock.now_ms() == fell_asleep_ms
    assert machine.clock.latest_ms() == fell_asleep_ms + 600_000
    machine.after(120.0)
    machine.sleep(600.0)
    machine.after(0.0)
    machine.after(149.0)
    assert machine.clock.now_ms() == fell_asleep_ms + 269_000, "it slept again: that begins anew"
    assert machine.clock.latest_ms() == fell_asleep_ms + 1_469_000
    machine.after(2.0)
    assert machine.clock.now_ms() == machine.clock.latest_ms() == fell_asleep_ms + 1_471_000


def test_a_wall_clock_that_is_ahead_for_a_moment_makes_nothing_end_later(monkeypatch):
    machine = Machine(monkeypatch)
    machine.wall_s += 315_360_000.0
    assert machine.clock.latest_ms() == machine.clock.now_ms() == 1_000_000_000


def test_a_thread_that_is_suspended_while_it_looks_makes_the_clock_no_later_and_no_earlier(monkeypatch):
    machine = Machine(monkeypatch)
    wall, suspended_s = machine.wall_s, iter((0.0, 30.0, 0.0, 0.0))

    def monotonic_ns() -> int:
        machine.monotonic_s += next(suspended_s, 0.0)
        return int(machine.monotonic_s * 1e9)

    monkeypatch.setattr("time.monotonic_ns", monotonic_ns)
    assert machine.clock.now_ms() == (wall + 30.0) * 1000, "suspended behind the look at the wall clock"
    machine.right()
    assert machine.after(0.0) == pytest.approx(0.0)


def test_seeded_ids_repeat_and_system_ids_differ():
    first, second = SeededIds(7), SeededIds(7)
    assert [first.uuid() for _ in range(3)] == [second.uuid() for _ in range(3)]
    assert first.random().random() == second.random().random()
    assert UUID(first.uuid()).version == 4
    assert first.uuid() != first.uuid()
    assert SystemIds().uuid() != SystemIds().uuid()
    assert SystemIds().random().random() != SystemIds().random().random()


def test_deadline_ends_and_names_what_was_awaited():
    clock = ManualClock()
    deadline = Deadline(clock, 2.0)
    deadline.sleep(1.5)
    deadline.check("the ledger")
    deadline.sleep(9.0)
    assert clock.monotonic_s() == 2.0
    assert deadline.is_over
    with pytest.raises(DeadlineExceededError, match="the ledger: not within 2 s"):
        deadline.check("the ledger")


def failing(errors):
    remaining = list(errors)

    def call():
        if remaining:
            raise remaining.pop(0)
        return "done"

    return call


def test_retry_waits_and_succeeds():
    clock = ManualClock()
    policy = RetryPolicy(attempts_max=4, wait_min_s=0.1)
    assert retry(failing([UnavailableError()] * 3), clock, Random(1), policy) == "done"
    # 0.1 + 0.2 + 0.4, each shortened by up to half.
    assert 0.35 <= clock.monotonic_s() <= 0.7


def test_retry_is_the_same_for_the_same_seed():
    waits = []
    for _ in range(2):
        clock = ManualClock()
        retry(failing([UnavailableError()] * 5), clock, Random(9))
        waits.append(clock.monotonic_s())
    assert waits[0] == waits[1]


def test_retry_ends_with_the_attempts():
    clock = ManualClock()
    calls = failing([UnavailableError(str(number)) for number in range(10)])
    with pytest.raises(UnavailableError, match="2"):
        retry(calls, clock, Random(1), RetryPolicy(attempts_max=3))


def test_retry_ends_with_the_time():
    clock = ManualClock()
    with pytest.raises(UnavailableError):
        retry(
            failing([UnavailableError()] * 10_000),
            clock,
            Random(1),
            RetryPolicy(attempts_max=9_999, timeout_s=5),
        )
    assert clock.monotonic_s() == 5.0


def test_what_cannot_succeed_is_not_retried():
    clock = ManualClock()
    with pytest.raises(WrongError):
        retry(failing([WrongError()]), clock, Random(1))
    with pytest.raises(KeyError):
        retry(failing([KeyError()]), clock, Random(1))
    assert clock.monotonic_s() == 0.0


def test_wait_stays_bounded_after_many_failures():
    policy = RetryPolicy(wait_max_s=2.0)
    assert 1.0 <= policy.wait_s(100_000, Random(1)) <= 2.0


@pytest.mark.parametrize("wrong", [{"attempts_max": 0}, {"factor": 0.5}, {"wait_min_s": 5.0}])
def test_policy_without_sense_is_refused(wrong):
    with pytest.raises(ValueError, match="policy"):
        RetryPolicy(**wrong)
