"""Formats numbers, times and short series for the demo."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_BARS = "▁▂▃▄▅▆▇█"


def grouped(number: float) -> str:
    """The number, rounded, with its thousands apart: 336776 → ``336 776``."""
    return f"{round(number):,}".replace(",", " ")


def duration(milliseconds: float | None) -> str:
    """The duration as ``640 ms``, ``1.2 s`` or ``3 min 05 s``; ``–`` for None."""
    if milliseconds is None:
        return "–"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1000), 60)
    return f"{minutes} min {seconds:02d} s"


def share(part: int, whole: int) -> str:
    """The percentage. Small ones have a decimal, so that few does not read as none; ``–`` of nothing."""
    if whole == 0:
        return "–"
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 10 or part == 0 else f"{percent:.1f} %"


def sparkline(values: Sequence[float]) -> str:
    """One character per value, a bar whose height is relative to the highest value."""
    top = max(values, default=0.0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(max(value, 0.0) / top * len(_BARS)))] for value in values)


def instant(microseconds: int | None) -> str:
    """The time in UTC as ``2013-06-24 19:50:10``, from microseconds since 1970; "" for None."""
    if microseconds is None:
        return ""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    return at.strftime("%Y-%m-%d %H:%M:%S")
