"""A clock that tests move."""

from __future__ import annotations

import threading


class ManualClock:
    """A clock that a test moves. `sleep` advances it at once, so one thread can run whole timeouts in no
    time.

    Thread-safe: one attribute holds the time, so reading needs no lock. Both times advance together from
    `start_ms` and 0.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = start_ms
        self._elapsed_s = 0.0
        self._lock = threading.Lock()

    def now_ms(self) -> int:
        return self._start_ms + int(self._elapsed_s * 1000 + 0.5)

    def latest_ms(self) -> int:
        return self.now_ms()

    def monotonic_s(self) -> float:
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
