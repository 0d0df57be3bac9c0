"""How long the coordinator's steps of an epoch took; `tidemark epoch show` lists them beside the writer's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tidemark.stream_runtime.clock import Clock


class StepSpan(NamedTuple):
    """One run of a step: when it began (Unix epoch, ms), and how long it took (ms)."""

    name: str
    began_ms: float
    took_ms: float


class StepTimes:
    """Milliseconds by step since the last `take`. Used by the coordinator's thread alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took_ms: dict[str, float] = {}
        self._watch: Callable[[StepSpan], None] = lambda _: None

    def watch(self, ended: Callable[[StepSpan], None]) -> None:
        """``ended`` is called after each step from now on."""
        self._watch = ended

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times the block; times of the same name are summed."""
        began_ms, started_s = self._clock.now_ms(), self._clock.monotonic_s()
        try:
            yield
        finally:
            took_ms = (self._clock.monotonic_s() - started_s) * 1_000
            self._took_ms[name] = self._took_ms.get(name, 0.0) + took_ms
            self._watch(StepSpan(name, began_ms, took_ms))

    def take(self) -> dict[str, float]:
        """Milliseconds by step since the last call; starts anew."""
        took_ms, self._took_ms = self._took_ms, {}
        return took_ms
