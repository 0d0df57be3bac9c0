"""While the assign stage of a process waits for its index, the shuffle stage reads nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.index_assigner.assign.test_lane_opening import Rig
from tests.unit.index_assigner.shuffle_world import World, order
from tidemark.index_assigner.awaited_index import AwaitedIndex
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget, Gathered
from tidemark.stream_runtime.kafka.ports import TopicPartition

PLENTY = Budget(1_000_000, 1 << 30)


@pytest.fixture
def index() -> AwaitedIndex:
    return AwaitedIndex()


@pytest.fixture
def work(index: AwaitedIndex) -> ShuffleWork:
    """Reads a lane of three records."""
    world = World()
    for number in range(3):
        world.broker.produce(TopicPartition("orders-in", 0), None, order(f"k{number}"), ())
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20, may_read=index.is_over)
    work = ShuffleWork(world.client, world.keyer, settings, world.clock)
    work.start({"orders-in:0": 0})
    return work


def test_nothing_is_read_while_the_index_is_waited_for(index: AwaitedIndex, work: ShuffleWork) -> None:
    with index.waiting():
        assert work.gather(PLENTY, 0.001) == Gathered(0, 0)
        assert work.prepare("n0") is None
    assert work.gather(PLENTY, 0.001).records == 3


def test_what_was_read_before_is_published_meanwhile(index: AwaitedIndex, work: ShuffleWork) -> None:
    read = work.gather(PLENTY, 0.001)
    with index.waiting():
        waiting = work.gather(PLENTY, 0.1)
        assert (waiting.records, waiting.drained) == (read.records, True)
        prepared = work.prepare("n0")
    assert prepared is not None
    assert [part.next for part in prepared.consumed] == [3]


def test_it_is_read_on_also_when_the_wait_ends_by_an_error(index: AwaitedIndex, work: ShuffleWork) -> None:
    with pytest.raises(OSError, match="disk"), index.waiting():
        raise OSError("the disk is full")
    assert work.gather(PLENTY, 0.001).records == 3


def test_shards_that_are_filled_are_waited_for(index: AwaitedIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    rig, seen = Rig(), list[bool]()
    opened: Any = lambda *_: seen.append(index.is_over(0))  # noqa: E731
    monkeypatch.setattr(rig.index, "open_lane", opened)
    monkeypatch.setattr(rig.opener, "_waiting", index.waiting)
    rig.open()
    assert seen == [False]
    assert index.is_over(0)
