"""Caches an answer for a while, so that one thread makes it, however many browsers ask."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tidemark.stream_runtime.clock import Clock

T = TypeVar("T")


class Cached(Generic[T]):
    """The answer of `make`, kept for `age_max_s` seconds. Thread-safe. While one thread makes a new answer,
    others get the former one; if there is none they wait.

    An error of `make` is raised in the thread that called it; the next call tries again.
    """

    def __init__(self, make: Callable[[], T], age_max_s: float, clock: Clock) -> None:
        self._make = make
        self._age_max_s = age_max_s
        self._clock = clock
        self._making = threading.Lock()
        self._made: tuple[float, T] | None = None

    def get(self) -> T:
        """The answer. Its age is at most `age_max_s` plus the time that `make` takes."""
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
