"""What "bounded" means: a rule of growth for long runs, fixed limits for short ones. Pure.

A figure is a list with one value a minute, the greatest of that minute. The rule: no minute of the second
half is greater than 1.15 times the greatest of the second quarter. The first quarter is for caches that fill.
None stands for a minute in which a figure was not measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

Figure = Sequence[float | None]

GROWTH_MAX: Final = 1.15
SLACK_BYTES: Final = 2 << 20
"""So many bytes more are no growth of memory or disk, however little there was before."""
_BYTES: Final = ("memory: ", "heap: ", "disk: ")
_LATENCY: Final = "latency: "
"""Records of the first minute wait until Spark is up, ten or twenty seconds: beside that no later minute
would ever be much.
"""
RATE_MIN: Final = 0.95
"""The share of the rate that a soak reaches at least: below it, it did not measure what it names."""
MINUTES_MIN: Final = 8
"""Below that a quarter has less than two minutes."""


def quarters(minutes: int) -> tuple[range, range]:
    """The minutes of the second quarter and those of the second half: whole ones, counted from 0."""
    begin, half = -(-minutes // 4), -(-minutes // 2)
    return range(begin, half), range(half, minutes)


def too_few(sent: int, rate: float, minutes: int) -> Iterator[str]:
    """Whether fewer records were sent than the rate says, but for 5 %."""
    wanted = rate * minutes * 60
    if sent < RATE_MIN * wanted:
        yield (
            f"{sent:,} records were sent in {minutes} minutes, {sent / (minutes * 60):,.0f} a second: this "
            f"is no soak at {rate:,.0f} a second, which needs {RATE_MIN * wanted:,.0f}. Choose a quieter "
            "machine or a lower --rate"
        )


def missing(figures: Mapping[str, Figure], wanted: Iterable[str]) -> Iterator[str]:
    """Figures that were not measured at all, or no longer: what nobody measured kept no bound. One that
    begins later is no problem here; for the rule of growth it was 0 until then.
    """
    for name in sorted(set(wanted) - figures.keys()):
        yield f"{name} was never measured"
    for name, values in sorted(figures.items()):
        seen = [value is not None for value in values]
        gaps = (
            [minute for minute in range(seen.index(True), len(seen)) if not seen[minute]] if any(seen) else []
        )
        if gaps:
            yield f"{name} was not measured in minute {', '.join(str(minute + 1) for minute in gaps)}"


def grown(figures: Mapping[str, Figure]) -> Iterator[str]:
    """What breaks the rule of growth, one line a figure. Raises ValueError for less than MINUTES_MIN."""
    for name, measured in sorted(figures.items()):
        values = [value or 0.0 for value in measured]
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


def unsettled(figures: Mapping[str, Figure], settled: int) -> Iterator[str]:
    """What does not stay flat: one line for each figure that has, in minute `settled` (counted from 0) or
    later, more than 1.15 times the greatest value before (of bytes: and `SLACK_BYTES` more; of latency: the
    first minute does not count). Raises ValueError where no minute comes before, or none after.
    """
    for name, measured in sorted(figures.items()):
        values = [value or 0.0 for value in measured]
        begin = 1 if name.startswith(_LATENCY) else 0
        if not begin < settled < len(values):
            raise ValueError(f"{name}: {len(values)} minutes, of which {settled} come before")
        before = max(values[begin:settled])
        worst = max(range(settled, len(values)), key=lambda minute: values[minute])
        slack = SLACK_BYTES if name.startswith(_BYTES) else 0
        if values[worst] > max(GROWTH_MAX * before, before + slack):
            yield (
                f"{name} grows: {values[worst]:,.0f} in minute {worst + 1}, at most {before:,.0f} in minutes "
                f"{begin + 1} to {settled}; {GROWTH_MAX} times that is allowed"
            )


def exceeded(figures: Mapping[str, Figure], limits: Mapping[str, float]) -> Iterator[str]:
    """What breaks a fixed limit. A figure takes the limit with the longest name that it begins with; one
    without a limit is an error, so that nothing is left out unseen.
    """
    for name, measured in sorted(figures.items()):
        values = [value or 0.0 for value in measured]
        fitting = [limit for limit in limits if name.startswith(limit)]
        if not fitting:
            yield f"{name} has no limit"
            continue
        limit = limits[max(fitting, key=len)]
        if values and max(values) > limit:
            yield f"{name}: {max(values):,.0f} in minute {values.index(max(values)) + 1}, limit {limit:,.0f}"
