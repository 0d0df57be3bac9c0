"""An answer that is worked out at most once in a while, by one thread, however many ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tidemark.stream_runtime.clock import Clock

T = TypeVar("T")


class Cached(Generic[T]):
    """Thread-safe. Who asks while it is being worked out gets the former answer, or waits for the first one.

    What `make` raises goes to whoever asked for it; the next to ask tries again.
    """

    def __init__(self, make: Callable[[], T], age_max_s: float, clock: Clock) -> None:
        self._make = make
        self._age_max_s = age_max_s
        self._clock = clock
        self._making = threading.Lock()
        self._made: tuple[float, T] | None = None

    def get(self) -> T:
        """An answer that is at most as old as `age_max_s` and what working it out takes."""
        made = self._made
        if made is not None and not self._is_old(made[0]):
            return made[1]
        if not self._making.acquire(blocking=made is None):
            assert made is not None
            return made[1]
        try:
            made = self._made
            if made is None or self._is_old(made[0]):
                made = self._made = (self._clock.monotonic_s(), self._make())
            return made[1]
        finally:
            self._making.release()

    def _is_old(self, at_s: float) -> bool:
        return self._clock.monotonic_s() - at_s >= self._age_max_s
