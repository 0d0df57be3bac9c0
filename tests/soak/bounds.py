"""What "bounded" means: a rule of growth for long runs, fixed limits for short ones. Pure.

A figure is a list with one value a minute, the greatest of that minute. The rule: no minute of the second
half is greater than 1.15 times the greatest of the second quarter. The first quarter is for caches that fill.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

GROWTH_MAX: Final = 1.15
MINUTES_MIN: Final = 8
"""Below that a quarter has less than two minutes."""


def quarters(minutes: int) -> tuple[range, range]:
    """The minutes of the second quarter and those of the second half: whole ones, counted from 0."""
    begin, half = -(-minutes // 4), -(-minutes // 2)
    return range(begin, half), range(half, minutes)


def grown(figures: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """What breaks the rule of growth, one line a figure. Raises ValueError for less than MINUTES_MIN."""
    for name, values in sorted(figures.items()):
        if len(values) < MINUTES_MIN:
            raise ValueError(f"{name}: {len(values)} minutes, the rule of growth needs {MINUTES_MIN}")
        second_quarter, second_half = quarters(len(values))
        before = max(values[minute] for minute in second_quarter)
        worst = max(second_half, key=lambda minute: values[minute])
        if values[worst] > GROWTH_MAX * before:
            yield (
                f"{name} grows: {values[worst]:,.0f} in minute {worst + 1}, at most {before:,.0f} in minutes "
                f"{second_quarter[0] + 1} to {second_quarter[-1] + 1}; {GROWTH_MAX} times that is allowed"
            )


def exceeded(figures: Mapping[str, Sequence[float]], limits: Mapping[str, float]) -> Iterator[str]:
    """What breaks a fixed limit. A figure takes the limit with the longest name that it begins with; one
    without a limit is an error, so that nothing is left out unseen.
    """
    for name, values in sorted(figures.items()):
        fitting = [limit for limit in limits if name.startswith(limit)]
        if not fitting:
            yield f"{name} has no limit"
            continue
        limit = limits[max(fitting, key=len)]
        if values and max(values) > limit:
            yield f"{name}: {max(values):,.0f} in minute {values.index(max(values)) + 1}, limit {limit:,.0f}"
