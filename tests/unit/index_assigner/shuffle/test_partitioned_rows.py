"""Records of a table whose record index is partitioned: lanes by partition and key, deletes that name their
partition, and those that do not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tests.unit.index_assigner.avro_world import DictRegistry, framed, record_schema
from tests.unit.index_assigner.shuffle_world import LANES, ORDERS, order, rules
from tidemark.config.model import UnknownFields
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.stream_runtime.kafka.ports import Message

RULES = replace(rules(), index_kind=IndexKind.PARTITIONED)
WITHOUT = DeadLetterReason.DELETE_WITHOUT_PARTITION
Event = tuple[str, dict[str, Any] | None, dict[str, Any] | None]
FIELDS = {"id": "string", "day": ["null", "string"], "at": ["null", "long"], "note": ["null", "string"]}
ENVELOPE = record_schema(
    "Envelope",
    {"before": ["null", record_schema("Value", FIELDS)], "after": ["null", "Value"], "op": "string"},
)
KEY = record_schema("Key", {"id": "string"})


def keyed(values: Sequence[bytes | None], key: bytes | None = None) -> KeyedRows:
    return RecordKeyer(RULES).key_records(
        [Message("in", 0, at, key, value) for at, value in enumerate(values)]
    )


def refusals(made: KeyedRows) -> list[tuple[int, DeadLetterReason]]:
    return [(refusal.position, refusal.reason) for refusal in made.refused]


def identities(made: KeyedRows) -> list[tuple[str, str, int]]:
    return [(row["_tm_partition"], row["_tm_key"], row["_tm_op"]) for row in made.rows.to_pylist()]


def test_a_row_has_the_lane_of_its_partition_and_key() -> None:
    days = ["2024-01-01", "2024-01-02", "2024-01-03"]
    made = keyed([order(f"k{number}", day=day) for number in range(40) for day in days])
    ids = np.tile(np.arange(3, dtype=np.int32), 40)
    keys = pa.array([f"k{number}" for number in range(40) for _ in days])
    lanes = identity_lanes(keys, ids, days, LANES).tolist()
    assert made.lanes.tolist() == made.rows.column("_tm_shard").to_pylist() == lanes
    assert len({lanes[at] for at in range(3)}) > 1, "one key has several lanes"


def test_deletes_name_their_partition_or_are_refused() -> None:
    bare = json.dumps({"id": "b", "at": 1, "_deleted": True}).encode()
    empty = json.dumps({"id": "c", "at": 1, "day": None, "_deleted": True}).encode()
    made = keyed([order("a", _deleted=True), bare, empty, None, order("d")], key=b"k")
    assert identities(made) == [("2024-01-01", "a", 1), ("2024-01-01", "d", 0)]
    assert refusals(made) == [(1, WITHOUT), (2, WITHOUT), (3, WITHOUT)]
    assert "day" in made.refused[0].detail
    assert "Kafka key" in made.refused[2].detail


def test_a_table_without_partition_fields_takes_deletes_by_kafka_key() -> None:
    generator = KeyGenerator.for_table(ORDERS, ["id"])
    keyer = RecordKeyer(replace(RULES, generator=generator))
    made = keyer.key_records([Message("in", 0, 0, b"a", None)])
    assert identities(made) == [("", "a", 1)]
    assert not made.refused


def json_events(events: Sequence[Event]) -> tuple[RecordDecoder, list[bytes]]:
    decoder = DebeziumJson(ORDERS, RULES.generator, UnknownFields.DROP, None, deletes_name_partitions=True)
    values = [{"op": op, "before": before, "after": after} for op, before, after in events]
    return decoder, [json.dumps(value).encode() for value in values]


def avro_events(events: Sequence[Event]) -> tuple[RecordDecoder, list[bytes]]:
    registry, clock = DictRegistry(), ManualClock()
    registry.register(1, ENVELOPE)
    registry.register(2, KEY)
    target = RowTarget.of(ORDERS, None, UnknownFields.DROP)
    keys = AvroKeys(RULES.generator, target, registry, clock)
    decoder = DebeziumAvro(
        target, RULES.generator, {}, keys, None, registry, clock, deletes_name_partitions=True
    )
    full = {"day": None, "at": None, "note": None}
    values = [
        {"op": op, "before": before and {**full, **before}, "after": after and {**full, **after}}
        for op, before, after in events
    ]
    return decoder, [framed(1, ENVELOPE, value) for value in values]


@pytest.mark.parametrize("encoding", [json_events, avro_events])
def test_a_change_event_deletes_in_the_partition_of_before(encoding: Any) -> None:
    row = {"id": "a", "day": "2024-01-02", "at": 5, "note": "n"}
    decoder, values = encoding(
        [
            ("c", None, row),
            ("d", {"id": "a", "day": "2024-01-02"}, None),
            ("d", {"id": "b"}, None),
            ("d", None, None),
        ]
    )
    keyer = RecordKeyer(RULES, decoder)
    kafka_keys = [b'{"id":"a"}', b'{"id":"a"}', b'{"id":"b"}', b'{"id":"c"}']
    if encoding is avro_events:
        kafka_keys = [framed(2, KEY, json.loads(key)) for key in kafka_keys]
    batch = [
        Message("in", 0, at, key, value)
        for at, (key, value) in enumerate(zip(kafka_keys, values, strict=True))
    ]
    made = keyer.key_records(batch)
    assert identities(made) == [("2024-01-02", "a", 0), ("2024-01-02", "a", 1)]
    assert refusals(made) == [(2, WITHOUT), (3, WITHOUT)]


def test_a_null_value_is_about_no_row_behind_its_change_event_alone() -> None:
    decoder, values = json_events([("d", {"id": "a", "day": "2024-01-02"}, None)])
    key, other = b'{"id":"a"}', b'{"id":"b"}'
    batch = [
        Message("in", 0, 0, key, None),
        Message("in", 0, 1, key, values[0]),
        Message("in", 0, 2, key, None),
        Message("in", 0, 3, other, None),
    ]
    made = RecordKeyer(RULES, decoder).key_records(batch)
    assert identities(made) == [("2024-01-02", "a", 1)]
    assert (refusals(made), made.passed_over) == ([(0, WITHOUT), (3, WITHOUT)], 1)
