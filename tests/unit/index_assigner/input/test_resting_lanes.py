"""A lane whose topic seems to be another one rests, and is read on when it was the recorded one after all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.unit.index_assigner.shuffle_world import PLENTY, World, order
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_runtime.kafka.ports import Admin, TopicPartition

LANE = "orders-in:0"
_INPUT = TopicPartition("orders-in", 0)


class Looks:
    """What a look at the input topics finds: `stale` and `fails` are changed by the test."""

    def __init__(self) -> None:
        self.stale = False
        self.fails = False
        self.count = 0

    def __call__(self, _: Admin, logs: Iterable[str]) -> frozenset[str]:
        self.count += 1
        if self.fails:
            raise KafkaUnavailableError("no answer")
        return frozenset(logs) if self.stale else frozenset()


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def world() -> World:
    world = World()
    produce(world, ["a", "b"])
    return world


@pytest.fixture
def work(world: World, looks: Looks) -> ShuffleWork:
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20, stale=looks)
    return ShuffleWork(world.client, world.keyer, settings, world.clock)


def produce(world: World, keys: Iterable[str]) -> None:
    for key in keys:
        world.broker.produce(_INPUT, None, order(key), ())


def test_a_lane_that_rests_from_its_start_is_read_when_its_topic_is_back(
    world: World, looks: Looks, work: ShuffleWork
) -> None:
    looks.stale = True
    work.start({LANE: 0})
    assert work.gather(PLENTY, 0.0).records == 0
    looks.stale = False
    assert work.gather(PLENTY, 0.0).records == 0, "not before the next look is due"
    world.clock.advance(1.0)
    assert work.gather(PLENTY, 0.0).records == 2
    prepared = work.prepare("n")
    assert prepared is not None
    assert [(each.lane, each.start, each.next) for each in prepared.consumed] == [(LANE, 0, 2)]


def test_a_lane_that_rests_before_it_is_published_loses_and_repeats_nothing(
    world: World, looks: Looks, work: ShuffleWork
) -> None:
    work.start({LANE: 0})
    assert work.gather(PLENTY, 0.0).records == 2
    looks.stale = True
    assert work.prepare("n") is None
    looks.stale = False
    produce(world, ["c"])
    world.clock.advance(1.0)
    assert work.gather(PLENTY, 0.0).records == 3
    prepared = work.prepare("n")
    assert prepared is not None
    assert [(each.start, each.next) for each in prepared.consumed] == [(0, 3)]


def test_while_the_topic_is_another_one_it_is_looked_at_once_a_second(
    world: World, looks: Looks, work: ShuffleWork
) -> None:
    looks.stale = True
    work.start({LANE: 0})
    before = looks.count
    for _ in range(12):
        assert work.gather(PLENTY, 0.0).records == 0
        world.clock.advance(0.25)
    assert looks.count - before == 2, "after one second and after two"


def test_a_look_without_an_answer_is_made_again(world: World, looks: Looks, work: ShuffleWork) -> None:
    looks.stale = True
    work.start({LANE: 0})
    looks.stale, looks.fails = False, True
    world.clock.advance(1.0)
    with pytest.raises(KafkaUnavailableError):
        work.gather(PLENTY, 0.0)
    looks.fails = False
    world.clock.advance(1.0)
    assert work.gather(PLENTY, 0.0).records == 2


def test_a_lane_that_is_given_up_rests_no_more(world: World, looks: Looks, work: ShuffleWork) -> None:
    looks.stale = True
    work.start({LANE: 0})
    work.drop([LANE])
    looks.stale = False
    world.clock.advance(1.0)
    assert work.gather(PLENTY, 0.0).records == 0
