"""Input that was deleted before it was read stops its lane alone: both readers of input topics."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.unit.index_assigner.shuffle_world import LANES, PLENTY, World, order, skipped
from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    Consumed,
    LanesClaimed,
    Skipped,
    Stage,
    encode_entry,
)
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StopReason
from tidemark.errors import ErrorKind
from tidemark.index_assigner.errors import InputLostError
from tidemark.index_assigner.input.deleted_input import LedgerRead, always_read, read_by
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import ClaimFacts
from tidemark.stream_runtime.kafka.errors import KafkaError
from tidemark.stream_runtime.kafka.ports import TopicPartition

TRIMMED = TopicPartition("orders-in", 1)
ORDER = SkipOrder("first", "orders-in:1", 2)


@pytest.fixture
def world() -> World:
    """Each partition has records at 0 to 5; those at 0 to 3 of one of them are deleted."""
    world = World()
    produce(world, 6)
    world.admin.delete_records({TRIMMED: 4})
    return world


def produce(world: World, count: int) -> None:
    for number in range(count):
        for partition in range(LANES):
            key = f"p{partition}-{number}"
            world.broker.produce(TopicPartition("orders-in", partition), None, order(key), ())


def shuffle(world: World, ledger_read: LedgerRead = always_read) -> ShuffleWork:
    """Lanes go on at offset 2: where the ledger has them."""
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20, ledger_read=ledger_read)
    work = ShuffleWork(world.client, world.keyer, settings, world.clock)
    work.start({f"orders-in:{partition}": 2 for partition in range(LANES)})
    return work


def sharded(world: World) -> ShardedInputSource:
    source = ShardedInputSource(
        world.client, "orders-in", world.keyer, earliest, world.names.dead_letter, 1 << 20, world.clock
    )
    for lane in range(LANES):
        source.assign(str(lane), 2)
    return source


def consumed(world: World, work: ShuffleWork, rounds: int = 6) -> dict[str, tuple[int, int]]:
    """Per lane first and next of all transactions."""
    found: dict[str, tuple[int, int]] = {}
    for number in range(rounds):
        work.gather(PLENTY, 0.0)
        prepared = work.prepare(f"n{number}")
        for part in prepared.consumed if prepared is not None else ():
            found[part.lane] = (found.get(part.lane, (part.start, 0))[0], part.next)
    return found


def test_the_lane_stops_with_offset_and_low_watermark_and_the_others_go_on(world: World) -> None:
    work = shuffle(world)
    assert consumed(world, work) == {"orders-in:0": (2, 6)}
    (stopped,) = work.stopped_lanes()
    assert (stopped.stage, stopped.lane, stopped.topic, stopped.partition) == (
        Stage.SHUFFLE,
        "orders-in:1",
        *TRIMMED,
    )
    assert (stopped.offset, stopped.reason) == (2, StopReason.DELETED)
    assert "2 offsets, 2 to 3, were deleted before they were read" in stopped.sentence()
    assert "starts at offset 4 (its low watermark)" in stopped.sentence()
    produce(world, 1)
    assert consumed(world, work) == {"orders-in:0": (6, 7)}
    assert work.stopped_lanes() == [stopped]


def test_all_lanes_are_found_where_several_are_out_of_range(world: World) -> None:
    world.admin.delete_records({TopicPartition("orders-in", 0): 6})
    work = shuffle(world)
    assert consumed(world, work) == {}
    assert {each.lane: each.offset for each in work.stopped_lanes()} == {"orders-in:0": 2, "orders-in:1": 2}


def test_what_was_read_before_the_deletion_is_in_the_table(world: World) -> None:
    """The lane stands behind what it has read."""
    work = shuffle(world)
    work.start({"orders-in:1": 4})
    assert consumed(world, work) == {"orders-in:0": (2, 6), "orders-in:1": (4, 6)}
    produce(world, 3)
    world.admin.delete_records({TRIMMED: 8})
    assert consumed(world, work) == {"orders-in:0": (6, 9)}
    assert [each.offset for each in work.stopped_lanes()] == [6]


def test_a_skip_consumes_what_is_deleted_by_then_with_one_dead_letter(world: World) -> None:
    work = shuffle(world)
    consumed(world, work)
    # Retention goes on while the lane stands.
    world.admin.delete_records({TRIMMED: 5})
    prepared = skipped(work, ORDER)
    assert prepared.consumed == [Consumed("orders-in:1", 2, 5)]
    (letter,) = prepared.messages
    headers = dict(letter.headers)
    assert (headers["tm-reason"], headers["tm-offset"], letter.value) == (b"skipped", b"2", None)
    assert b"3 offsets, 2 to 4, were deleted before they were read" in headers["tm-detail"]
    entry = prepared.build_entry([7], ClaimFacts(0, {"orders-in:1": 3}, 0))
    assert isinstance(entry, BatchShuffled)
    assert (entry.records, entry.dead_letters, entry.produced) == (1, 1, [])
    assert entry.skipped == [Skipped("orders-in:1", 2, 4)]
    assert work.skip_results() == [SkipResult("first", 2, 4)]
    assert not work.stopped_lanes()
    assert consumed(world, work) == {"orders-in:1": (5, 6)}


def test_nothing_is_skipped_by_itself_nor_at_another_offset(world: World) -> None:
    work = shuffle(world)
    consumed(world, work)
    work.skip([SkipOrder("wrong", "orders-in:1", 4)])
    assert consumed(world, work, 20) == {}
    assert [each.offset for each in work.stopped_lanes()] == [2]
    work.drop(["orders-in:1"])
    assert not work.stopped_lanes()
    work.start({"orders-in:1": 2})
    assert consumed(world, work) == {}
    assert [each.offset for each in work.stopped_lanes()] == [2]


def test_a_topic_that_was_made_again_meanwhile_is_not_skipped(world: World) -> None:
    work = shuffle(world)
    consumed(world, work)
    world.broker.log(TRIMMED).start = 0
    for _ in range(1_200):
        work.skip([ORDER])
        if work.skip_results():
            break
        time.sleep(0.05)
    (result,) = work.skip_results()
    assert "offset 2 is not deleted" in result.failure
    assert consumed(world, work) == {}


def test_a_question_that_kafka_does_not_answer_is_asked_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = shuffle(world)
    work.gather(PLENTY, 0.0)
    world.broker.stop()
    for _ in range(4):
        with pytest.raises(KafkaError) as told:
            work.gather(PLENTY, 0.0)
        assert told.value.kind is ErrorKind.RETRYABLE
    world.broker.start()
    assert consumed(world, work) == {"orders-in:0": (2, 6)}
    assert [each.offset for each in work.stopped_lanes()] == [2]


def test_a_partition_that_ends_before_the_position_ends_the_service(world: World) -> None:
    """Its newest records are lost: nothing tells where to go on."""
    work = shuffle(world)
    work.start({"orders-in:0": 9})
    with pytest.raises(InputLostError, match=r"orders-in\[0\] ends at offset 6.*--new-ledger"):
        consumed(world, work)


def test_who_slept_while_a_successor_read_on_lost_nothing(world: World) -> None:
    """Retention deleted behind the successor: nothing is said before its claim in the ledger is read."""
    folds = world.fold_reader()
    work = shuffle(world, read_by(folds, world.client, world.names.ledger_partition))
    producer = world.client.producer("successor")
    producer.init()
    producer.begin()
    claim = LanesClaimed(Stage.SHUFFLE, ["orders-in:1"], 0, 1, "successor")
    producer.produce(world.names.ledger_partition, encode_entry(claim))
    producer.flush()
    producer.commit()
    assert consumed(world, work) == {"orders-in:0": (2, 6)}
    assert not work.stopped_lanes()
    folds.poll(0.0)
    work.drop(["orders-in:1"])
    assert consumed(world, work) == {}
    assert not work.stopped_lanes()
    work.start({"orders-in:1": 2})
    consumed(world, work)
    assert [each.offset for each in work.stopped_lanes()] == [2], (
        "it is the lane's owner again, and has read so"
    )


def until(poll: Callable[[], list[KeyedSlice]]) -> list[KeyedSlice]:
    for _ in range(1_200):
        found = poll()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("nothing comes")


def test_a_lane_of_input_partitioned_by_shard_stops_and_is_skipped_alike(world: World) -> None:
    source = sharded(world)
    last: dict[str, int] = {}
    for _ in range(6):
        last |= {each.lane: each.next for each in source.poll(PLENTY, 0.0)}
    assert last == {"0": 6}
    (stopped,) = source.stopped_lanes()
    assert (stopped.stage, stopped.lane, stopped.topic, stopped.partition) == (Stage.ASSIGN, "1", *TRIMMED)
    assert (stopped.offset, stopped.reason) == (2, StopReason.DELETED)

    def poll() -> list[KeyedSlice]:
        source.skip([SkipOrder("first", "1", 2)])
        return source.poll(PLENTY, 0.0)

    (slice_,) = until(poll)
    assert (slice_.lane, slice_.start, slice_.next, slice_.records) == ("1", 2, 4, 1)
    assert b"2 offsets, 2 to 3, were deleted" in dict(slice_.dead_letters[0].headers)["tm-detail"]
    assert not source.stopped_lanes()
    assert [(each.lane, each.start, each.next) for each in source.poll(PLENTY, 0.0)] == [("1", 4, 6)]


def test_a_lane_of_input_partitioned_by_shard_that_is_released_stands_still_no_more(world: World) -> None:
    source = sharded(world)
    for _ in range(6):
        source.poll(PLENTY, 0.0)
    assert len(source.stopped_lanes()) == 1
    source.release("1")
    assert not source.stopped_lanes()
