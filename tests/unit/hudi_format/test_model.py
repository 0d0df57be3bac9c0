"""Instant times: text and milliseconds, and strictly increasing generation."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.model import (
    InstantGenerator,
    instant_from_ms,
    instant_to_ms,
    is_bootstrap_instant,
)


class _Clock:
    def __init__(self, *readings: int) -> None:
        self._readings = list(readings)

    def now_ms(self) -> int:
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]

    def sleep_ms(self, duration_ms: int) -> None:
        raise AssertionError("the generator never sleeps")


def test_a_known_moment_prints_as_hudi_prints_it() -> None:
    assert instant_from_ms(1_700_000_000_123) == "20231114221320123"
    assert instant_from_ms(1_700_000_000_123, ZoneInfo("Asia/Tokyo")) == "20231115071320123"
    assert instant_from_ms(0) == "19700101000000000"


@given(st.integers(min_value=0, max_value=253_402_300_799_999))
def test_milliseconds_survive_the_way_to_text_and_back(ms: int) -> None:
    text = instant_from_ms(ms)
    assert len(text) == 17
    assert text.isdigit()
    assert instant_to_ms(text) == ms


@pytest.mark.parametrize(
    "text", ["2023111422132012", "20231114221320", "20231314000000000", "x" * 17, "0" * 17]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(HudiFormatError):
        instant_to_ms(text)


def test_times_increase_when_the_clock_stands_still_or_steps_back() -> None:
    generator = InstantGenerator(_Clock(1000, 1000, 400, 5000))
    issued = [generator.next() for _ in range(4)]
    assert [instant_to_ms(each) for each in issued] == [1000, 1001, 1002, 5000]


def test_observed_times_are_passed_even_if_they_lie_in_the_future() -> None:
    generator = InstantGenerator(_Clock(1000))
    generator.observe([instant_from_ms(9000), "00000000000000002", instant_from_ms(8000)])
    generator.observe([])
    assert instant_to_ms(generator.next()) == 9001


def test_bootstrap_counters_are_told_from_times() -> None:
    assert is_bootstrap_instant("00000000000000003")
    assert not is_bootstrap_instant("19700101000000000")
