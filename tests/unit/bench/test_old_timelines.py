"""A timeline costs as much with ten times as many files in its archive: files opened, bytes read and names
listed, which are the same on every machine. `make old-timelines` measures time and memory beside.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.archived_tables import Shape, by_levels, make_table
from bench.old_timelines import (
    ARCHIVAL,
    BYTES,
    FILES,
    LISTED,
    LISTING,
    LISTING_AFTER,
    MS,
    OPENED,
    PEAK,
    REPLACED,
    REPLACED_AGAIN,
    START,
    Figures,
    growth,
    measure,
)

# Two days of instants in each file: a look goes back by one.
FEW = Shape((110,) * 4, active=80, least=30, groups=1, every_s=1_500)
MANY = FEW._replace(files=(120,) * 40)


def counted(folder: Path, shape: Shape) -> Figures:
    """What does not depend on the machine."""
    make_table(folder, shape)
    found = measure(folder, shape)
    return {
        step: {figure: value for figure, value in figures.items() if figure not in (MS, PEAK)}
        for step, figures in found.items()
    }


def test_steps_read_as_much_of_an_archive_of_ten_times_as_many_files(tmp_path: Path) -> None:
    few, many = counted(tmp_path / "few", FEW), counted(tmp_path / "many", MANY)
    assert list(growth(few, many)) == []
    # Those that are asked all the time open not one file more.
    for step in (START, LISTING, ARCHIVAL, LISTING_AFTER, REPLACED_AGAIN):
        assert many[step][OPENED] == few[step][OPENED], step
    # A start opens each file once, beside the manifest and `_version_`; one was added here.
    assert [found[REPLACED][OPENED] for found in (few, many)] == [5 + 2, 41 + 2]


STEP = {MS: 10.0, OPENED: 5.0, BYTES: 1_000.0, LISTED: 100.0}


@pytest.mark.parametrize(
    ("step", "figure", "holds", "grew"),
    [
        (LISTING, MS, 35.0, 35.1),
        (START, OPENED, 9, 10),
        (ARCHIVAL, BYTES, 1_500 + (64 << 10), 1_501 + (64 << 10)),
        (LISTING_AFTER, LISTED, 350, 351),
        (REPLACED, OPENED, 5 + 9, 5 + 10),
        (REPLACED, BYTES, 1_000 + 9 * 4_096 + 8_192, 1_001 + 9 * 4_096 + 8_192),
        (REPLACED, MS, 35.0, 35.1),
        ("the process", PEAK, 116, 117),
    ],
)
def test_what_grew_is_named(step: str, figure: str, holds: float, grew: float) -> None:
    small: Figures = {name: dict(STEP) for name in (REPLACED, START, LISTING, ARCHIVAL, LISTING_AFTER)}
    small[REPLACED][FILES] = 7
    small["the process"] = {PEAK: 100}
    large = {name: dict(figures) for name, figures in small.items()}
    large[REPLACED][FILES] = 16
    large[step][figure] = holds
    assert list(growth(small, large)) == []
    large[step][figure] = grew
    (found,) = growth(small, large)
    assert found.startswith(f"{step}: {figure} {grew:g}, ")


def test_levels_are_as_archival_leaves_them() -> None:
    assert by_levels(10_000) == (3_000, 3_000, 3_000, 300, 300, 300, 100)
    million = by_levels(10_000_000)
    assert (sum(million), len(million), million[:4]) == (10_000_000, 16, (3_000_000,) * 3 + (300_000,))
