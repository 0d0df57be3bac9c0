"""A partition that cannot be read at an offset stops that lane alone: both readers of input topics."""

from __future__ import annotations

import time

import pytest

from tests.unit.index_assigner.shuffle_world import LANES, PLENTY, World, order, skipped
from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    Consumed,
    Skipped,
    Stage,
    decode_ledger_entry,
    encode_entry,
)
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane, StopReason
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import ClaimFacts
from tidemark.stream_runtime.kafka.ports import TopicPartition

BROKEN = TopicPartition("orders-in", 1)


@pytest.fixture
def world() -> World:
    """Each partition has records at 0 to 5; nobody can read those at 2 to 4 of one of them."""
    world = World()
    for number in range(6):
        for partition in range(LANES):
            key = f"p{partition}-{number}"
            world.broker.produce(TopicPartition("orders-in", partition), None, order(key), ())
    world.broker.faults.make_unreadable(BROKEN, 2, 4)
    return world


def shuffle(world: World) -> ShuffleWork:
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20)
    work = ShuffleWork(world.client, world.keyer, settings, world.clock)
    work.start({f"orders-in:{partition}": 0 for partition in range(LANES)})
    return work


def consumed(world: World, work: ShuffleWork, rounds: int) -> dict[str, tuple[int, int]]:
    """Per lane first and next of all transactions."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(rounds):
        work.gather(PLENTY, 0.5)
        world.clock.advance(0.5)
        prepared = work.prepare(f"n{number}")
        for part in prepared.consumed if prepared is not None else ():
            found[part.lane] = (found.get(part.lane, (part.start, 0))[0], part.next)
    return found


def test_a_lane_stops_before_the_batch_and_the_others_go_on(world: World) -> None:
    work = shuffle(world)
    assert consumed(world, work, 20) == {f"orders-in:{p}": (0, 2 if p == 1 else 6) for p in range(LANES)}
    (stopped,) = work.stopped_lanes()
    assert (stopped.stage, stopped.lane, stopped.topic, stopped.partition) == (
        Stage.SHUFFLE,
        "orders-in:1",
        *BROKEN,
    )
    assert (stopped.offset, stopped.reason) == (2, StopReason.UNREADABLE)
    assert "orders-in[1]" in stopped.sentence()
    world.broker.produce(TopicPartition("orders-in", 0), None, order("later"), ())
    assert consumed(world, work, 3) == {"orders-in:0": (6, 7)}
    assert work.stopped_lanes() == [stopped]


def test_a_batch_that_can_be_read_the_next_time_stops_nothing(world: World) -> None:
    work = shuffle(world)
    work.gather(PLENTY, 0.5)
    for _ in range(3):
        work.gather(PLENTY, 0.0)
    assert not work.stopped_lanes()
    world.broker.faults._unreadable.clear()
    assert consumed(world, work, 20)["orders-in:1"] == (0, 6)
    assert not work.stopped_lanes()


def test_a_lane_that_is_given_up_does_not_stand_still_here_any_more(world: World) -> None:
    work = shuffle(world)
    consumed(world, work, 20)
    work.drop(["orders-in:1"])
    assert not work.stopped_lanes()
    work.start({"orders-in:1": 2})
    consumed(world, work, 20)
    assert [each.offset for each in work.stopped_lanes()] == [2]


def test_a_lane_of_input_partitioned_by_shard_stops_alike(world: World) -> None:
    source = ShardedInputSource(
        world.client, "orders-in", world.keyer, earliest, world.names.dead_letter, 1 << 20, world.clock
    )
    for lane in range(LANES):
        source.assign(str(lane), 0)
    last: dict[str, int] = {}
    for _ in range(20):
        last |= {each.lane: each.next for each in source.poll(PLENTY, 0.5)}
        world.clock.advance(0.5)
    assert last == {str(lane): 2 if lane == 1 else 6 for lane in range(LANES)}
    stopped = source.stopped_lanes()
    assert stopped == [
        StoppedLane(
            Stage.ASSIGN, "1", *BROKEN, 2, StopReason.UNREADABLE, stopped[0].detail, stopped[0].since_ms
        )
    ]
    source.release("1")
    assert not source.stopped_lanes()


ORDER = SkipOrder("first", "orders-in:1", 2)


def test_a_skip_is_a_consumed_range_with_one_dead_letter_and_the_lane_goes_on(world: World) -> None:
    work = shuffle(world)
    consumed(world, work, 20)
    prepared = skipped(work, ORDER)
    assert prepared.consumed == [Consumed("orders-in:1", 2, 5)]
    (letter,) = prepared.messages
    headers = dict(letter.headers)
    assert (headers["tm-reason"], headers["tm-offset"], letter.value) == (b"skipped", b"2", None)
    assert b"offsets 2 to 4 were skipped" in headers["tm-detail"]
    entry = prepared.build_entry([7], ClaimFacts(0, {"orders-in:1": 3}, 0))
    assert isinstance(entry, BatchShuffled)
    assert (entry.records, entry.dead_letters, entry.produced) == (1, 1, [])
    assert entry.skipped == [Skipped("orders-in:1", 2, 4)]
    assert decode_ledger_entry(encode_entry(entry)) == entry
    assert work.skip_results() == [SkipResult("first", 2, 4)]
    assert not work.stopped_lanes()
    work.skip([ORDER])
    assert consumed(world, work, 5) == {"orders-in:1": (5, 6)}


def test_a_skip_does_not_wait_for_a_pause_of_the_other_lanes(world: World) -> None:
    """At some hundred records a second there is none."""
    work = shuffle(world)
    consumed(world, work, 20)
    found: dict[str, list[Consumed]] = {"orders-in:0": [], "orders-in:1": []}
    deadline = time.monotonic() + 60
    for number in range(1_000_000):
        world.broker.produce(TopicPartition("orders-in", 0), None, order(f"busy{number}"), ())
        work.skip([ORDER])
        work.gather(PLENTY, 0.0)
        prepared = work.prepare(f"n{number}")
        for part in prepared.consumed if prepared is not None else ():
            found[part.lane].append(part)
        if found["orders-in:1"]:
            break
        assert time.monotonic() < deadline, "not skipped within 60 s"
        time.sleep(0.01)
    assert prepared is not None
    assert prepared.consumed == found["orders-in:1"] == [Consumed("orders-in:1", 2, 5)]
    assert work.gather(PLENTY, 0.0).drained, "what is gathered comes first, before more is read"
    following = work.prepare("next")
    assert following is not None
    ranges = [*found["orders-in:0"], *following.consumed]
    assert [part.start for part in ranges] == [6, *(part.next for part in ranges[:-1])]
    assert ranges[-1].next == number + 7
    assert consumed(world, work, 5) == {"orders-in:1": (5, 6)}


def test_who_asks_again_is_told_of_the_range_that_is_on_its_way(world: World) -> None:
    work = shuffle(world)
    consumed(world, work, 20)
    prepared = skipped(work, ORDER)
    work.skip([ORDER._replace(id="second")])
    assert work.skip_results() == [SkipResult("first", 2, 4), SkipResult("second", 2, 4)]
    work.drop([prepared.consumed[0].lane])
    work.skip([ORDER._replace(id="third")])
    assert len(work.skip_results()) == 2, "the next owner has to find it"


def test_nothing_behind_a_skip_is_fetched_before_it_is_published(world: World) -> None:
    """It may end whoever fetches it, and the skip would be lost with the process."""
    work = shuffle(world)
    consumed(world, work, 20)
    skipped(work, ORDER)
    with pytest.raises(KeyError):
        work._reader.position(BROKEN)
    work.gather(PLENTY, 0.0)
    assert work._reader.position(BROKEN) >= 5


def test_a_skip_whose_transaction_does_not_count_is_done_again(world: World) -> None:
    work = shuffle(world)
    consumed(world, work, 20)
    first = skipped(work, ORDER)
    work.drop(["orders-in:1"])
    work.start({"orders-in:1": 2})
    consumed(world, work, 20)
    again = skipped(work, ORDER)
    assert again.consumed == first.consumed
    assert [each.headers for each in again.messages] == [each.headers for each in first.messages]


def test_an_order_for_another_offset_or_lane_is_passed_over(world: World) -> None:
    work = shuffle(world)
    consumed(world, work, 20)
    for wrong in (SkipOrder("a", "orders-in:1", 3), SkipOrder("b", "orders-in:0", 6)):
        work.skip([wrong])
        assert work.gather(PLENTY, 0.0).records == 0
    assert not work.skip_results()
    assert len(work.stopped_lanes()) == 1


def test_entries_of_former_versions_have_no_skipped_ranges() -> None:
    old = (
        b'{"type":"batch_shuffled","slot":0,"nonce":"n","terms":{},"consumed":[],"produced":[],"records":1,'
        b'"dead_letters":0}'
    )
    entry = decode_ledger_entry(old)
    assert isinstance(entry, BatchShuffled)
    assert entry.skipped == []


def test_a_lane_of_input_partitioned_by_shard_is_skipped_alike(world: World) -> None:
    source = ShardedInputSource(
        world.client, "orders-in", world.keyer, earliest, world.names.dead_letter, 1 << 20, world.clock
    )
    source.assign("1", 0)
    for _ in range(20):
        source.poll(PLENTY, 0.5)
        world.clock.advance(0.5)
    wanted = SkipOrder("first", "1", 2)
    found: list[KeyedSlice] = []
    for _ in range(1_200):
        source.skip([wanted])
        found = source.poll(PLENTY, 0.0)
        if found:
            break
        time.sleep(0.05)
    (slice_,) = found
    assert (slice_.lane, slice_.start, slice_.next, slice_.records) == ("1", 2, 5, 1)
    assert slice_.ends_transaction
    with pytest.raises(KeyError):
        source._reader.position(BROKEN)
    assert not source.stopped_lanes()
    assert [(each.start, each.next) for each in source.poll(PLENTY, 0.5)] == [(5, 6)]
