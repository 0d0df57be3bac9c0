"""When a pipeline is at full rate again, by its commits."""

from __future__ import annotations

import pytest

from bench.index_starts import Measured, plateau, rate_from, seconds_to_rate

# One commit a second: nothing for six seconds, then two of 100 records, then 1 000 each.
SLOW_AT_FIRST = [(7.0, 100), (8.0, 100), *((float(second), 1_000) for second in range(9, 20))]


def test_the_rate_is_that_of_the_next_seconds_and_of_what_is_left_at_the_end() -> None:
    assert rate_from(SLOW_AT_FIRST, 0) == pytest.approx((100 + 4_000) / 5)
    assert rate_from(SLOW_AT_FIRST, 1) == 1_000
    assert rate_from(SLOW_AT_FIRST, len(SLOW_AT_FIRST) - 2) == 1_000
    assert rate_from(SLOW_AT_FIRST, len(SLOW_AT_FIRST) - 1) == 0
    assert rate_from([(1.0, 5), (21.0, 40)], 0) == 2
    assert plateau(SLOW_AT_FIRST) == 1_000


def test_figures_of_a_case() -> None:
    assert seconds_to_rate(SLOW_AT_FIRST, 900) == 8.0
    assert seconds_to_rate(SLOW_AT_FIRST, 1_100) is None
    assert seconds_to_rate(SLOW_AT_FIRST[:1], 1) is None
    figures = Measured(SLOW_AT_FIRST).figures(1_000.0)
    assert figures == {
        "first_s": 7.0,
        "full_s": 8.0,
        "silence_s": 7.0,
        "records": 11_200,
        "seconds": 19.0,
        "rate": 1_000,
        "moved_lanes": 0,
    }
