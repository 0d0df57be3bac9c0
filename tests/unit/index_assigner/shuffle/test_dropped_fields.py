"""Fields that the schema lacks are left out, and never in silence: every format counts the records."""

from __future__ import annotations

import json
import logging
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tests.unit.index_assigner.shuffle_world import ORDERS, World, order, rules
from tidemark.config.model import UnknownFields
from tidemark.epoch_protocol.dropped_fields import DroppedField, dropped_fields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.dropped_fields import DroppedFields, field_counts
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.record_formats.avro_columns import fields_beyond
from tidemark.record_formats.avro_schema import read_avro_schema
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import DROPPED_MAX, MORE_FIELDS, DecodedRecords
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition, TopicSpec

INNER = pa.struct([pa.field("n", pa.int64()), pa.field("deep", pa.struct([pa.field("m", pa.int64())]))])
COLUMNS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("one", INNER),
        pa.field("many", pa.list_(INNER)),
        pa.field("named", pa.map_(pa.string(), INNER)),
    ]
)
SCHEMA = TableSchema.from_arrow("t", COLUMNS)


def decoder(unknown: UnknownFields = UnknownFields.DROP) -> JsonDecoder:
    return JsonDecoder(SCHEMA, None, unknown)


def decode(made: JsonDecoder, *records: Any) -> DecodedRecords:
    values = [each if isinstance(each, bytes) else json.dumps(each).encode() for each in records]
    return made.decode(values, np.arange(len(values)))


def found(decoded: DecodedRecords) -> dict[str, list[int]]:
    return {name: sorted(at.tolist()) for name, at in decoded.dropped.items()}


def test_a_batch_without_unknown_fields_drops_nothing() -> None:
    assert found(decode(decoder(), {"id": "a"}, {"id": "b", "one": {"n": 1}})) == {}


def test_each_unknown_field_is_told_with_its_records_also_where_it_was_met_first() -> None:
    made = decoder()
    decoded = decode(made, {"id": "a"}, {"id": "b", "x": 1, "y": [1]}, {"id": "c", "y": None}, {"id": "d"})
    assert found(decoded) == {"x": [1], "y": [1, 2]}
    assert decoded.rows.column("id").to_pylist() == ["a", "b", "c", "d"]
    assert not decoded.refused
    assert found(decode(made, {"id": "e", "x": "\u00e9"}, {"id": "f"})) == {"x": [0]}


def test_fields_of_nested_records_are_told_with_their_path() -> None:
    decoded = decode(
        decoder(),
        {"id": "a", "one": {"n": 1, "x": 1}},
        {"id": "b", "many": [{"n": 1}, None, {"deep": {"m": 1, "x": 1}}, {"deep": {"x": 1}}]},
        {"id": "c", "named": {"k": {"x": 1}, "l": {"x": 1}}, "x": 1},
        {"id": "d", "one": None, "many": None, "named": {}},
    )
    assert found(decoded) == {"one.x": [0], "many[].deep.x": [1], "named[].x": [2], "x": [2]}
    assert decoded.rows.num_rows == 4
    assert decoded.rows.column("many")[1].as_py()[2] == {"n": None, "deep": {"m": 1}}


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "x" * 1_000, "` - at `$.one", "", "$.one", "é`"])
def test_a_strange_name_is_told_and_its_record_taken(name: str) -> None:
    made = decoder()
    decoded = decode(made, {"id": "a", name: 1}, {"id": "b", "one": {name: 2}, "z": 1}, {"id": "c", name: 1})
    assert decoded.rows.column("id").to_pylist() == ["a", "b", "c"]
    assert not decoded.refused
    told = found(decoded)
    assert told.pop("z", [1]) == [1]
    assert sorted({at for each in told.values() for at in each}) == [0, 1, 2]
    assert all(each.isprintable() and len(each) < 300 for each in told)


def test_more_fields_than_are_told_apart_end_in_one_name_and_every_record_is_taken() -> None:
    made = decoder()
    for batch in range(3):
        decoded = decode(made, *({"id": str(i), f"f{batch}-{i}": 1} for i in range(DROPPED_MAX)))
        assert decoded.rows.num_rows == DROPPED_MAX
        assert not decoded.refused
        assert len(decoded.dropped) <= DROPPED_MAX + 1
        if batch == 1:
            assert found(decoded) == {MORE_FIELDS: [0]}


def test_a_record_with_an_unknown_field_that_is_bad_as_well_is_refused_with_its_own_reason() -> None:
    decoded = decode(decoder(), {"x": 1, "id": 7}, b'{"y":1,"id":', {"id": "c", "x": 1})
    assert [each.reason for each in decoded.refused] == [
        DeadLetterReason.MISTYPED_FIELD,
        DeadLetterReason.NOT_JSON,
    ]
    assert decoded.positions.tolist() == [2]
    assert found(decoded) == {"x": [2]}


def test_nothing_is_told_where_the_configuration_says_so() -> None:
    assert found(decode(decoder(UnknownFields.IGNORE), {"id": "a", "x": 1, "one": {"x": 1}})) == {}


def test_fields_of_an_avro_record_are_told_once_for_its_schema() -> None:
    inner = {
        "type": "record",
        "name": "i",
        "fields": [{"name": "n", "type": "long"}, {"name": "x", "type": "int"}],
    }
    written = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "new", "type": ["null", "string"]},
            {"name": "one", "type": ["null", inner]},
            {"name": "many", "type": {"type": "array", "items": ["null", "i"]}},
            {"name": "named", "type": {"type": "map", "values": "i"}},
        ],
    }
    beyond = fields_beyond(read_avro_schema(json.dumps(written)), COLUMNS)
    assert list(beyond) == ["new", "one.x", "many[].x", "named[].x"]


def message(topic: str, offset: int, value: Any) -> Message:
    return Message(topic, 0, offset, value=json.dumps(value).encode(), key=None, timestamp_ms=0, headers=())


def test_rows_carry_what_they_were_taken_without_and_dead_letters_do_not() -> None:
    rules = RecordRules(SCHEMA, KeyGenerator.for_table(SCHEMA, ["id"]), None, 4, 2, 1 << 20)
    keyed = RecordKeyer(rules).key_records(
        [
            message("a", 0, {"id": "k", "x": 1}),
            message("a", 1, {"x": 1}),
            message("b", 0, {"id": "l", "x": 1}),
        ]
    )
    assert {name: at.tolist() for name, at in keyed.dropped.items()} == {"x": [0, 2]}
    counts = field_counts(keyed.dropped, [("a", 2), ("b", 1)])
    assert counts == {("a", "x"): 1, ("b", "x"): 1}


def test_a_field_is_logged_at_once_and_then_once_an_hour(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    dropped = DroppedFields(clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            dropped.add(Counter({("orders", "price"): 10}))
        assert [each.getMessage() for each in caplog.records] == [
            "topic orders has the field price, which table.schema lacks: left out of 10 records"
        ]
        clock.advance(3_600.0)
        dropped.add(Counter({("orders", "price"): 10}))
    assert caplog.records[-1].getMessage().endswith("left out of 50 records more")
    assert len(caplog.records) == 2
    assert dropped_fields(dropped.stats()) == [DroppedField("orders", "price", 60)]


def test_the_fields_of_a_topic_that_are_counted_have_a_limit() -> None:
    dropped = DroppedFields(ManualClock())
    dropped.add(Counter({("orders", f"f{i}"): 1 for i in range(10 * DROPPED_MAX)}))
    told = dropped_fields(dropped.stats())
    assert len(told) == DROPPED_MAX + 1
    assert sum(each.records for each in told) == 10 * DROPPED_MAX
    assert told[-1].field == MORE_FIELDS


def test_the_shuffle_stage_counts_by_topic_what_counts() -> None:
    world = World()
    world.admin.create_topics([TopicSpec("other", 1)])
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 1 << 20, 1 << 20)
    work = ShuffleWork(world.client, world.keyer, settings, world.clock)
    work.start({"orders-in:0": 0, "other:0": 0})
    for topic, value in (
        ("orders-in", order("a", x=1)),
        ("orders-in", order("b")),
        ("other", order("c", x=1)),
    ):
        world.broker.produce(TopicPartition(topic, 0), None, value, ())
    while work.gather(Budget(1_000, 1 << 20), 0.0).records < 3:
        pass
    prepared = work.prepare("n")
    assert prepared is not None
    assert dropped_fields(work.stats()) == []
    work.counted(prepared, 5)
    told = dropped_fields(work.stats())
    assert sorted(told) == [DroppedField("orders-in", "x", 1), DroppedField("other", "x", 1)]


def test_without_the_hop_the_slices_carry_the_counts() -> None:
    world, envelope = World(), {"op": "m", "message": {}}
    generator = KeyGenerator.for_table(ORDERS, ["id"], ["day"])
    events = DebeziumJson(ORDERS, generator, UnknownFields.DROP, None)
    source = ShardedInputSource(
        world.client,
        "orders-in",
        RecordKeyer(rules(lanes=1), events),
        earliest,
        "letters",
        1 << 20,
        world.clock,
    )
    row = {"id": "a", "day": "d", "at": 1, "x": 2}
    for value in (envelope, {"op": "c", "after": row}, envelope):
        world.broker.produce(TopicPartition("orders-in", 0), None, json.dumps(value).encode(), ())
    source.assign("0", 0)
    (found,) = source.poll(Budget(1_000, 1 << 20), 0.0)
    assert (found.records, found.passed_over, found.dropped) == (1, 2, {("orders-in", "x"): 1})


def test_what_is_passed_over_is_counted_in_batches_that_are_decoded_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark.index_assigner.shuffle.keyed_parts.BYTES_AT_ONCE", 40)
    generator = KeyGenerator.for_table(ORDERS, ["id"], ["day"])
    keyer = RecordKeyer(rules(), DebeziumJson(ORDERS, generator, UnknownFields.DROP, None))
    row = {"id": "a", "day": "d", "at": 1, "x": 2}
    values = [{"op": "m"}, {"op": "c", "after": row}, {"op": "m"}, {"op": "c", "after": row}]
    keyed = keyer.key_records([message("in", i, value) for i, value in enumerate(values)])
    assert keyed.passed_over == 2
    assert keyed.dropped["x"].tolist() == [1, 3]
