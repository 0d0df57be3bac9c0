"""A lane whose topic seems to be another one rests, and is read on when it was the recorded one after all."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from tests.unit.index_assigner.shuffle_world import PLENTY, World, order, skipped
from tidemark.epoch_protocol.entries import Consumed
from tidemark.epoch_protocol.stopped_lanes import SkipOrder
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
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


@pytest.fixture
def broken(world: World) -> World:
    """Behind the two records nobody can read those at 2 and 3; the one at 4 is good."""
    produce(world, ["c", "d", "e"])
    world.broker.faults.make_unreadable(_INPUT, 2, 3)
    return world


def test_a_skip_takes_no_records_along_that_were_dropped_when_the_lane_came_to_rest(
    broken: World, looks: Looks, work: ShuffleWork
) -> None:
    """Records 0 and 1 are read and not published, then the lane stops at 2, and the order to skip comes."""
    wanted = SkipOrder("first", LANE, 2)
    work.start({LANE: 0})
    gather_until_stopped(broken, work)
    while not work.skip_results():
        work.skip([wanted])
        time.sleep(0.01)
    looks.stale = True
    assert work.prepare("stale") is None
    looks.stale = False
    assert work.prepare("at rest") is None, "it would count records 0 and 1, which were dropped, as consumed"
    assert not work.stopped_lanes(), "the lane is about to be read anew"
    gather_until_stopped(broken, work)
    prepared = work.prepare("good")
    assert prepared is not None
    assert prepared.consumed == [Consumed(LANE, 0, 2)]
    assert skipped(work, wanted).consumed == [Consumed(LANE, 2, 4)]


def test_a_lane_of_input_partitioned_by_shard_that_is_read_anew_does_not_stand_still(
    broken: World, looks: Looks
) -> None:
    """Otherwise the skip could take a range in which records were read meanwhile."""
    names, client = broken.names, broken.client
    source = ShardedInputSource(
        client, "orders-in", broken.keyer, earliest, names.dead_letter, 1 << 20, broken.clock, looks
    )
    source.assign("0", 0)
    while not source.stopped_lanes():
        source.poll(PLENTY, 0.0)
        broken.clock.advance(0.5)
    while not source.skip_results():
        source.skip([SkipOrder("first", "0", 2)])
        time.sleep(0.01)
    looks.stale = True
    assert source.poll(PLENTY, 0.0) == []
    looks.stale = False
    assert not source.stopped_lanes()
    broken.broker.faults._unreadable.clear()
    assert [(part.start, part.next) for part in source.poll(PLENTY, 0.0)] == [(2, 5)]


def gather_until_stopped(world: World, work: ShuffleWork) -> None:
    for _ in range(20):
        work.gather(PLENTY, 0.0)
        world.clock.advance(0.5)
        if work.stopped_lanes():
            return
    raise AssertionError("the lane does not stop")
