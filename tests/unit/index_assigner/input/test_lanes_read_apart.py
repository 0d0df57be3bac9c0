"""Suspect lanes, as both readers of input topics see what a careful reader finds."""

from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from testing.clock import ManualClock
from tests.unit.index_assigner.shuffle_world import LANES, World, order
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.state import FoldState
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, StopReason
from tidemark.index_assigner.assign.uncommitted_limits import UncommittedLimits
from tidemark.index_assigner.assign.work import AssignWork
from tidemark.index_assigner.input.careful_lanes import Found
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError
from tidemark.stream_runtime.kafka.ports import Isolation, Message, TopicPartition

PLENTY = Budget(1_000_000, 1 << 30)
SUSPECT = TopicPartition("orders-in", 1)


class Scripted:
    """`CarefulLanes` that find what a test says; a lane's records come from the broker."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.started: list[tuple[TopicPartition, int]] = []
        self.forgotten: list[TopicPartition] = []
        self.next: deque[Found] = deque()

    def start(self, place: TopicPartition, first: int) -> None:
        self.started.append((place, first))

    def forget(self, place: TopicPartition) -> None:
        self.forgotten.append(place)

    def found(self) -> Found | None:
        return self.next.popleft() if self.next else None

    def close(self) -> None:
        pass

    def records(self, first: int, after: int) -> list[Message]:
        reader = self._world.client.partition_reader(Isolation.READ_COMMITTED)
        reader.assign({SUSPECT: first})
        return reader.poll(after - first, 0.0)


@pytest.fixture
def world() -> World:
    """Each partition has records at 0 to 5."""
    world = World()
    for number in range(6):
        for partition in range(LANES):
            place = TopicPartition("orders-in", partition)
            world.broker.produce(place, None, order(f"p{partition}-{number}"), ())
    return world


@pytest.fixture
def careful(world: World) -> Scripted:
    return Scripted(world)


def shuffle(world: World, careful: Scripted) -> ShuffleWork:
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20, careful=careful)
    work = ShuffleWork(world.client, world.keyer, settings, world.clock)
    work.start({f"orders-in:{partition}": 0 for partition in range(LANES)}, ["orders-in:1"])
    return work


def consumed(world: World, work: ShuffleWork, rounds: int = 4) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for number in range(rounds):
        work.gather(PLENTY, 0.1)
        world.clock.advance(0.5)
        prepared = work.prepare(f"n{number}")
        for part in prepared.consumed if prepared is not None else ():
            found[part.lane] = (found.get(part.lane, (part.start, 0))[0], part.next)
    return found


def test_a_suspect_lane_is_read_apart_until_nothing_was_found_in_it(world: World, careful: Scripted) -> None:
    work = shuffle(world, careful)
    assert careful.started == [(SUSPECT, 0)]
    assert consumed(world, work) == {"orders-in:0": (0, 6)}
    careful.next.append(Found(SUSPECT, careful.records(0, 4)))
    assert consumed(world, work) == {"orders-in:1": (0, 4)}
    careful.next.append(Found(SUSPECT, next=4, is_over=True))
    assert consumed(world, work) == {"orders-in:1": (4, 6)}
    work.drop(["orders-in:1"])
    work.start({"orders-in:1": 6})
    assert careful.started == [(SUSPECT, 0)]


def test_a_deadly_record_stops_its_lane_behind_the_good_ones_and_a_skip_goes_on_apart(
    world: World, careful: Scripted
) -> None:
    work = shuffle(world, careful)
    careful.next += [Found(SUSPECT, careful.records(0, 2)), Found(SUSPECT, next=2, is_deadly=True)]
    assert consumed(world, work) == {"orders-in:0": (0, 6), "orders-in:1": (0, 2)}
    (stopped,) = work.stopped_lanes()
    assert (stopped.lane, stopped.offset, stopped.reason) == ("orders-in:1", 2, StopReason.DEADLY)
    assert "orders-in[1]" in stopped.sentence()
    world.broker.faults.make_unreadable(SUSPECT, 2, 3)

    def skipped() -> bool:
        work.skip([SkipOrder("first", "orders-in:1", 2)])
        return consumed(world, work, 1) == {"orders-in:1": (2, 4)}

    end = time.monotonic() + 60
    while not skipped():
        assert time.monotonic() < end, "not within 60 s"
        time.sleep(0.01)
    assert not work.stopped_lanes()
    # Nothing is read before the skip is published. What comes behind it may be deadly as well.
    assert careful.started == [(SUSPECT, 0)]
    work.gather(PLENTY, 0.0)
    assert careful.started == [(SUSPECT, 0), (SUSPECT, 4)]
    careful.next.append(Found(SUSPECT, careful.records(4, 6)))
    assert consumed(world, work) == {"orders-in:1": (4, 6)}


def test_a_lane_that_is_given_up_is_read_apart_no_more(world: World, careful: Scripted) -> None:
    work = shuffle(world, careful)
    work.drop(["orders-in:1"])
    assert careful.forgotten == [SUSPECT]


def test_with_input_partitioned_by_shard_it_is_the_same(world: World, careful: Scripted) -> None:
    source = ShardedInputSource(
        world.client,
        "orders-in",
        world.keyer,
        earliest,
        world.names.dead_letter,
        1 << 20,
        world.clock,
        careful=careful,
    )
    source.assign("1", 0, suspect=True)
    assert source.poll(PLENTY, 0.1) == []
    careful.next += [Found(SUSPECT, careful.records(0, 2)), Found(SUSPECT, next=2, is_deadly=True)]
    assert [(each.start, each.next) for each in source.poll(PLENTY, 0.1)] == [(0, 2)]
    assert source.poll(PLENTY, 0.1) == []
    (stopped,) = source.stopped_lanes()
    assert (stopped.lane, stopped.offset, stopped.reason) == ("1", 2, StopReason.DEADLY)


def test_markers_in_front_of_a_lane_are_told_and_records_are_not(world: World, careful: Scripted) -> None:
    producer = world.client.producer("upstream")
    producer.init()
    producer.begin()
    producer.produce(TopicPartition("orders-in", 0), b"aborted")
    producer.flush()
    producer.abort()
    work = shuffle(world, careful)
    assert not work.empty_ranges()
    work.gather(PLENTY, 0.1)
    assert not work.empty_ranges(), "records wait"
    assert consumed(world, work) == {"orders-in:0": (0, 6)}
    assert work.empty_ranges() == [EmptyRange("orders-in", 0, 6, 8)]
    world.broker.produce(TopicPartition("orders-in", 0), None, order("later"), ())
    assert consumed(world, work) == {"orders-in:0": (6, 9)}
    assert not work.empty_ranges()


def test_a_suspect_lane_without_a_record_is_read_with_the_others(world: World, careful: Scripted) -> None:
    """Nobody died of what is not there: else idle lanes would wait for each other at each start."""
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20, careful=careful)
    work = ShuffleWork(world.client, world.keyer, settings, world.clock)
    work.start({"orders-in:0": 6, "orders-in:1": 5}, ["orders-in:0", "orders-in:1"])
    assert careful.started == [(SUSPECT, 5)]
    world.broker.produce(TopicPartition("orders-in", 0), None, order("later"), ())
    assert consumed(world, work) == {"orders-in:0": (6, 7)}


def test_suspects_that_cannot_be_opened_yet_stay_suspects_when_others_start() -> None:
    """Opening a lane may have to wait for the table's files; more lanes are claimed meanwhile."""
    assigned: list[tuple[str, int, bool]] = []
    waits = [KafkaUnavailableError("not now")]

    def open_lanes(*_: object) -> None:
        if waits:
            raise waits.pop()

    def assign(*args: object) -> None:
        assigned.append(args)  # type: ignore[arg-type]

    parts: Any = SimpleNamespace(
        clock=ManualClock(),
        folds=SimpleNamespace(fold=SimpleNamespace(state=FoldState())),
        opener=SimpleNamespace(open=open_lanes),
        index=SimpleNamespace(close_lane=lambda _: None),
        source=SimpleNamespace(assign=assign, release=lambda _: None),
    )
    work = AssignWork(parts)
    work.start({"0": 3, "1": 4}, ["1"])
    assert assigned == []
    work.start({"2": 5})
    assert assigned == [("0", 3, False), ("1", 4, True), ("2", 5, False)]


def test_no_lane_is_read_while_a_skipped_range_waits_to_be_published() -> None:
    """What lies behind it may end the process, and the skip with it."""
    letter: Any = SimpleNamespace(key=None, value=b"x")
    ranges = [[KeyedSlice("0", 3, 5, [], [letter], ends_transaction=True)], []]
    parts: Any = SimpleNamespace(
        clock=ManualClock(),
        folds=SimpleNamespace(fold=SimpleNamespace(state=FoldState())),
        index=SimpleNamespace(uncommitted_entries=lambda: 0, uncommitted_memory=lambda: 0),
        source=SimpleNamespace(poll=lambda *_: ranges.pop(0)),
        lookups=SimpleNamespace(wait_s=lambda timeout_s: timeout_s),
        uncommitted=UncommittedLimits(1_000),
    )
    work = AssignWork(parts)
    for _ in range(3):
        gathered = work.gather(PLENTY, 0.0)
    assert (gathered.records, gathered.drained, len(ranges)) == (1, True, 1)
