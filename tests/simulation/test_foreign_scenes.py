"""The kinds of what another engine does in random worlds."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.simulation.world.foreign_scenes import (
    KINDS,
    changes_in_attempts_scene,
    chosen_kinds,
    has_changes_in_attempts,
    has_left_entries,
    left_entries_scene,
)
from tests.simulation.world.generate import _Author, generate
from tests.simulation.world.script import FOREIGN
from tests.simulation.world.with_stats import DRAWN, keeps_stats


def test_worlds_have_all_kinds_unless_some_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_FOREIGN", raising=False)
    assert chosen_kinds() == list(KINDS)
    monkeypatch.setenv("TIDEMARK_FOREIGN", "clock,rows")
    assert chosen_kinds() == ["rows", "clock"]
    monkeypatch.setenv("TIDEMARK_FOREIGN", "rows,colum")
    with pytest.raises(ValueError, match="the kinds are rows, in flight"):
        chosen_kinds()


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_only_words_that_the_engine_knows(kind: str) -> None:
    for seed in range(20):
        author = _Author(seed)
        author.random = Random(seed)
        KINDS[kind](author)
        said = [event for event in author.events if event[0] == "foreign"]
        assert said
        assert all(event[1] in FOREIGN for event in said)


def test_the_scene_of_left_entries_draws_from_its_own_stream_and_says_known_words() -> None:
    for seed in range(20):
        author = _Author(seed)
        drawn, state = author.random, author.random.getstate()
        left_entries_scene(author, seed)
        assert author.random is drawn
        assert drawn.getstate() == state
        said = [event[1] for event in author.events if event[0] == "foreign"]
        assert {"overwrite", "drop"} & set(said)
        assert set(said) <= set(FOREIGN)


def test_some_worlds_keep_stats_that_another_engine_changes() -> None:
    seeds = [seed for seed in range(1_000, 1_200) if keeps_stats(seed)]
    assert 10 < len(seeds) < 50
    assert not any(keeps_stats(seed) for seed in range(1_000))
    said = set[str]()
    for seed in seeds[:12]:
        script = generate(seed)
        assert script.setup.stats
        changes = [event for event in script.events if event[:2] == ("foreign", "stats")]
        said |= {event[2] for event in changes}
        assert len(changes) <= 3
    assert said == set(DRAWN)


def test_the_scene_of_changes_in_attempts_has_each_of_them_where_the_coordinator_was_last() -> None:
    said = set[str]()
    for seed in range(20):
        author = _Author(seed)
        changes_in_attempts_scene(author)
        for before, event in pairwise(author.events):
            if event[0] == "foreign" and before == ("step", "coordinator"):
                said.add(event[1])
    assert said == {"insert", "insert-into", "update", "delete", "move", "clean"} <= set(FOREIGN)


def test_changes_in_attempts_are_for_worlds_that_have_these_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_FOREIGN", raising=False)
    chosen = [seed for seed in range(1_000) if has_changes_in_attempts(seed)]
    assert 90 <= len(chosen) <= 150
    monkeypatch.setenv("TIDEMARK_FOREIGN", "rows,clock")
    assert not any(map(has_changes_in_attempts, chosen))


def test_left_entries_are_for_merge_on_read_where_partitions_may_be_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("TIDEMARK_FOREIGN", raising=False)
    chosen = [seed for seed in range(1_000) if has_left_entries(seed, is_log=True)]
    assert 90 <= len(chosen) <= 150
    assert not any(has_left_entries(seed, is_log=False) for seed in chosen)
    monkeypatch.setenv("TIDEMARK_FOREIGN", "rows,clock")
    assert not any(has_left_entries(seed, is_log=True) for seed in chosen)
