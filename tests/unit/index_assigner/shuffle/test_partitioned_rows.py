"""Records of a table whose record index is partitioned: lanes by partition and key, deletes that name their
partition, and those that do not.
"""

from __future__ import annotations

import json
import re
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
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    PARTITION_BYTES_MAX,
    index_partition_problem,
    record_index_file_id,
)
from tidemark.hudi_format.model import ShardId
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


@pytest.mark.parametrize(
    ("day", "why"),
    [("1.5", "it has a '.'"), ("_" * 60, "more than 150 bytes"), ("a" * 200, "more than 150 bytes")],
)
def test_a_partition_that_the_index_cannot_have_is_refused(day: str, why: str) -> None:
    """For deletes, too. A global index has no such limit."""
    values = [order("a", day=day), order("b"), order("c", day=day, _deleted=True)]
    made = keyed(values)
    assert refusals(made) == [(0, DeadLetterReason.BAD_PARTITION), (2, DeadLetterReason.BAD_PARTITION)]
    assert identities(made) == [("2024-01-01", "b", 0)]
    assert re.search(f"cannot be in a partitioned record index: .*{why}", made.refused[0].detail)
    messages = [Message("in", 0, at, None, value) for at, value in enumerate(values)]
    assert not RecordKeyer(rules()).key_records(messages).refused


def test_the_longest_partition_path_fits_into_a_file_name() -> None:
    path = "ä" * (PARTITION_BYTES_MAX // 2)
    assert index_partition_problem(path) is None
    file_id = record_index_file_id(ShardId(9_999), path)
    log = f"{LogFileName(file_id, '2' * 17, 999, '999999-99999-9999999')}"
    base = f"{BaseFileName(file_id, '999999-99999-9999999', '2' * 17, 'hfile')}"
    # Hadoop adds a checksum's name, and a file that is being written has one with its process in it.
    assert max(len(name.encode()) for name in (log, base)) + len("..crc..9999999-99999999.tmp") <= 255
    assert index_partition_problem(path + "ab") is not None


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
