"""What a thousand scripts ask of their worlds, so that the generator cannot become poorer unseen. No world
runs here: what worlds reach is counted in `test_world`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.simulation.world.generate import generate
from tests.simulation.world.script import Event, Script, Setup

SCRIPTS: Final = 1_000
_ROWS: Final = frozenset({"up", "del", "null"})
_USUAL: Final = Setup()
_RICHER: Final = (
    *("partitioning", "partition", "keys", "topics", "format", "ttl_ms"),
    *("batch_bytes", "cache_bytes", "block_bytes"),
)


@pytest.fixture(scope="module")
def scripts() -> list[Script]:
    return [generate(seed) for seed in range(SCRIPTS)]


def fed(script: Script) -> list[Event]:
    return [event for event in script.events if event[0] == "feed"]


def differs(*names: str) -> Callable[[Script], bool]:
    return lambda script: any(getattr(script.setup, each) != getattr(_USUAL, each) for each in names)


def feeds(kind: str) -> Callable[[Script], bool]:
    return lambda script: any(event[1] == kind for event in fed(script))


def says(*words: str) -> Callable[[Script], bool]:
    return lambda script: any(event[: len(words)] == words for event in script.events)


@pytest.mark.parametrize(
    ("mean", "least"),
    [
        pytest.param(lambda script: len(fed(script)), 37.0, id="records"),
        pytest.param(lambda script: len({e[2] for e in fed(script) if e[1] in _ROWS}), 6.3, id="keys"),
        pytest.param(lambda script: len(script.events), 140.0, id="events"),
    ],
)
def test_scripts_have_so_much_on_average(
    scripts: list[Script], mean: Callable[[Script], int], least: float
) -> None:
    assert sum(map(mean, scripts)) / len(scripts) >= least


@pytest.mark.parametrize(
    ("has", "of_a_hundred"),
    [
        pytest.param(differs("batch_bytes"), 20, id="small batches"),
        pytest.param(differs("cache_bytes"), 20, id="small caches"),
        pytest.param(differs("block_bytes"), 20, id="small blocks"),
        pytest.param(differs(*_RICHER), 50, id="any richer setup"),
        pytest.param(differs("partitioning"), 7, id="input partitioned by lane"),
        pytest.param(differs("partition"), 7, id="partition columns"),
        pytest.param(differs("keys"), 6, id="composite key"),
        pytest.param(differs("topics"), 4, id="several topics"),
        pytest.param(differs("format"), 6, id="format"),
        pytest.param(differs("ttl_ms"), 6, id="tombstones end"),
        pytest.param(feeds("lost"), 7, id="unreadable batches"),
        pytest.param(feeds("deadly"), 5, id="deadly records"),
        pytest.param(says("grow"), 6, id="schema grows"),
        pytest.param(says("foreign", "update"), 15, id="another engine's update"),
        pytest.param(says("foreign", "delete"), 8, id="another engine's delete"),
        pytest.param(says("foreign", "move"), 8, id="another engine's move"),
        pytest.param(says("foreign", "insert-into"), 8, id="another engine's insert into a file group"),
        pytest.param(says("foreign", "column"), 8, id="another engine's column"),
    ],
)
def test_so_many_of_a_hundred_scripts_have_it(
    scripts: list[Script], has: Callable[[Script], bool], of_a_hundred: int
) -> None:
    assert 100 * sum(map(has, scripts)) >= of_a_hundred * len(scripts)


def test_small_sizes_are_of_several_kinds(scripts: list[Script]) -> None:
    for name, sizes in (("batch_bytes", 3), ("cache_bytes", 3), ("block_bytes", 3)):
        assert len({getattr(each.setup, name) for each in scripts} - {0}) == sizes, name
