"""How look-ups of values are counted, and that a wrong answer ends the bench."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.value_rounds import Rounds, all_keys
from bench.value_rows import ValueWorkload, value_text
from tidemark.hudi_format.value_lookup import ValuePage


@pytest.fixture
def workload() -> ValueWorkload:
    made = ValueWorkload(400, 4, seed=7)
    for _ in made.initial_rows():
        pass
    return made


def rounds_of(workload: ValueWorkload, limit_s: float = 60.0) -> Rounds:
    return Rounds(workload, [1, 20], 2, limit_s)


def keys_of(workload: ValueWorkload) -> Any:
    numbers = {text: number for number, text in enumerate(value_text(np.arange(100)).to_pylist())}
    return lambda text: workload.keys_of(np.array([numbers[text]]))


def test_each_way_is_asked_once_more_than_it_is_counted(workload: ValueWorkload) -> None:
    rounds = rounds_of(workload)
    rounds.one_by_one("ours", keys_of(workload), [1, 20])
    found = rounds.found["ours"]
    assert {count: (one["asked"], len(one["seconds"])) for count, one in found.items()} == {
        1: (1, 2),
        20: (20, 2),
    }
    assert found[20]["rows"] == len(workload.keys_of(rounds.values[20]))


def test_a_way_that_takes_too_long_stops_and_says_after_how_many(workload: ValueWorkload) -> None:
    rounds = rounds_of(workload, 0.0)
    rounds.one_by_one("ours", keys_of(workload), [20])
    assert rounds.found["ours"][20]["asked"] == 1
    assert len(rounds.found["ours"][20]["seconds"]) == 1


def test_a_wrong_answer_is_no_figure(workload: ValueWorkload) -> None:
    rounds, right = rounds_of(workload), keys_of(workload)
    with pytest.raises(RuntimeError, match="theirs found"):
        rounds.at_once("theirs", lambda texts: ([key for text in texts for key in right(text)][1:], 3))


def test_a_value_of_several_pages_is_asked_for_to_the_end() -> None:
    page = ValuePage("by_city", "city", None, ["a", "b"], [None, None], "next")
    pages = {"": page, "next": replace(page, keys=["c"], next_token="")}
    assert all_keys(lambda column, value, token, limit: pages[token], "city 1") == ["a", "b", "c"]
