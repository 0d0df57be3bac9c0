"""What takes few bytes and much memory is a dead letter or a row, and what lies behind it is read."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.unit.index_assigner.input.test_sharded_input_source import keys_for, produce, source
from tests.unit.index_assigner.largest_records import (
    FORMATS,
    GENERATOR,
    RECORD_BYTES,
    SCHEMA,
    Content,
    contents,
    json_record,
    keyer,
)
from tests.unit.index_assigner.shuffle_world import LANES, PLENTY, World, order, rules
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.record_formats.decoded_memory import MEMORY_MAX, TOGETHER_MAX
from tidemark.record_formats.json_memory import JsonMemory
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition

POINTS = {
    "type": "record",
    "name": "rows",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "texts", "type": {"type": "array", "items": "string"}},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
    ],
}


def messages(*values: bytes) -> list[Message]:
    return [Message("in", 0, at, None, value) for at, value in enumerate(values)]


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("width", [8, 40])
def test_a_record_of_very_many_small_values_is_refused_and_its_neighbours_are_rows(
    format_: str, width: int
) -> None:
    make = FORMATS[format_].make
    large = make("b", contents(format_, width)[f"records of {width}"], width)
    good = [make(key, Content(lines=2, texts=2), width) for key in "ac"]
    keyed = keyer(format_, width).key_records(messages(good[0], large, good[1]))
    assert keyed.records == 3
    assert [(each.position, each.reason) for each in keyed.refused] == [
        (1, DeadLetterReason.RECORD_TOO_LARGE)
    ]
    assert str(len(large)) in keyed.refused[0].detail or "limits.message_bytes" in keyed.refused[0].detail
    assert keyed.rows.column("_tm_key").to_pylist() == ["a", "c"]
    assert keyed.positions.tolist() == [0, 2]


@pytest.mark.parametrize("behind", [b"\x1a\x7f", b"\xff", b"\x1a\x02\x08", b"\x00"])
def test_a_damaged_message_of_many_elements_is_refused(behind: bytes) -> None:
    make = FORMATS["protobuf"].make
    large = make("b", contents("protobuf", 8)["records of 8"], 8) + behind
    keyed = keyer("protobuf", 8).key_records(messages(large, make("c", Content(lines=1), 8)))
    assert [(each.position, each.reason) for each in keyed.refused] == [
        (0, DeadLetterReason.RECORD_TOO_LARGE)
    ]
    assert keyed.rows.column("_tm_key").to_pylist() == ["c"]


def test_what_stands_in_text_is_no_value() -> None:
    text = '{},[],"\\' * (RECORD_BYTES // 11)
    value = json.dumps({"id": "a", "lines": [], "texts": [text]}).encode()
    assert len(value) < RECORD_BYTES
    assert value.count(b"{") * 1_000 > MEMORY_MAX
    keyed = keyer("json", 40).key_records(messages(value))
    assert not keyed.refused
    assert keyed.rows.column("texts")[0].as_py() == [text]


@pytest.mark.parametrize("gap", [b"", b" ", b"\n\t"])
def test_scalars_are_counted_whatever_stands_around_them(gap: bytes) -> None:
    schema = TableSchema.from_avro(json.dumps(POINTS))
    memory = JsonMemory(schema.arrow)
    count = 500_000
    value = b'{"texts":[' + (gap + b"," + gap).join([b'"x"'] * count) + b"]}"
    padded = value + b"{}" * count
    (plain,), (garbage,) = (memory.of([each], 0).tolist() for each in (value, padded))
    assert plain > count * 50
    assert garbage >= plain


def test_records_that_are_small_alone_are_decoded_in_parts() -> None:
    values = [json_record(f"k{at}", Content(lines=20_000)) for at in range(60)]
    made_of = keyer("json", 8)
    ranges = list(made_of._parts.ranges(messages(*values)))
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(values)
    memory = JsonMemory(SCHEMA.arrow).of(values, 0)
    assert all(int(memory[first:after].sum()) <= TOGETHER_MAX for first, after in ranges)
    assert made_of.key_records(messages(*values)).rows.num_rows == len(values)


def test_rows_have_room_for_so_many_records_and_the_others_wait() -> None:
    values = [json_record(f"k{at}", Content(lines=20_000)) for at in range(60)]
    limited = RecordRules(SCHEMA, GENERATOR, None, 4, 1, RECORD_BYTES, rows_bytes_max=1 << 20)
    made_of, left, seen = RecordKeyer(limited), messages(*values), []
    while left:
        keyed = made_of.key_records(left)
        assert 0 < keyed.records < len(values)
        seen += keyed.rows.column("_tm_key").to_pylist()
        left = left[keyed.records :]
    assert seen == [f"k{at}" for at in range(60)]


def test_a_row_that_fits_into_no_message_is_refused_where_it_is_decoded() -> None:
    generator = KeyGenerator.for_table(SCHEMA, ["id"], [])
    limited = RecordRules(SCHEMA, generator, None, 4, 1, RECORD_BYTES, row_bytes_max=100_000)
    values = [
        json_record("a", Content(lines=1)),
        json_record("b", Content(lines=9_000)),
        json_record("c", Content()),
    ]
    keyed = RecordKeyer(limited).key_records(messages(*values))
    assert [(each.position, each.reason) for each in keyed.refused] == [
        (1, DeadLetterReason.RECORD_TOO_LARGE)
    ]
    assert "limits.message_bytes" in keyed.refused[0].detail
    assert keyed.rows.column("_tm_key").to_pylist() == ["a", "c"]
    assert len(keyed.lanes) == len(keyed.positions) == 2


def small_room(world: World) -> None:
    """Each part of a batch fills what there is for rows."""
    world.keyer = RecordKeyer(replace(rules(), record_bytes_max=8 << 20, rows_bytes_max=1))


def test_a_lane_whose_rows_have_no_room_goes_on_in_the_next_slice() -> None:
    world = World()
    small_room(world)
    keys = {lane: keys_for(lane, 9) for lane in range(LANES)}
    for lane, found in keys.items():
        produce(world, lane, *(order(key, note="x" * 900_000) for key in found))
    reader = source(world)
    for lane in keys:
        reader.assign(str(lane), 0)
    seen: dict[str, list[str]] = {str(lane): [] for lane in keys}
    reached = dict.fromkeys(seen, 0)
    for _ in range(100):
        for each in reader.poll(PLENTY, 0.0):
            assert each.start == reached[each.lane]
            assert each.rows == each.next - each.start < 9
            reached[each.lane] = each.next
            for batch in each.batches:
                seen[each.lane] += batch.column("_tm_key").to_pylist()
    assert seen == {str(lane): found for lane, found in keys.items()}


def test_a_stage_whose_rows_have_no_room_publishes_the_others_next() -> None:
    world = World()
    small_room(world)
    keys = [f"k{at}" for at in range(18)]
    for at, key in enumerate(keys):
        world.broker.produce(TopicPartition("orders-in", at % 2), None, order(key, note="x" * 900_000), ())
    settings = ShuffleSettings(world.names, earliest, "s", 1 << 20, 16 << 20, 8 << 20)
    stage = ShuffleWork(world.client, world.keyer, settings, world.clock)
    stage.start({"orders-in:0": 0, "orders-in:1": 0})
    ranges: dict[str, int] = {"orders-in:0": 0, "orders-in:1": 0}
    transactions = 0
    for at in range(100):
        gathered = stage.gather(PLENTY, 0.0)
        if not gathered.records:
            continue
        prepared = stage.prepare(f"n{at}")
        assert prepared is not None
        transactions += 1
        for part in prepared.consumed:
            assert part.start == ranges[part.lane]
            ranges[part.lane] = part.next
    assert ranges == {"orders-in:0": 9, "orders-in:1": 9}
    assert transactions == 5
    assert stage.stats()["gathered_bytes"] == 0.0
