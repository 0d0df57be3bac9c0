"""How long the coordinator's own steps of an epoch took: in `tidemark epoch show`, beside the writer's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from stream_runtime.clock import Clock


class StepTimes:
    """Milliseconds by step since the last `take`. Used by the coordinator's thread alone."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._took_ms: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Times the block; a step that runs again adds up."""
        started_s = self._clock.monotonic_s()
        try:
            yield
        finally:
            took_ms = (self._clock.monotonic_s() - started_s) * 1_000
            self._took_ms[name] = self._took_ms.get(name, 0.0) + took_ms

    def take(self) -> dict[str, float]:
        """What was timed, and starts anew."""
        took_ms, self._took_ms = self._took_ms, {}
        return took_ms
