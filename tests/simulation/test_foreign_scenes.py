"""The kinds of what another engine does in random worlds."""

from __future__ import annotations

from random import Random

import pytest

from tests.simulation.world.foreign_scenes import KINDS, chosen_kinds
from tests.simulation.world.generate import _Author
from tests.simulation.world.script import FOREIGN


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
