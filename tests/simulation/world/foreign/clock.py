"""The other machine's clock, and what Hudi does with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

from tests.simulation.world.ports import WorldClock
from tidemark.hudi_format.model import instant_from_ms, instant_to_ms

WAITED_S: Final = 0.2
"""Hudi's `max_expected_clock_skew_ms`: slept under the lock after a time was taken."""


class HudiClock:
    """The world's clock, as far off as the last `jump` says."""

    def __init__(self, clock: WorldClock) -> None:
        self._clock = clock
        self._skew_ms = 0
        self._last_ms = -1

    def jump(self, milliseconds: int) -> None:
        """From here on so far ahead of the world's clock (negative: behind), for a process that knows no time
        before.
        """
        self._skew_ms, self._last_ms = milliseconds, -1

    def reach(self, instant: str) -> None:
        """Jumps to behind this time, unless it is there already: the process that chose it goes on."""
        ahead_ms = instant_to_ms(instant) + 1 - self._clock.now_ms()
        self.jump(max(self._skew_ms, ahead_ms))

    @contextmanager
    def beyond(self, instant: str) -> Iterator[None]:
        """Another machine's clock, one that is behind no such time; afterwards it is this one's again."""
        before = self._skew_ms
        self.reach(instant)
        try:
            yield
        finally:
            self.jump(before)

    def take(self, taken: Collection[str] = ()) -> str:
        """A time, greater than the last one; none of those that instants have."""
        self._last_ms = max(self._clock.now_ms() + self._skew_ms, self._last_ms + 1)
        while instant_from_ms(self._last_ms) in taken:
            self._last_ms += 1
        return instant_from_ms(self._last_ms)

    def before(self, milliseconds: int) -> str:
        """The time so long ago."""
        return instant_from_ms(self._clock.now_ms() + self._skew_ms - milliseconds)

    def wait(self) -> None:
        """What is slept before the lock is given back."""
        self._clock.advance(WAITED_S)
