"""While the schema registry does not answer, input waits: nothing is lost, doubled or dead-lettered."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.index_assigner.avro_world import DictRegistry, decode, framed, record_schema
from tests.unit.index_assigner.shuffle_world import LANES, ORDERS, SHARDS, World, order, rules
from tidemark.config.model import UnknownFields
from tidemark.epoch_protocol.batches import decode_batch
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import RowTarget
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.plain_json import FramedJson, PlainJson
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.schema_registry.ports import JSON, StoredSchema

PLENTY = Budget(1_000_000, 1 << 30)
WRITER = record_schema("orders", {"id": "string", "day": "string", "at": "long"})


class AvroTable:
    """A table whose input is Avro, and a registry that is down."""

    def __init__(self) -> None:
        self.world, self.registry = World(), DictRegistry(down=True)
        self.registry.register(1, WRITER)
        target, generator = RowTarget.of(ORDERS, "_deleted", UnknownFields.DROP), rules().generator
        keys = AvroKeys(generator, target, self.registry, self.world.clock)
        decoder = AvroDecoder(target, {}, keys, self.registry, self.world.clock)
        self.keyer = RecordKeyer(rules(), decoder)

    def produce(self, partition: int, *keys: str) -> None:
        for key in keys:
            value = framed(1, WRITER, {"id": key, "day": "d", "at": 1})
            self.world.broker.produce(TopicPartition("orders-in", partition), None, value, ())

    def answers(self) -> None:
        self.registry.down = False
        self.world.clock.advance(10.0)


def keys_of_lane(lane: int, count: int) -> list[str]:
    keys = [f"k{i}" for i in range(count * LANES * 8)]
    shards = record_index_shard(keys, SHARDS)
    return [key for key, shard in zip(keys, shards, strict=True) if shard % LANES == lane][:count]


def test_the_shuffle_stage_keeps_what_it_gathered():
    table = AvroTable()
    names = table.world.names
    settings = ShuffleSettings(names, earliest, "s", 1 << 20, 1 << 20, 1 << 20)
    work = ShuffleWork(table.world.client, table.keyer, settings, table.world.clock)
    table.produce(0, "a", "b")
    table.produce(1, "c")
    work.start({"orders-in:0": 0, "orders-in:1": 0})
    while work.gather(PLENTY, 0.0).records < 3:
        pass
    for _ in range(2):
        with pytest.raises(InputWaitsError):
            work.prepare("n1")
    table.produce(0, "d")
    assert work.gather(PLENTY, 0.0).records == 4
    table.answers()
    prepared = work.prepare("n2")
    assert prepared is not None
    assert {part.lane: (part.start, part.next) for part in prepared.consumed} == {
        "orders-in:0": (0, 3),
        "orders-in:1": (0, 1),
    }
    sent = [decode_batch(m.value or b"") for m in prepared.messages]
    assert sorted(key for batch in sent for key in batch.column("_tm_key").to_pylist()) == list("abcd")
    assert work.prepare("n3") is None


def test_input_partitioned_by_shard_is_handed_out_once_it_can_be_decoded():
    table = AvroTable()
    source = ShardedInputSource(
        table.world.client,
        "orders-in",
        table.keyer,
        earliest,
        table.world.names.dead_letter,
        1 << 20,
        table.world.clock,
    )
    lanes = [keys_of_lane(lane, 4) for lane in range(LANES)]
    for lane, keys in enumerate(lanes):
        source.assign(str(lane), 0)
        table.produce(lane, *keys[:3])
    for _ in range(3):
        with pytest.raises(InputWaitsError):
            source.poll(PLENTY, 0.0)
    source.release("1")
    table.answers()
    slices = source.poll(PLENTY, 0.0)
    assert [(each.lane, each.start, each.next, each.rows) for each in slices] == [("0", 0, 3, 3)]
    source.assign("1", 0)
    table.produce(0, lanes[0][3])
    found: dict[str, tuple[int, int]] = {}
    while len(found) < 2:
        found.update({each.lane: (each.start, each.next) for each in source.poll(PLENTY, 0.0)})
    assert found == {"0": (3, 4), "1": (0, 3)}


def test_json_in_the_wire_format_is_read_behind_its_header():
    registry = DictRegistry({1: StoredSchema(JSON, "{}")})
    registry.register(2, WRITER)
    world = World()
    decoder = PlainJson(
        JsonDecoder(ORDERS, None, UnknownFields.DROP), rules().generator, FramedJson(registry, world.clock)
    )
    head = b"\x00\x00\x00\x00"
    values = [head + b"\x01" + order("a"), order("b"), head + b"\x02" + order("c"), head + b"\x01{"]
    decoded = decode(decoder, *values)
    assert decoded.rows.column("id").to_pylist() == ["a"]
    reasons = {each.position: each.reason for each in decoded.refused}
    assert reasons == {
        1: DeadLetterReason.NOT_FRAMED,
        2: DeadLetterReason.INCOMPATIBLE_SCHEMA,
        3: DeadLetterReason.NOT_JSON,
    }
    assert decoder.without_key(head + b'\x01{"id":null}', "id")[0] is DeadLetterReason.NULL_KEY
    registry.down = True
    with pytest.raises(InputWaitsError):
        decode(decoder, head + b"\x09{}")


def test_json_in_the_wire_format_needs_no_registry():
    decoder = PlainJson(
        JsonDecoder(ORDERS, None, UnknownFields.DROP), rules().generator, FramedJson(None, World().clock)
    )
    decoded = decode(decoder, b"\x00\x00\x00\x00\x63" + order("a"))
    assert decoded.rows.column("id").to_pylist() == ["a"]
    empty: Any = decoder.decode([], np.empty(0, np.int64))
    assert empty.rows.num_rows == 0
