"""Clocks that services get as an argument. No other module may read the machine's clock or sleep.

A clock has two times, which are never compared with each other:

- `now_ms` is wall-clock time, for instants and timestamps that others read. It may jump forward.
- `monotonic_s` grows evenly, for waits and deadlines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

SKEW_VARIABLE: Final = "TIDEMARK_CLOCK_SKEW_MS"


class Clock(Protocol):
    """The clock that services take. It also satisfies the narrower protocols that functions of `hudi_format`
    and `epoch_protocol` ask for.
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump forward, never goes back."""
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

    If the machine's wall clock is set back, `now_ms` goes on from its last value at the pace of the monotonic
    clock. Example: the clock is set from 12:00 to 11:00; ten seconds later `now_ms` says 12:00:10. Otherwise
    a wait until 12:01 (a lease, the next epoch) would take an hour longer. A new process follows the machine
    again.

    Crash tests add an error of `skew_ms` to the wall-clock time, which begins `skew_after_s` seconds after
    the clock was made.
    """

    def __init__(self, skew_ms: int = 0, skew_after_s: float = 0.0) -> None:
        self._skew_ms = skew_ms
        self._skew_from_s = time.monotonic() + skew_after_s
        self._lock = threading.Lock()
        self._ahead_ms: int | None = None

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
            # The greatest distance that wall clock and monotonic clock ever had; it never shrinks.
            monotonic_ms = time.monotonic_ns() // 1_000_000
            ahead_ms = self._wall_ms() - monotonic_ms
            self._ahead_ms = ahead_ms if self._ahead_ms is None else max(ahead_ms, self._ahead_ms)
            return monotonic_ms + self._ahead_ms

    def _wall_ms(self) -> int:
        skew_ms = self._skew_ms if time.monotonic() >= self._skew_from_s else 0
        return time.time_ns() // 1_000_000 + skew_ms

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)

    def sleep_ms(self, duration_ms: int) -> None:
        self.sleep(duration_ms / 1000)
