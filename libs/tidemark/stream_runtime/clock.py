"""Clocks that services get as an argument. No other module may read the machine's clock or sleep.

A clock has two times, which are never compared with each other:

- `now_ms` is wall-clock time, for instants and timestamps that others read. It may jump forward. Clocks of
  storages and other machines differ from it: times of files are compared with each other (`Term.now_ms`).
- `monotonic_s` grows evenly, for waits and deadlines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

SKEW_VARIABLE: Final = "TIDEMARK_CLOCK_SKEW_MS"
_STEP_NS: Final = 1_000_000_000
# Longer than a writer of Hudi's may be silent (two minutes): when a step counts, the heartbeats of those that
# live are younger than it. A machine that slept makes such a step, for us and for the writers on it.
_STEP_COUNTS_NS: Final = 150_000_000_000
_GIVES_BACK_OF: Final = 10
"""While the wall clock is behind, one millisecond of so many is given back."""


class Clock(Protocol):
    """The clock that services take. It also satisfies the narrower protocols that functions of `hudi_format`
    and `epoch_protocol` ask for.
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump forward, never goes back."""
        ...

    def latest_ms(self) -> int:
        """As `now_ms`, with the time that the machine slept and `now_ms` does not have yet: for what may end
        too late, and not too early.
        """
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Blocks the calling thread for so long; returns at once for 0 or less."""
        ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Like `sleep`, in milliseconds, the unit of `hudi_format`."""
        ...


class SystemClock:
    """The machine's own clock. Thread-safe.

    `now_ms` goes at the pace of the monotonic clock, and follows the wall clock by these rules:

    1. The wall clock is set back: `now_ms` gives back a tenth of the time that passes, until both agree.
       Example: it is set from 12:00 to 11:50; ten seconds later `now_ms` says 12:00:09, and 100 minutes later
       it is right. It never goes back, so a wait (a lease, the next epoch) is longer by a ninth at most, and
       not by those ten minutes.
    2. It is set forward by more than a second: that counts once it has lasted for 150 seconds, in which it
       was not set again. Else a wall clock that is ten years ahead for a second would put instants,
       and with them all later ones, ten years ahead. After its machine slept, a process is late for so long:
       instants lie above those that the table has, and tombstones end by `latest_ms`.

    A new process begins with what the machine says.

    Crash tests add an error of `skew_ms` to the wall-clock time, which begins `skew_after_s` seconds after
    the clock was made. Such a clock believes a step forward at once.
    """

    def __init__(self, skew_ms: int = 0, skew_after_s: float = 0.0) -> None:
        self._skew_ms = skew_ms
        self._skew_from_s = time.monotonic() + skew_after_s
        self._lock = threading.Lock()
        # How far `now_ms` is ahead of the monotonic clock, when it was asked last, and since when the wall
        # clock is further ahead than that by more than a step.
        self._ahead_ns: int | None = None
        self._asked_ns = 0
        self._step_from_ns: int | None = None
        self._step_ns = 0
        self._slept_before_ns = _slept_ns()

    def __reduce__(self) -> tuple[type[SystemClock], tuple[int, float]]:
        """Unpickled in another process it reads that process's time, with the same skew."""
        return SystemClock, (self._skew_ms, max(self._skew_from_s - time.monotonic(), 0.0))

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> SystemClock:
        """A clock with the skew that TIDEMARK_CLOCK_SKEW_MS names, none without the variable.

        Its form is `MILLISECONDS` or `MILLISECONDS@SECONDS`: `-3600000@20` is an hour late, from the 20th
        second of this process on. Raises ValueError for another text.
        """
        skew_ms, _, after_s = env.get(SKEW_VARIABLE, "0").partition("@")
        return cls(int(skew_ms), float(after_s or 0))

    def now_ms(self) -> int:
        with self._lock:
            # A thread may be suspended between two of these. The true distance is between what the wall clock
            # is ahead of the later and of the earlier of both.
            before_ns = time.monotonic_ns()
            wall_ns = self._wall_ns()
            now_ns = time.monotonic_ns()
            self._ahead_ns = self._followed(wall_ns - now_ns, wall_ns - before_ns, now_ns)
            self._asked_ns = now_ns
            return (now_ns + self._ahead_ns) // 1_000_000

    def latest_ms(self) -> int:
        # The wall clock alone does not count: it may be ten years ahead for this moment.
        now_ms = self.now_ms()
        slept_ms = (_slept_ns() - self._slept_before_ns) // 1_000_000
        return now_ms + max(min(slept_ms, self._wall_ns() // 1_000_000 - now_ms), 0)

    def _followed(self, least_ns: int, most_ns: int, now_ns: int) -> int:
        """How far `now_ms` is ahead of the monotonic clock from now on; the wall clock is so by `least_ns` to
        `most_ns`.
        """
        ahead_ns = self._ahead_ns
        if ahead_ns is None:
            return least_ns
        step_ns = least_ns - ahead_ns
        if step_ns > _STEP_NS and not self._skew_ms:
            if self._step_from_ns is None or abs(step_ns - self._step_ns) > _STEP_NS:
                self._step_from_ns, self._step_ns = now_ns, step_ns
            if now_ns - self._step_from_ns < _STEP_COUNTS_NS:
                return ahead_ns
        self._step_from_ns = None
        if most_ns < ahead_ns:
            return max(most_ns, ahead_ns - (now_ns - self._asked_ns) // _GIVES_BACK_OF)
        return max(least_ns, ahead_ns)

    def _wall_ns(self) -> int:
        skew_ms = self._skew_ms if time.monotonic() >= self._skew_from_s else 0
        return time.time_ns() + skew_ms * 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)

    def sleep_ms(self, duration_ms: int) -> None:
        self.sleep(duration_ms / 1000)


def _slept_ns() -> int:
    """For how long the machine slept since it began; 0 where the system does not count that."""
    boot_time = getattr(time, "CLOCK_BOOTTIME", None)
    return 0 if boot_time is None else time.clock_gettime_ns(boot_time) - time.monotonic_ns()
