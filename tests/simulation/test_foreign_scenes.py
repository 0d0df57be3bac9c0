"""Random worlds beside another engine: what they leave out is said in the documentation, never silently."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from tests.simulation.world.foreign_scenes import KINDS, SWITCHED_OFF, switched_on
from tests.simulation.world.generate import _Author
from tests.simulation.world.script import FOREIGN

DOCS = Path(__file__).parents[2] / "docs" / "simulation.md"


def test_what_is_switched_off_is_listed_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_FOREIGN", raising=False)
    listed = DOCS.read_text().partition("| switched off |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(.+?)` \| (.+?) \|$", listed, re.MULTILINE)) == dict(SWITCHED_OFF)
    assert set(switched_on()) == set(KINDS) - set(SWITCHED_OFF)
    monkeypatch.setenv("TIDEMARK_FOREIGN", "all")
    assert switched_on() == list(KINDS)
    monkeypatch.setenv("TIDEMARK_FOREIGN", "clock,rows")
    assert switched_on() == ["rows", "clock"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_only_words_that_the_engine_knows(kind: str) -> None:
    for seed in range(20):
        author = _Author(seed)
        author.random = Random(seed)
        KINDS[kind](author)
        said = [event for event in author.events if event[0] == "foreign"]
        assert said
        assert all(event[1] in FOREIGN for event in said)
