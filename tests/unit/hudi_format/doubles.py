"""Clock and ids for the unit tests of the format: time moves only when told to, ids count."""

from __future__ import annotations

from collections.abc import Callable


class ManualClock:
    """Stands still; `sleep_ms` moves it, after calling `on_sleep` where that is set."""

    def __init__(self, now_ms: int = 1_767_225_600_000) -> None:
        self.current_ms = now_ms
        self.on_sleep: Callable[[], None] | None = None

    def now_ms(self) -> int:
        return self.current_ms

    def sleep_ms(self, duration_ms: int) -> None:
        if self.on_sleep is not None:
            self.on_sleep()
        self.current_ms += duration_ms


class CountingIds:
    """UUID-shaped ids that count from 1."""

    def __init__(self) -> None:
        self._count = 0

    def uuid(self) -> str:
        self._count += 1
        return f"00000000-0000-4000-8000-{self._count:012d}"
