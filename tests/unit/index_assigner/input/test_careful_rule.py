"""When a lane that is read apart stops: the transition table."""

from __future__ import annotations

import random

import pytest

from tidemark.index_assigner.input.careful_rule import (
    RECORDS_ALONE,
    CarefulLane,
    decoding,
    died,
    hung,
    is_death,
    taken,
)

AHEAD, ALONE = CarefulLane(7), CarefulLane(7, RECORDS_ALONE)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (AHEAD, ALONE),
        (ALONE, CarefulLane(7, RECORDS_ALONE, 1)),
        (CarefulLane(7, 1), CarefulLane(7, RECORDS_ALONE, 1)),
        (CarefulLane(7, RECORDS_ALONE, 1), CarefulLane(7, RECORDS_ALONE, 2)),
    ],
)
def test_a_death(before: CarefulLane, after: CarefulLane) -> None:
    assert died(before) == after
    assert after.is_deadly is (after.deaths == 2)


def test_two_hangs_at_an_offset_stop_the_lane_as_hanging_and_a_death_among_them_as_deadly() -> None:
    once, twice = hung(ALONE), hung(hung(ALONE))
    assert (once.is_deadly, twice.is_deadly, twice.is_hanging) == (False, True, True)
    for mixed in (died(once), hung(died(ALONE))):
        assert (mixed.is_deadly, mixed.is_hanging) == (True, False)
    assert taken(once, 8, 1) == CarefulLane(8, RECORDS_ALONE - 1)


def test_what_was_taken_is_harmless_and_starts_the_count_anew() -> None:
    assert taken(AHEAD, 9, 2) == CarefulLane(9)
    assert taken(CarefulLane(7, 5, 1), 8, 1) == CarefulLane(8, 4)
    assert taken(CarefulLane(7, 1, 1), 8, 1) == CarefulLane(8)


def test_offsets_without_records_are_passed_and_no_death_there_counts_for_the_next_record() -> None:
    assert decoding(CarefulLane(7, 5, 1), 7) == CarefulLane(7, 5, 1)
    assert decoding(CarefulLane(7, 5, 1), 9) == CarefulLane(9, 5)


@pytest.mark.parametrize(
    ("code", "death"),
    [(-9, True), (-6, True), (-11, True), (-15, False), (-2, False), (-1, False), (0, False), (9, False)],
)
def test_only_signals_that_a_record_can_lead_to_are_deaths(code: int, death: bool) -> None:
    assert is_death(code) is death


@pytest.mark.parametrize("seed", range(20))
def test_a_lane_stops_at_the_record_that_kills_and_nowhere_else(seed: int) -> None:
    """Reading ahead dies up to 1 000 records early, and anybody may kill a reader now and then."""
    dice = random.Random(seed)
    deadly, lane, steps, killed_at = dice.randrange(3_000), CarefulLane(0), 0, -1
    while not lane.is_deadly:
        steps += 1
        assert steps < 20_000
        if lane.alone:
            by_hand = dice.random() < 0.002 and killed_at != lane.next
            if by_hand:
                killed_at = lane.next
            dies = lane.next == deadly or by_hand
            lane = died(lane) if dies else taken(decoding(lane, lane.next), lane.next + 1, 1)
        else:
            ahead = lane.next + dice.randrange(1, 1_000)
            lane = died(lane) if ahead > deadly else taken(lane, min(lane.next + 500, ahead), 500)
    assert lane.next == deadly, f"seed {seed}"
