"""How many seconds a stage is behind: how long ago the input ended where the stage's positions are now.

It is measured from samples of the input's ends, so no record has to be read. When there are `SAMPLES_MAX`
samples every other one is dropped, so long lags are measured more coarsely.

Example: the input ended at offset 100 at second 0, and at 150 at second 5. At second 7 the stage has reached
120: it covers the first sample alone, and is 7 seconds behind.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 600


class _Sample(NamedTuple):
    at_s: float
    ends: Mapping[str, int]


class InputAge:
    """Samples of the input's ends. For one thread; the caller gives monotonic seconds."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    def sample(self, now_s: float, ends: Mapping[str, int]) -> None:
        """Notes that the input ends at ``ends`` (lane -> next offset) now."""
        if len(self._samples) >= SAMPLES_MAX:
            self._samples = self._samples[::2]
        self._samples.append(_Sample(now_s, dict(ends)))

    def seconds(self, now_s: float, reached: Mapping[str, int]) -> float:
        """Age of the newest sample that the positions ``reached`` cover on every lane.

        0 if that is the newest sample of all. If they cover none, the age of the oldest sample; the real lag
        is longer.
        """
        if not self._samples or _covers(reached, self._samples[-1].ends):
            return 0.0
        covered = (sample for sample in reversed(self._samples) if _covers(reached, sample.ends))
        return now_s - next(covered, self._samples[0]).at_s


def _covers(reached: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    return all(reached.get(lane, 0) >= end for lane, end in ends.items())
