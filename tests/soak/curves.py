"""The figures of a soak as data and as a picture: `figures.json` and `curves.svg`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Final

Figure = Sequence[float | None]

_COLUMNS: Final = 3
_WIDTH, _HEIGHT, _GAP = 280, 120, 46
_MIB: Final = 1 << 20
_IN_MIB: Final = ("memory: ", "heap: ", "disk: ")


def write_curves(folder: Path, figures: Mapping[str, Figure], settled: int | None) -> None:
    """Writes both files. `settled`: the minute from which nothing may grow; None: no such line."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {
        "settled_minute": settled,
        "figures": {name: list(values) for name, values in figures.items()},
    }
    (folder / "figures.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
    (folder / "curves.svg").write_text(picture(figures, settled))


def picture(figures: Mapping[str, Figure], settled: int | None) -> str:
    """One small curve for each figure, from 0 to its greatest value, over minutes."""
    names = sorted(figures)
    rows = -(-len(names) // _COLUMNS)
    width, height = _COLUMNS * (_WIDTH + _GAP) + _GAP, rows * (_HEIGHT + _GAP) + _GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, name in enumerate(names):
        left = _GAP + number % _COLUMNS * (_WIDTH + _GAP)
        top = _GAP + number // _COLUMNS * (_HEIGHT + _GAP)
        parts += _curve(name, figures[name], left, top, settled)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _curve(name: str, figure: Figure, left: int, top: int, settled: int | None) -> list[str]:
    unit = _MIB if name.startswith(_IN_MIB) else 1
    values = [None if value is None else value / unit for value in figure]
    most = max((value for value in values if value is not None), default=0.0) or 1.0
    step = _WIDTH / max(len(values) - 1, 1)
    points = " ".join(
        f"{left + minute * step:.1f},{top + _HEIGHT - value / most * _HEIGHT:.1f}"
        for minute, value in enumerate(values)
        if value is not None
    )
    title = escape(name + (" (MiB)" if unit == _MIB else ""))
    drawn = [
        f'<text x="{left}" y="{top - 6}" fill="#333333">{title}</text>',
        f'<path d="M{left},{top} v{_HEIGHT} h{_WIDTH}" fill="none" stroke="#999999"/>',
        f'<text x="{left - 4}" y="{top + 8}" text-anchor="end" fill="#666666">{most:,.0f}</text>',
        f'<text x="{left + _WIDTH}" y="{top + _HEIGHT + 13}" text-anchor="end" fill="#666666">'
        f"{len(values)} min</text>",
        f'<polyline points="{points}" fill="none" stroke="#1f5fa8" stroke-width="1.5"/>',
    ]
    if settled is not None and settled < len(values):
        at = left + settled * step
        drawn.append(
            f'<path d="M{at:.1f},{top} v{_HEIGHT}" stroke="#c05a1c" stroke-dasharray="4 3" fill="none"/>'
        )
    return drawn
