"""How look-ups of values are counted, and that a wrong answer ends the bench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bench.value_rounds import Found, Rounds, all_keys
from bench.value_rows import ValueWorkload, value_text
from tidemark.hudi_format.value_lookup import ValuePage


@pytest.fixture
def workload() -> ValueWorkload:
    made = ValueWorkload(400, 4, seed=7)
    for _ in made.initial_rows():
        pass
    return made


def rows_of(workload: ValueWorkload) -> Any:
    numbers = {text: number for number, text in enumerate(value_text(np.arange(100)).to_pylist())}
    return lambda texts: workload.keys_of(np.array([numbers[text] for text in texts]))


def test_each_way_is_asked_once_more_than_it_is_counted(workload: ValueWorkload) -> None:
    rounds, rows, asked = Rounds(workload, [1, 20], 2), rows_of(workload), list[int]()

    def find(texts: Sequence[str]) -> Found:
        asked.append(len(texts))
        return rows(texts), 3

    rounds.ask("ours", find)
    assert asked == [1] * 3 + [20] * 3
    found = rounds.found["ours"]
    assert {count: (len(one["seconds"]), one["files"]) for count, one in found.items()} == {
        1: (2, 3),
        20: (2, 3),
    }
    assert found[20]["rows"] == len(workload.keys_of(rounds.values[20]))
    rounds.ask("theirs", lambda texts: (rows(texts), None))
    assert "files" not in rounds.found["theirs"][1]


def test_a_wrong_answer_is_no_figure(workload: ValueWorkload) -> None:
    rounds, right = Rounds(workload, [1, 20], 2), rows_of(workload)
    with pytest.raises(RuntimeError, match="theirs found"):
        rounds.ask("theirs", lambda texts: (right(texts)[1:], 3))


def test_values_of_several_pages_are_asked_for_to_the_end() -> None:
    page = ValuePage("by_city", "city", None, ["a", "b"], [0, 1], [None, None], "next")
    pages = {"": page, "next": replace(page, keys=["c"], values=[1], places=[None], next_token="")}
    assert all_keys(lambda column, values, token, limit: pages[token], ["x", "y"]) == ["a", "b", "c"]
