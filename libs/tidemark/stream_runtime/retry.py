"""Bounded retries and deadlines. Clock and random generator are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from tidemark.errors import ErrorKind, kind_of
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError

T = TypeVar("T")


class Deadline:
    """A moment on a clock by which something must be done."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._end_s = clock.monotonic_s() + timeout_s

    @property
    def remaining_s(self) -> float:
        """Seconds left, at least 0."""
        return max(self._end_s - self._clock.monotonic_s(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.remaining_s <= 0.0

    def check(self, waiting_for: str) -> None:
        """Raises DeadlineExceededError with the text `waiting_for` once the time is over."""
        if self.is_over:
            raise DeadlineExceededError(f"{waiting_for}: not within {self._timeout_s:g} s")

    def sleep(self, seconds: float) -> None:
        """Sleeps, but not beyond the deadline."""
        self._clock.sleep(min(seconds, self.remaining_s))


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How long to wait between calls, and when to give up.

    The waits grow from `wait_min_s` by `factor` to `wait_max_s`; each is shortened at random by up to half,
    so that processes that failed together do not call again together. At most `attempts_max` calls are made,
    and none begins after `timeout_s`. Raises ValueError for settings that contradict each other.
    """

    attempts_max: int = 10
    timeout_s: float = 30.0
    wait_min_s: float = 0.05
    wait_max_s: float = 2.0
    factor: float = 2.0

    def __post_init__(self) -> None:
        if (
            self.attempts_max < 1
            or self.wait_min_s < 0
            or self.factor < 1
            or self.wait_max_s < self.wait_min_s
        ):
            raise ValueError(
                "a retry policy needs attempts_max >= 1, factor >= 1 and 0 <= wait_min_s <= wait_max_s, "
                f"and is {self}"
            )

    def wait_s(self, failures: int, random: Random) -> float:
        """How long to wait after this many failures (from 1)."""
        # The exponent is bounded: a float overflows long before an attempt counter does.
        wait_s = min(self.wait_max_s, self.wait_min_s * self.factor ** min(failures - 1, 64))
        return wait_s * (1.0 - 0.5 * random.random())


def is_retryable(error: Exception) -> bool:
    """True for an error whose `kind` says that the same call may succeed later."""
    return kind_of(error) is ErrorKind.RETRYABLE


def retry(
    call: Callable[[], T],
    clock: Clock,
    random: Random,
    policy: RetryPolicy | None = None,
    should_retry: Callable[[Exception], bool] = is_retryable,
) -> T:
    """Calls `call` until it succeeds, and returns its result.

    Raises the last error when `policy` allows no further call, or `should_retry` says no.
    """
    limits = policy or RetryPolicy()
    deadline = Deadline(clock, limits.timeout_s)
    failures = 0
    while True:
        try:
            return call()
        except Exception as error:
            failures += 1
            if failures >= limits.attempts_max or not should_retry(error):
                raise
            deadline.sleep(limits.wait_s(failures, random))
            if deadline.is_over:
                raise
