"""The soak's judgement: a leak fails it, what fills and stays does not."""

from __future__ import annotations

import pytest

from tests.soak.bounds import exceeded, grown, missing, quarters, too_few


def test_quarters_leave_the_first_one_out_and_cover_the_rest():
    assert quarters(15) == (range(4, 8), range(8, 15))
    assert quarters(8) == (range(2, 4), range(4, 8))
    assert quarters(60) == (range(15, 30), range(30, 60))


def test_caches_that_fill_in_the_first_quarter_are_no_leak():
    filling = [10.0, 60.0, 90.0, 100.0, *[100.0] * 11]
    assert list(grown({"memory: assigner": filling})) == []


def test_leak_is_found_in_its_greatest_minute():
    leaking = [100.0 + 4.0 * minute for minute in range(15)]
    (found,) = grown({"memory: assigner": leaking, "memory: writer": [100.0] * 15})
    assert found.startswith("memory: assigner grows: 156 in minute 15")


@pytest.mark.parametrize(("last", "fails"), [(114.9, False), (115.1, True)])
def test_one_minute_above_the_bound_fails(last: float, fails: bool):
    values = [100.0] * 8 + [last] + [100.0] * 6
    assert bool(list(grown({"disk: state": values}))) is fails


def test_what_is_new_in_the_second_half_is_growth():
    assert list(grown({"topic: orders.new": [0.0] * 12 + [5.0] * 3}))


def test_sawtooth_is_judged_by_its_peaks():
    assert list(grown({"topic: orders.data": [50.0, 100.0, 70.0] * 5})) == []


def test_too_short_a_run_is_refused():
    with pytest.raises(ValueError, match="needs 8"):
        list(grown({"memory: run": [1.0] * 7}))


def test_fixed_limits_are_found_by_the_longest_name():
    limits = {"memory: ": 100.0, "memory: writer": 300.0}
    figures = {"memory: writer": [250.0, 250.0], "memory: kafka": [90.0, 101.0]}
    assert list(exceeded(figures, limits)) == ["memory: kafka: 101 in minute 2, limit 100"]


def test_figure_without_a_limit_is_an_error():
    assert list(exceeded({"descriptors: writer": [3.0]}, {"memory: ": 100.0})) == [
        "descriptors: writer has no limit"
    ]


@pytest.mark.parametrize(("sent", "fails"), [(4_275_000, False), (4_274_999, True), (450_000, True)])
def test_a_soak_that_did_not_reach_its_rate_fails(sent: int, fails: bool):
    found = list(too_few(sent, 5_000.0, 15))
    assert bool(found) is fails
    if sent == 450_000:
        assert "500 a second: this is no soak at 5,000 a second" in found[0]


def test_a_figure_that_vanishes_fails():
    figures: dict[str, list[float | None]] = {
        "memory: assigner": [1.0] * 12 + [None] * 3,
        "topic: orders.data": [1.0, None, 1.0],
        "topic: orders.tombstones": [None, None, 1.0],
        "memory: run": [1.0] * 15,
    }
    assert list(missing(figures, ["memory: run", "memory: kafka"])) == [
        "memory: kafka was never measured",
        "memory: assigner was not measured in minute 13, 14, 15",
        "topic: orders.data was not measured in minute 2",
    ]


def test_what_begins_late_is_growth_and_no_gap():
    assert list(grown({"topic: orders.new": [None] * 12 + [5.0] * 3}))
