"""Time as an argument. The only module that may read the machine's clock or sleep.

Two times, never mixed: `now_ms` is wall clock, for instants and timestamps that others read, and may jump;
`monotonic_s` only grows, for waits and deadlines.
"""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """What services take. A hudi_format or epoch_protocol function may ask for a narrower protocol; this
    satisfies it.
    """

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC; may jump."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def sleep_ms(self, duration_ms: int) -> None:
        """Like `sleep`, in the unit that the format library counts in."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds)

    def sleep_ms(self, duration_ms: int) -> None:
        self.sleep(duration_ms / 1000)


class ManualClock:
    """A clock that a test moves. `sleep` advances it at once, so one thread can run whole timeouts in no
    time.

    Thread-safe. Both times advance together from `start_ms` and 0.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        with self._lock:
            return self._start_ms + int(self._elapsed_s * 1000 + 0.5)

    def monotonic_s(self) -> float:
        with self._lock:
            return self._elapsed_s

    def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0.0))

    def sleep_ms(self, duration_ms: int) -> None:
        self.sleep(duration_ms / 1000)

    def advance(self, seconds: float) -> None:
        """Moves time forward. Raises ValueError for a negative step."""
        if seconds < 0:
            raise ValueError(f"a clock does not go back: advance({seconds})")
        with self._lock:
            self._elapsed_s += seconds
