"""Measures how fast records move through the stages: one sample per second, kept for three minutes.

A sample reads a snapshot that the coordinator's loop keeps anyway, so it costs the loop nothing.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tidemark.page.sources import RecordsPassed
from tidemark.stream_runtime.clock import Clock

EVERY_S: Final = 1.0
SAMPLES_MAX: Final = 180
_WINDOW_S: Final = 6.0


@dataclass(frozen=True, slots=True)
class Sample:
    """How many records had passed each stage at `at_s`, in seconds of the monotonic clock."""

    at_s: float
    shuffled: int
    tagged: int
    committed: int


class Rates:
    """The rates of the last minutes. Thread-safe. `start` calls `sample` every second on a thread of
    its own.
    """

    def __init__(self, passed: Callable[[], RecordsPassed | None], clock: Clock) -> None:
        self._passed = passed
        self._clock = clock
        self._lock = threading.Lock()
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="web-rates", daemon=True)

    def start(self) -> None:
        """Begins to sample."""
        self._thread.start()

    def stop(self) -> None:
        """Stops sampling. Repeatable."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(EVERY_S + 1.0)

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            self.sample()

    def sample(self) -> None:
        """Takes one sample; none before the coordinator has taken the table over, when there are no
        counts.
        """
        passed = self._passed()
        if passed is None:
            return
        taken = Sample(self._clock.monotonic_s(), *passed)
        with self._lock:
            self._samples.append(taken)

    def document(self) -> dict[str, Any]:
        """Records per second by stage: `now`, and a `series` of one value per second, oldest first. Each
        value is a mean over `_WINDOW_S` seconds, because epochs commit in steps.
        """
        with self._lock:
            samples = list(self._samples)
        names = ("shuffled", "tagged", "committed")
        series = {name: _series(samples, name) for name in names}
        return {
            "every_s": EVERY_S,
            "now": {name: values[-1] if values else None for name, values in series.items()},
            "series": series,
        }


def _series(samples: list[Sample], name: str) -> list[float]:
    """For each sample except the first, the mean rate of the window that ends with it. A rewind takes tagged
    records back, so that a count falls: the rate is then 0, not negative.
    """
    values: list[float] = []
    first = 0
    for at in range(1, len(samples)):
        while samples[at].at_s - samples[first].at_s > _WINDOW_S and first < at - 1:
            first += 1
        passed_s = samples[at].at_s - samples[first].at_s
        passed = getattr(samples[at], name) - getattr(samples[first], name)
        values.append(round(max(passed, 0) / passed_s, 1) if passed_s > 0 else 0.0)
    return values
