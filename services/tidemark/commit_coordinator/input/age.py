"""How many seconds a stage is behind: how long ago it was that the input ended where the stage stands now.

Told from samples of where the input ended, so no record has to be looked at. Bounded: when the samples are
full every other one is dropped, so long lags are told more coarsely.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

SAMPLES_MAX: Final = 600


class _Sample(NamedTuple):
    at_s: float
    ends: Mapping[str, int]


class InputAge:
    """``ends``: position per lane. For one thread; seconds are the caller's monotonic ones."""

    def __init__(self) -> None:
        self._samples: list[_Sample] = []

    def sample(self, now_s: float, ends: Mapping[str, int]) -> None:
        """The input ends here now."""
        if len(self._samples) >= SAMPLES_MAX:
            self._samples = self._samples[::2]
        self._samples.append(_Sample(now_s, dict(ends)))

    def seconds(self, now_s: float, reached: Mapping[str, int]) -> float:
        """Age of the newest sample that the positions cover: all that was there then is done.

        0 when the newest sample is covered; when none is, the age of the oldest, and the truth is more.
        """
        if not self._samples or _covers(reached, self._samples[-1].ends):
            return 0.0
        covered = (each for each in reversed(self._samples) if _covers(reached, each.ends))
        return now_s - next(covered, self._samples[0]).at_s


def _covers(reached: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    return all(reached.get(lane, 0) >= end for lane, end in ends.items())
