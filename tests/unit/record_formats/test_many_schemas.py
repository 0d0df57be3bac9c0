"""Input that names more schemas than are kept, of a registry that is slow: it comes through all the same, and
what was told once is not asked for again and again.
"""

from __future__ import annotations

import io
import random
from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.index_assigner.avro_world import DictRegistry, framed, record_schema
from tests.unit.index_assigner.shuffle_world import LANES, ORDERS, SHARDS, World, order, rules
from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.index_assigner.input.careful_frames import Answer, CarefulSettings, Kind, Task, read_frame
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle import keyed_parts
from tidemark.index_assigner.shuffle.careful_child import _Reading
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.record_formats import schema_cache
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.plain_json import FramedJson, PlainJson
from tidemark.stream_runtime.kafka.ports import Message, TopicPartition
from tidemark.stream_runtime.schema_registry.ports import JSON, StoredSchema

SCHEMAS_MAX = 10
SLOW_S = 0.5
"""Of each answer: four of them are waited for in a call."""
IDS = 60
PLENTY = Budget(1_000_000, 1 << 30)
FIELDS: dict[str, Any] = {"id": "string", "day": "string", "at": "long"}
WIDE = {f"n{number}": "int" for number in range(36)}
FORMATS = ["avro", "debezium-avro", "json", "debezium-json", "keys of null values"]


class ManySchemas:
    """A table, its input, and a registry that is slow. ``wide``: schemas have 40 parts, not 4."""

    def __init__(self, format_: str = "avro", wide: bool = False) -> None:
        self.world, self.registry = World(), DictRegistry(takes_s=SLOW_S)
        self.registry.clock = self.clock = self.world.clock
        self.format = format_
        self.writer = record_schema("orders", FIELDS | (WIDE if wide else {}))
        self.row = {"day": "d", "at": 1} | (dict.fromkeys(WIDE, 1) if wide else {})
        target = RowTarget.of(ORDERS, "_deleted", UnknownFields.DROP)
        keys = AvroKeys(rules().generator, target, self.registry, self.clock)
        self.keyer = RecordKeyer(rules(), self._decoder(target, rules().generator, keys))

    def _decoder(self, target: RowTarget, generator: KeyGenerator, keys: AvroKeys) -> RecordDecoder:
        if self.format == "debezium-avro":
            return DebeziumAvro(target, generator, {}, keys, None, self.registry, self.clock)
        wire = FramedJson(self.registry, self.clock)
        if self.format == "json":
            return PlainJson(JsonDecoder(ORDERS, None, UnknownFields.DROP), generator, wire)
        if self.format == "debezium-json":
            return DebeziumJson(ORDERS, generator, UnknownFields.DROP, None, wire)
        return AvroDecoder(target, {}, keys, self.registry, self.clock)

    def record(self, schema_id: int, key: str) -> tuple[bytes | None, bytes | None]:
        """Kafka key and value, of a schema that is registered now."""
        row = {"id": key} | self.row
        head = b"\0" + schema_id.to_bytes(4, "big")
        if self.format == "debezium-avro":
            images = {"before": ["null", self.writer], "after": ["null", "orders"], "op": "string"}
            event = record_schema("event", images)
            self.registry.register(schema_id, event)
            return None, framed(schema_id, event, {"before": None, "after": row, "op": "c"})
        if self.format.endswith("json"):
            self.registry.schemas[schema_id] = StoredSchema(JSON, "{}")
            document = order(key)
            return None, head + (document if self.format == "json" else b'{"op":"c","after":%s}' % document)
        if self.format == "keys of null values":
            avro = record_schema("key", {"id": "string"})
            self.registry.register(schema_id, avro)
            return framed(schema_id, avro, {"id": key}), None
        self.registry.register(schema_id, self.writer)
        return None, framed(schema_id, self.writer, row)

    def messages(self, ids: Sequence[int]) -> list[Message]:
        made = [self.record(each, f"k{at}") for at, each in enumerate(ids)]
        return [Message("in", 0, at, key, value) for at, (key, value) in enumerate(made)]

    def asked(self) -> int:
        """How often for an id that is there."""
        return sum(each in self.registry.schemas for each in self.registry.asked)


@pytest.fixture(autouse=True)
def few_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_cache, "SCHEMAS_MAX", SCHEMAS_MAX)


def all_keys(table: ManySchemas, messages: Sequence[Message], calls_max: int) -> list[str]:
    """Of the rows, in so many calls at most."""
    keys: list[str] = []
    for _ in range(calls_max):
        try:
            keyed = table.keyer.key_records(messages)
        except InputWaitsError:
            table.clock.advance(0.2)
            continue
        assert keyed.records > 0
        assert not keyed.refused
        keys += keyed.rows.column("_tm_key").to_pylist()
        messages = messages[keyed.records :]
        if not messages:
            return keys
    raise AssertionError(f"{len(messages)} records are left after {calls_max} calls")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("bytes_at_once", [1 << 20, 400], ids=["one part", "many parts"])
def test_records_of_more_schemas_than_are_kept_come_through(
    format_: str, bytes_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_parts, "BYTES_AT_ONCE", bytes_at_once)
    table = ManySchemas(format_)
    messages = table.messages(random.Random(5).sample(range(1, 1_000), IDS))
    assert all_keys(table, messages, IDS) == [f"k{at}" for at in range(IDS)]
    assert table.asked() == IDS


@pytest.mark.parametrize("takes_s", [0.0, SLOW_S])
def test_schemas_of_more_parts_than_are_kept_come_through(
    takes_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_cache, "PARTS_MAX", 200)
    table = ManySchemas(wide=True)
    table.registry.takes_s = takes_s
    messages = table.messages(random.Random(5).sample(range(1, 1_000), IDS))
    assert all_keys(table, messages, IDS) == [f"k{at}" for at in range(IDS)]
    assert table.asked() <= 2 * IDS
    cache = table.keyer._decoder._framed._schemas  # type: ignore[attr-defined]
    assert cache._parts <= 200


def test_records_in_front_of_one_that_waits_are_taken() -> None:
    table = ManySchemas()
    messages = table.messages([1, 2, 3, 1, 4])
    del table.registry.schemas[3]
    keyed = table.keyer.key_records(messages)
    assert (keyed.records, keyed.rows.column("_tm_key").to_pylist()) == (2, ["k0", "k1"])
    with pytest.raises(InputWaitsError, match="no schema 3 yet"):
        table.keyer.key_records(messages[2:])
    table.messages([3])
    table.clock.advance(schema_cache.UNKNOWN_AFTER_S)
    keyed = table.keyer.key_records(messages[2:])
    assert (keyed.records, keyed.rows.column("_tm_key").to_pylist()) == (3, ["k2", "k3", "k4"])


def test_very_many_schemas_at_which_the_registry_fails_slowly_stop_no_input() -> None:
    """An id is refused for ten minutes: all of them are never told at the same time."""
    table = ManySchemas()
    messages = table.messages(range(1, 121))
    table.registry.failing = dict.fromkeys(range(1, 121), "HTTP 500")
    table.registry.takes_s = 10.0
    refused = 0
    for _ in range(1_000):
        try:
            keyed = table.keyer.key_records(messages)
        except InputWaitsError:
            table.clock.advance(0.2)
            continue
        refused += len(keyed.refused)
        messages = messages[keyed.records :]
        if not messages:
            break
    assert refused == 120


def lane_keys(lane: int) -> list[str]:
    keys = [f"k{i}" for i in range(IDS * LANES * 8)]
    shards = record_index_shard(keys, SHARDS)
    return [key for key, shard in zip(keys, shards, strict=True) if shard % LANES == lane][:IDS]


def test_lanes_of_input_partitioned_by_shard_do_not_take_each_others_schemas_away() -> None:
    table = ManySchemas()
    source = ShardedInputSource(
        table.world.client, "orders-in", table.keyer, earliest, "dead", 1 << 20, table.clock
    )
    for lane in range(LANES):
        source.assign(str(lane), 0)
        for at, name in enumerate(lane_keys(lane)):
            key, value = table.record(1 + lane * IDS + at, name)
            table.world.broker.produce(TopicPartition("orders-in", lane), key, value, ())
    taken = dict.fromkeys(map(str, range(LANES)), 0)
    for _ in range(4 * LANES * IDS):
        try:
            for each in source.poll(PLENTY, 0.0):
                assert each.start == taken[each.lane]
                taken[each.lane] = each.next
        except InputWaitsError:
            table.clock.advance(0.2)
    assert taken == dict.fromkeys(map(str, range(LANES)), IDS)
    assert table.asked() == LANES * IDS


def test_the_shuffle_stage_publishes_what_it_can_decode() -> None:
    table = ManySchemas()
    names = table.world.names
    settings = ShuffleSettings(names, earliest, "s", 1 << 20, 1 << 20, 1 << 20)
    work = ShuffleWork(table.world.client, table.keyer, settings, table.clock)
    for at in range(IDS):
        key, value = table.record(1 + at, f"k{at}")
        table.world.broker.produce(TopicPartition("orders-in", at % 2), key, value, ())
    work.start({"orders-in:0": 0, "orders-in:1": 0})
    while work.gather(PLENTY, 0.0).records < IDS:
        pass
    taken = {"orders-in:0": 0, "orders-in:1": 0}
    for at in range(IDS):
        try:
            prepared = work.prepare(f"n{at}")
        except InputWaitsError:
            table.clock.advance(0.2)
            continue
        for part in prepared.consumed if prepared is not None else ():
            assert part.start == taken[part.lane]
            taken[part.lane] = part.next
    assert taken == {"orders-in:0": IDS // 2, "orders-in:1": IDS // 2}
    assert table.asked() == IDS


def test_the_reader_of_suspect_lanes_hands_on_what_it_can_decode() -> None:
    table = ManySchemas()
    messages = table.messages(range(1, IDS + 1))
    del table.registry.schemas[IDS // 2]
    out = io.BytesIO()
    reading = _Reading(CarefulSettings({}, {}), table.keyer, Task("in", 0, 0, 1 << 20), out)
    with pytest.raises(InputWaitsError):
        reading._take(messages)
    out.seek(0)
    handed_on: list[Message] = []
    while (answer := read_frame(out, Answer)) is not None:
        assert answer.kind is Kind.TAKEN
        handed_on += answer.messages()
    assert [each.offset for each in handed_on] == list(range(IDS // 2 - 1))
    assert reading._next == IDS // 2 - 1
