"""Without the hop: the input topic's partition is the lane, decoded and checked where it is read."""

from __future__ import annotations

import pytest

from testing.memory_storage import InMemoryStorage
from tests.unit.index_assigner.shuffle_world import LANES, SHARDS, World, order
from tidemark.config.model import InputStart
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.input.positions import INPUT_STARTS_RECORD, StartOf, earliest, start_of
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ports import TopicPartition

PLENTY = Budget(1_000_000, 1 << 30)


def source(world: World, start: StartOf = earliest) -> ShardedInputSource:
    return ShardedInputSource(
        world.client,
        "orders-in",
        world.keyer,
        start,
        world.names.dead_letter,
        record_bytes_max=1 << 20,
        clock=world.clock,
    )


def keys_for(lane: int, count: int) -> list[str]:
    keys = [f"k{i}" for i in range(count * LANES * 8)]
    shards = record_index_shard(keys, SHARDS)
    return [k for k, s in zip(keys, shards, strict=True) if s % LANES == lane][:count]


def produce(world: World, lane: int, *values: bytes | None, key: bytes | None = None) -> None:
    for value in values:
        world.broker.produce(TopicPartition("orders-in", lane), key, value, ())


def test_rows_and_dead_letters_of_a_lane_cover_its_range():
    world = World()
    good = keys_for(1, 3)
    produce(world, 1, order(good[0]), b"{", order(good[1]), order(good[2]))
    reader = source(world)
    reader.assign("1", 0)
    (slice_,) = reader.poll(PLENTY, 0.0)
    assert (slice_.lane, slice_.start, slice_.next, slice_.rows, slice_.records) == ("1", 0, 4, 3, 4)
    assert slice_.batches[0].column("_tm_key").to_pylist() == good
    assert dict(slice_.dead_letters[0].headers)["tm-offset"] == b"1"
    assert reader.poll(PLENTY, 0.0) == []


def test_a_record_in_another_lane_is_refused_and_names_the_right_one():
    world = World()
    (wrong,) = keys_for(0, 1)
    produce(world, 1, order(wrong))
    reader = source(world)
    reader.assign("1", 0)
    (slice_,) = reader.poll(PLENTY, 0.0)
    assert (slice_.rows, len(slice_.dead_letters)) == (0, 1)
    headers = dict(slice_.dead_letters[0].headers)
    assert headers["tm-reason"] == b"wrong-lane"
    assert b"lane 0" in headers["tm-detail"]


def test_a_null_value_in_its_lane_deletes_its_kafka_key():
    world = World()
    (key,) = keys_for(0, 1)
    produce(world, 0, None, key=key.encode())
    reader = source(world)
    reader.assign("0", 0)
    (slice_,) = reader.poll(PLENTY, 0.0)
    row = slice_.batches[0].to_pylist()[0]
    assert (row["_tm_key"], row["_tm_op"], row["_tm_ordering"], row["_tm_partition"]) == (key, 1, None, None)


def test_slices_follow_each_other_under_a_small_budget():
    world = World()
    keys = keys_for(0, 10)
    produce(world, 0, *(order(key) for key in keys))
    reader = source(world)
    reader.assign("0", 0)
    slices = []
    for _ in range(10):
        slices += reader.poll(Budget(3, 1 << 20), 0.0)
    assert [s.start for s in slices] == [0, *[s.next for s in slices[:-1]]]
    assert max(s.rows for s in slices) == 3
    assert [k for s in slices for b in s.batches for k in b.column("_tm_key").to_pylist()] == keys


def test_latest_starts_where_the_ledger_began_and_a_counted_position_overrules_it():
    world = World()
    keys = keys_for(0, 4)
    produce(world, 0, *(order(key) for key in keys[:2]))
    storage = InMemoryStorage()
    reader = source(world, start_of(InputStart.LATEST, storage))
    with pytest.raises(SetupError, match="orders-in:0"):
        reader.assign("0", 0)
    storage.create(INPUT_STARTS_RECORD, b'{"orders-in:0": 2}')
    produce(world, 0, *(order(key) for key in keys[2:]))
    reader.assign("0", 0)
    (slice_,) = reader.poll(PLENTY, 0.0)
    assert (slice_.start, slice_.next) == (2, 4)
    reader.assign("0", 1)
    (again,) = reader.poll(PLENTY, 0.0)
    assert (again.start, again.next) == (1, 4)
