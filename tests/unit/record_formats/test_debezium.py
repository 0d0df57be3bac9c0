"""Change events, as JSON and as Avro, to keyed rows: what each operation does, and which row it is about."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from tests.unit.index_assigner.avro_world import DictRegistry, framed, record_schema
from tidemark.config.model import UnknownFields
from tidemark.epoch_protocol.batches import KeyedOp
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.refusals import DeadLetterReason
from tidemark.record_formats.source_position import EnvelopeOrdering
from tidemark.stream_runtime.kafka.ports import Message

TABLE = TableSchema.from_avro(
    json.dumps(
        {
            "type": "record",
            "name": "accounts",
            "fields": [
                {"name": "id", "type": "long"},
                {"name": "region", "type": "string"},
                {"name": "name", "type": ["null", "string"]},
                {
                    "name": "balance",
                    "type": [
                        "null",
                        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
                    ],
                },
                {"name": "seen", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
                {"name": "lsn", "type": "long"},
            ],
        }
    )
)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123000, UTC)
MILLIS = 1709208000123
Change = tuple[str, dict[str, Any] | None, dict[str, Any] | None, dict[str, Any]]
"""op, before, after, source."""

VALUE_FIELDS: dict[str, Any] = {
    "id": "long",
    "region": "string",
    "name": ["null", "string"],
    "balance": [
        "null",
        {
            "type": "bytes",
            "scale": 2,
            "precision": 10,
            "connect.name": "org.apache.kafka.connect.data.Decimal",
            "logicalType": "decimal",
        },
    ],
    "seen": ["null", {"type": "long", "connect.name": "io.debezium.time.Timestamp"}],
}
ENVELOPE = record_schema(
    "Envelope",
    {
        "before": ["null", record_schema("Value", VALUE_FIELDS)],
        "after": ["null", "Value"],
        "source": record_schema(
            "Source", {"lsn": ["null", "long"], "file": ["null", "string"], "pos": "long"}
        ),
        "op": "string",
        "ts_ms": ["null", "long"],
    },
)
KEY = record_schema("Key", {"id": "long"})


def connect_schema() -> dict[str, Any]:
    fields = [
        {"type": "int64", "optional": False, "field": "id"},
        {"type": "string", "optional": False, "field": "region"},
        {"type": "string", "optional": True, "field": "name"},
        {
            "type": "bytes",
            "optional": True,
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "field": "balance",
        },
        {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "field": "seen"},
    ]
    images = [{"type": "struct", "fields": fields, "optional": True, "field": f} for f in ("before", "after")]
    return {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}], "name": "Envelope"}


@dataclass
class Encoding:
    """How changes are written; ``rich``: times and decimals are as the source's connector has them."""

    make: Callable[[EnvelopeOrdering | None, bool], RecordDecoder]
    value: Callable[[Change], bytes]
    key: Callable[[int], bytes]
    rich: bool


def plain_row(row: dict[str, Any] | None) -> dict[str, Any] | None:
    """As JSON without a schema: decimals as text, times in the column's unit."""
    if row is None:
        return None
    balance = row.get("balance")
    return {**row, "balance": None if balance is None else str(balance)}


def connect_row(row: dict[str, Any] | None) -> dict[str, Any] | None:
    if row is None:
        return None
    balance = row.get("balance")
    number = None if balance is None else int(balance.scaleb(2)).to_bytes(6, "big", signed=True)
    return {**row, "balance": None if number is None else base64.b64encode(number).decode()}


def bare_json(change: Change) -> bytes:
    op, before, after, source = change
    return json.dumps(
        {"before": plain_row(before), "after": plain_row(after), "source": source, "op": op, "ts_ms": 5}
    ).encode()


def wrapped_json(change: Change) -> bytes:
    op, before, after, source = change
    payload = {
        "op": op,
        "before": connect_row(before),
        "after": connect_row(after),
        "source": source,
        "ts_ms": 5,
    }
    return json.dumps({"schema": connect_schema(), "payload": payload}).encode()


def avro_value(change: Change) -> bytes:
    op, before, after, source = change
    full = {"lsn": None, "file": None, "pos": 0, **source}
    return framed(1, ENVELOPE, {"before": before, "after": after, "source": full, "op": op, "ts_ms": 5})


def _unknown(strict: bool) -> UnknownFields:
    return UnknownFields.ERROR if strict else UnknownFields.DROP


def json_decoder(ordering: EnvelopeOrdering | None, strict: bool) -> RecordDecoder:
    return DebeziumJson(TABLE, GENERATOR, _unknown(strict), ordering)


def avro_decoder(ordering: EnvelopeOrdering | None, strict: bool) -> RecordDecoder:
    registry, clock = DictRegistry(), ManualClock()
    registry.register(1, ENVELOPE)
    registry.register(2, KEY)
    target = RowTarget.of(TABLE, None, _unknown(strict))
    keys = AvroKeys(GENERATOR, target, registry, clock)
    return DebeziumAvro(target, GENERATOR, {}, keys, ordering, registry, clock)


GENERATOR = KeyGenerator.for_table(TABLE, ["id"], ["region"])
ENCODINGS = {
    "json": Encoding(json_decoder, bare_json, lambda id_: json.dumps({"id": id_}).encode(), False),
    "json-schema": Encoding(
        json_decoder,
        wrapped_json,
        lambda id_: json.dumps({"schema": {"type": "struct"}, "payload": {"id": id_}}).encode(),
        True,
    ),
    "avro": Encoding(avro_decoder, avro_value, lambda id_: framed(2, KEY, {"id": id_}), True),
}


@pytest.fixture(params=list(ENCODINGS))
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return ENCODINGS[request.param]


def row(id_: int, region: str = "eu", **more: Any) -> dict[str, Any]:
    return {"id": id_, "region": region, "name": f"n{id_}", "balance": None, "seen": None, **more}


def keyed(
    encoding: Encoding,
    *events: Change | tuple[int, None] | bytes,
    setting: str | None = "source.lsn",
    strict: bool = False,
) -> KeyedRows:
    """Changes with the Kafka key of their row; (id, None) is a null value of that key."""
    rules = RecordRules(
        schema=TABLE,
        generator=GENERATOR,
        ordering=OrderingField.of(TABLE, "lsn"),
        num_shards=4,
        lanes=2,
        record_bytes_max=1 << 20,
    )
    ordering = None if setting is None else EnvelopeOrdering.of(setting, "lsn", TABLE.field("lsn").type)
    keyer = RecordKeyer(rules, encoding.make(ordering, strict))
    batch = []
    for offset, event in enumerate(events):
        if isinstance(event, bytes):
            batch.append(Message("in", 0, offset, None, event))
        elif len(event) == 2:
            batch.append(Message("in", 0, offset, encoding.key(event[0]), None))
        else:
            image = event[2] or event[1]
            key = encoding.key(image["id"] if image else event[3].get("key", 0))
            source = {name: value for name, value in event[3].items() if name != "key"}
            batch.append(Message("in", 0, offset, key, encoding.value((*event[:3], source))))
    made = keyer.key_records(batch)
    made.rows.validate(full=True)
    accounted = sorted(made.positions.tolist() + [r.position for r in made.refused])
    assert accounted == [at for at, event in enumerate(events) if isinstance(event, bytes) or event[0] != "m"]
    return made


def told(made: KeyedRows) -> list[tuple[Any, ...]]:
    return [
        (r["_tm_key"], KeyedOp(r["_tm_op"]).name, r["_tm_partition"], r["_tm_ordering"])
        for r in made.rows.to_pylist()
    ]


def reasons(made: KeyedRows) -> list[DeadLetterReason]:
    return [refusal.reason for refusal in made.refused]


def test_created_updated_and_read_rows_are_upserts_at_the_sources_position(encoding: Encoding):
    made = keyed(
        encoding,
        ("r", None, row(1), {"lsn": 10}),
        ("c", None, row(2), {"lsn": 11}),
        ("u", row(2), row(2, "us"), {"lsn": 12}),
    )
    assert told(made) == [("1", "UPSERT", "eu", 10), ("2", "UPSERT", "eu", 11), ("2", "UPSERT", "us", 12)]
    assert [r["lsn"] for r in made.rows.to_pylist()] == [10, 11, 12]


def test_values_are_read_by_the_sources_own_types(encoding: Encoding):
    seen = MILLIS if encoding.rich else MILLIS * 1000
    made = keyed(encoding, ("c", None, row(1, balance=Decimal("-12.34"), seen=seen), {"lsn": 1}))
    (found,) = made.rows.to_pylist()
    assert (found["balance"], found["seen"]) == (Decimal("-12.34"), NOON)


def test_a_delete_counts_by_its_key_alone_and_its_tombstone_changes_nothing(encoding: Encoding):
    full, key_only = row(1), {**row(2, ""), "name": None}
    made = keyed(encoding, ("d", full, None, {"lsn": 20}), (1, None), ("d", key_only, None, {"lsn": 21}))
    assert told(made) == [("1", "DELETE", None, 20), ("1", "DELETE", None, 20), ("2", "DELETE", None, 21)]


def test_a_delete_without_a_row_is_of_its_kafka_key(encoding: Encoding):
    made = keyed(encoding, ("d", None, None, {"lsn": 20, "key": 7}), (7, None))
    assert told(made) == [("7", "DELETE", None, 20), ("7", "DELETE", None, 20)]


def test_a_null_value_that_follows_no_delete_of_its_key_deletes_it(encoding: Encoding):
    """The topic was compacted: the delete itself is gone."""
    made = keyed(encoding, (3, None), ("d", row(1), None, {"lsn": 5}), (2, None))
    assert told(made) == [("3", "DELETE", None, None), ("1", "DELETE", None, 5), ("2", "DELETE", None, None)]


def test_without_a_configured_position_a_delete_has_no_ordering_value(encoding: Encoding):
    made = keyed(encoding, ("d", row(1), None, {}), (1, None), setting=None)
    assert told(made) == [("1", "DELETE", None, None), ("1", "DELETE", None, None)]
    upsert = keyed(encoding, ("c", None, row(1), {"lsn": 5}), setting=None)
    assert reasons(upsert) == [DeadLetterReason.NULL_ORDERING]


def test_logical_messages_of_postgresql_are_passed_over_and_counted(encoding: Encoding):
    message: Change = ("m", None, None, {"lsn": 7})
    made = keyed(encoding, ("c", None, row(8), {"lsn": 1}), message, message, ("c", None, row(9), {"lsn": 2}))
    assert (made.refused, made.passed_over, made.positions.tolist()) == ([], 2, [0, 3])


@pytest.mark.parametrize(
    ("event", "reason", "named"),
    [
        (("t", None, None, {"lsn": 9}), DeadLetterReason.TRUNCATE, "truncated"),
        (("x", None, row(1), {"lsn": 9}), DeadLetterReason.UNKNOWN_OPERATION, "'x'"),
        (("c", row(1), None, {"lsn": 9}), DeadLetterReason.WRONG_SHAPE, "after"),
        (("u", None, row(1), {"lsn": None}), DeadLetterReason.NULL_ORDERING, "lsn"),
        (("d", row(1), None, {"lsn": None}), DeadLetterReason.NULL_ORDERING, "lsn"),
        (("c", None, row(1, "../x"), {"lsn": 9}), DeadLetterReason.BAD_PARTITION, ".."),
        (
            ("u", None, row(1, name="__debezium_unavailable_value"), {"lsn": 9}),
            DeadLetterReason.UNAVAILABLE_VALUE,
            "REPLICA IDENTITY",
        ),
    ],
)
def test_every_reason_leaves_the_other_events_alone(
    encoding: Encoding, event: Change, reason: DeadLetterReason, named: str
):
    made = keyed(encoding, ("c", None, row(8), {"lsn": 1}), event, ("c", None, row(9), {"lsn": 2}))
    assert [(r.position, r.reason) for r in made.refused] == [(1, reason)]
    assert named in made.refused[0].detail
    assert made.rows.column("_tm_key").to_pylist() == ["8", "9"]


def test_of_a_deletes_row_the_key_alone_is_read():
    before = {"id": 1, "region": 5, "balance": "?", "lsn": "many", "zz": []}
    value = json.dumps({"op": "d", "before": before, "source": {"lsn": 9}}).encode()
    for strict in (False, True):
        assert told(keyed(ENCODINGS["json"], value, strict=strict)) == [("1", "DELETE", None, 9)]
    mistyped = json.dumps({"op": "d", "before": {"id": "one"}, "source": {"lsn": 9}}).encode()
    assert reasons(keyed(ENCODINGS["json"], mistyped)) == [DeadLetterReason.MISTYPED_FIELD]


def test_a_key_field_that_is_missing_is_a_refusal():
    value = json.dumps({"op": "c", "after": {"region": "eu"}, "source": {"lsn": 1}}).encode()
    assert reasons(keyed(ENCODINGS["json"], value)) == [DeadLetterReason.MISSING_KEY]
    delete = json.dumps({"op": "d", "before": None, "source": {"lsn": 1}}).encode()
    assert reasons(keyed(ENCODINGS["json"], delete)) == [DeadLetterReason.NULL_VALUE_WITHOUT_KEY]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"{", DeadLetterReason.NOT_JSON),
        (b"[]", DeadLetterReason.WRONG_SHAPE),
        (b"{}", DeadLetterReason.UNKNOWN_OPERATION),
        (b'{"schema":{},"payload":5}', DeadLetterReason.WRONG_SHAPE),
        (b'{"op":"c","after":5}', DeadLetterReason.WRONG_SHAPE),
        (
            b'{"op":"c","after":{"id":"five","region":"eu"},"source":{"lsn":1}}',
            DeadLetterReason.MISTYPED_FIELD,
        ),
        (b'{"op":["c"],"after":{"id":5}}', DeadLetterReason.UNKNOWN_OPERATION),
        (b'{"op":"c","after":{"id":1,"region":"eu"},"source":5}', DeadLetterReason.MISTYPED_FIELD),
        (b'{"op":"c","after":' + b"[" * 100_000, DeadLetterReason.NOT_JSON),
    ],
)
def test_json_that_is_no_change_event_is_refused(value: bytes, reason: DeadLetterReason):
    good = bare_json(("c", None, row(1), {"lsn": 1}))
    made = keyed(ENCODINGS["json"], good, value, good)
    assert [(r.position, r.reason) for r in made.refused] == [(1, reason)]


def test_a_wrapped_null_is_a_null_value():
    decoder = json_decoder(None, False)
    rules = RecordRules(TABLE, GENERATOR, OrderingField.of(TABLE, "lsn"), 4, 2, 1 << 20)
    wrapped = Message("in", 0, 0, b'{"id":4}', b'{"schema":null,"payload":null}')
    assert told(RecordKeyer(rules, decoder).key_records([wrapped])) == [("4", "DELETE", None, None)]


@pytest.mark.parametrize("name", ["json", "json-schema"])
def test_unknown_fields_are_refused_where_the_configuration_says_so(name: str):
    made = keyed(ENCODINGS[name], ("c", None, {**row(1), "zz": 1}, {"lsn": 1}), strict=True)
    assert reasons(made) == [DeadLetterReason.UNKNOWN_FIELD]
    assert reasons(keyed(ENCODINGS[name], ("c", None, row(1), {"lsn": 1}), strict=True)) == []


def test_unknown_fields_of_an_avro_row_are_refused_where_the_configuration_says_so():
    kept = [each for each in TABLE.arrow if each.name not in ("name", "lsn")]
    narrow = TableSchema.from_arrow("t", pa.schema(kept))
    generator = KeyGenerator.for_table(narrow, ["id"], ["region"])
    event = Message("in", 0, 0, None, avro_value(("c", None, row(1), {"lsn": 1})))
    for strict, refused in ((True, [DeadLetterReason.UNKNOWN_FIELD]), (False, [])):
        registry, clock = DictRegistry(), ManualClock()
        registry.register(1, ENVELOPE)
        target = RowTarget.of(narrow, None, _unknown(strict))
        decoder = DebeziumAvro(
            target, generator, {}, AvroKeys(generator, target, registry, clock), None, registry, clock
        )
        rules = RecordRules(narrow, generator, None, 4, 2, 1 << 20)
        assert reasons(RecordKeyer(rules, decoder).key_records([event])) == refused


def test_avro_that_is_no_change_event_is_refused():
    registry, clock = DictRegistry(), ManualClock()
    flat = record_schema("Flat", {"id": "long"})
    registry.register(1, flat)
    target = RowTarget.of(TABLE, None, UnknownFields.DROP)
    decoder = DebeziumAvro(
        target, GENERATOR, {}, AvroKeys(GENERATOR, target, registry, clock), None, registry, clock
    )
    rules = RecordRules(TABLE, GENERATOR, None, 4, 2, 1 << 20)
    made = RecordKeyer(rules, decoder).key_records([Message("in", 0, 0, None, framed(1, flat, {"id": 1}))])
    assert reasons(made) == [DeadLetterReason.INCOMPATIBLE_SCHEMA]
    assert "no change event" in made.refused[0].detail
