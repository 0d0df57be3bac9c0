"""Time as an argument. The only module that may read the machine's clock or sleep.

Two times, never mixed: `now_ms` is wall clock, for instants and timestamps that others read, and may jump
forward; `monotonic_s` only grows at its own pace, for waits and deadlines.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final, Protocol

SKEW_VARIABLE: Final = "TIDEMARK_CLOCK_SKEW_MS"


class Clock(Protocol):
    """What services take. A hudi_format or epoch_protocol function may ask for a narrower protocol; this
    satisfies it.
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump forward, never goes back."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Like `sleep`, in the unit that the format library counts in."""
        ...


class SystemClock:
    """The machine's own clock. Thread-safe.

    When the machine's wall clock is set back, `now_ms` goes on from where it was, at the pace of the
    monotonic one: what waits until a moment (a lease, the next epoch) then waits no longer. A new process
    follows the machine again. A crash test can have the wall time wrong by `skew_ms`, from `skew_after_s`
    seconds on.
    """

    def __init__(self, skew_ms: int = 0, skew_after_s: float = 0.0) -> None:
        self._skew_ms = skew_ms
        self._skew_from_s = time.monotonic() + skew_after_s
        self._lock = threading.Lock()
        self._ahead_ms: int | None = None

    def __reduce__(self) -> tuple[type[SystemClock], tuple[int, float]]:
        """Sent to another process it is that one's clock, wrong by the same skew."""
        return SystemClock, (self._skew_ms, max(self._skew_from_s - time.monotonic(), 0.0))

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> SystemClock:
        """With the skew that TIDEMARK_CLOCK_SKEW_MS names: milliseconds, negative for a clock that is late,
        and perhaps after how many seconds of this process: `-3600000@20`.

        Raises ValueError for another text.
        """
        skew_ms, _, after_s = env.get(SKEW_VARIABLE, "0").partition("@")
        return cls(int(skew_ms), float(after_s or 0))

    def now_ms(self) -> int:
        with self._lock:
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
