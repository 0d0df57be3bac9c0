"""Bad input of every format that has one, and a process that decodes it (`python -m` this module).

``python -m tests.hostile_formats FORMAT SEED RECORDS`` decodes so many bad records, in batches of mixed kinds
with a good one behind each, and prints one JSON document: what became of them by kind, the slowest batch, the
memory that was taken at most. A process of its own: what a record does to its reader is measured there.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Final

import pyarrow as pa

from testing.clock import ManualClock
from tests import hostile_avro, hostile_debezium, hostile_protobuf
from tests.hostile_avro import Made
from tidemark.config.model import UnknownFields
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows, joined, shifted
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_rows import column_defaults
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.errors import InputWaitsError
from tidemark.record_formats.protobuf_message import message_class
from tidemark.record_formats.source_position import EnvelopeOrdering
from tidemark.stream_runtime.kafka.ports import Message
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.schema_registry.ports import StoredSchema, UnknownSchemaError

SCHEMA: Final = {
    "type": "record",
    "name": "rows",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "region", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {
            "name": "amount",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}],
            "default": None,
        },
        {
            "name": "when",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}],
            "default": None,
        },
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {
            "name": "rec",
            "type": [
                "null",
                {"type": "record", "name": "rec", "fields": [{"name": "s", "type": ["null", "string"]}]},
            ],
            "default": None,
        },
        {"name": "list", "type": ["null", {"type": "array", "items": "long"}], "default": None},
    ],
}
FORMATS: Final = ("avro", "protobuf", "debezium-json", "debezium-avro")
AVRO_KEYS: Final = ("avro", "debezium-avro")
"""Formats whose Kafka keys may be framed Avro."""
_AS_KEY: Final = frozenset({"", "bad-key", "key-too-long", "null-key", "null-value-without-key"})
RECORD_BYTES_MAX: Final = 1 << 20
_BATCH: Final = 50
_LARGE_BYTES: Final = 100_000
"""Records of a kind with more are all alike and take most of the time, so they come more seldom: each such
kind is one of so many records."""
_LARGE_EVERY: Final = 375
_ADDRESS_SPACE: Final = 8 << 30


@dataclass(frozen=True)
class Hostile:
    """What makes bad values of each kind, good ones, and the schemas of the registry."""

    kinds: Mapping[str, Callable[[Random], Made]]
    sound: Callable[[str], bytes]
    schemas: Mapping[int, StoredSchema] = field(default_factory=dict)


def hostile(name: str) -> Hostile:
    """Of an input format."""
    if name == "avro":
        avro = hostile_avro.HostileAvro()
        return Hostile(avro.kinds, hostile_avro.sound, avro.schemas)
    if name == "protobuf":
        return Hostile(hostile_protobuf.hostile_protobuf(), hostile_protobuf.sound)
    if name == "debezium-json":
        return Hostile(hostile_debezium.hostile_json(), hostile_debezium.sound_json)
    events = hostile_debezium.HostileDebeziumAvro()
    return Hostile(events.kinds, events.sound, events.schemas)


class _Registry:
    def __init__(self, schemas: Mapping[int, StoredSchema]) -> None:
        self._schemas = schemas

    def fetch(self, schema_id: int) -> StoredSchema:
        if schema_id not in self._schemas:
            raise UnknownSchemaError(f"no schema {schema_id}")
        return self._schemas[schema_id]

    def close(self) -> None: ...


def keyer_of(name: str, schemas: Mapping[int, StoredSchema], clock: ManualClock) -> RecordKeyer:
    """As an assigner has it."""
    schema = TableSchema.from_avro(json.dumps(SCHEMA))
    generator = KeyGenerator.for_table(schema, ["id"], ["region"])
    ordering = OrderingField.of(schema, "at")
    rules = RecordRules(schema, generator, ordering, 4, 4, RECORD_BYTES_MAX)
    return RecordKeyer(rules, _decoder(name, schema, generator, _Registry(schemas), clock))


def _decoder(
    name: str, schema: TableSchema, generator: KeyGenerator, source: _Registry, clock: ManualClock
) -> RecordDecoder:
    target = RowTarget.of(schema, None, UnknownFields.DROP)
    position = EnvelopeOrdering.of("source.lsn", "at", schema.field("at").type)
    if name == "protobuf":
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "rows.desc")
            hostile_protobuf.write_descriptor(file)
            return ProtobufDecoder(message_class(file, hostile_protobuf.MESSAGE), target, generator, True)
    if name == "debezium-json":
        return DebeziumJson(schema, generator, UnknownFields.DROP, position)
    defaults = column_defaults(json.dumps(SCHEMA), target.columns)
    keys = AvroKeys(generator, target, source, clock)
    if name == "debezium-avro":
        return DebeziumAvro(target, generator, defaults, keys, position, source, clock)
    return AvroDecoder(target, defaults, keys, source, clock)


@dataclass
class Told:
    """What became of them. ``wrong``: what should not have become of some, in words."""

    tried: Counter[str] = field(default_factory=Counter)
    became: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    slowest_batch_s: float = 0.0
    slowest_kinds: list[str] = field(default_factory=list)
    good: int = 0


def try_all(name: str, seed: int, records: int) -> Told:
    """Each kind as often as the others, but for the large ones."""
    made, random, clock, told = hostile(name), Random(seed), ManualClock(), Told()
    keyer = keyer_of(name, made.schemas, clock)
    kinds = _drawn(made.kinds, records)
    random.shuffle(kinds)
    for first in range(0, records, _BATCH):
        batch = kinds[first : first + _BATCH]
        values = [made.kinds[kind](random) for kind in batch]
        key = f"good-{first}"
        contents = [*(value for value, _ in values), made.sound(key)]
        messages = [Message("in", 0, first + at, None, value) for at, value in enumerate(contents)]
        began_s = time.process_time()
        keyed = _keyed(keyer, messages, clock)
        took_s = time.process_time() - began_s
        if took_s > told.slowest_batch_s:
            told.slowest_batch_s, told.slowest_kinds = took_s, sorted(set(batch))
        _judge(told, batch, [become for _, become in values], keyed, key)
        if name in AVRO_KEYS:
            _try_as_keys(told, keyer, clock, batch, [value for value, _ in values])
    return told


def _try_as_keys(
    told: Told, keyer: RecordKeyer, clock: ManualClock, kinds: list[str], contents: list[bytes]
) -> None:
    """The same bytes as Kafka keys of null values."""
    keys = [*contents, b"good"]
    messages = [Message("in", 0, at, key, None) for at, key in enumerate(keys)]
    named = [f"as a Kafka key: {kind}" for kind in kinds]
    _judge(told, named, [_AS_KEY] * len(kinds), _keyed(keyer, messages, clock), "good")


def _drawn(kinds: Mapping[str, Callable[[Random], Made]], records: int) -> list[str]:
    large = [kind for kind, make in kinds.items() if len(make(Random(0))[0]) > _LARGE_BYTES]
    small = [kind for kind in kinds if kind not in large]
    drawn = large * max(1, records // _LARGE_EVERY)
    return [*drawn, *islice(cycle(small), records - len(drawn))]


def _keyed(keyer: RecordKeyer, messages: list[Message], clock: ManualClock) -> KeyedRows:
    parts: list[KeyedRows] = []
    done = 0
    for _ in range(100):
        try:
            keyed = keyer.key_records(messages[done:])
        except InputWaitsError:
            clock.advance(1.0)
            continue
        parts.append(shifted(keyed, done))
        done += keyed.records
        if done == len(messages):
            return joined(parts)
    raise AssertionError("the registry answers, and the input waits for ever")


def _judge(told: Told, kinds: list[str], become: list[frozenset[str]], keyed: KeyedRows, key: str) -> None:
    ends: dict[int, list[str]] = {}
    for at in keyed.positions.tolist():
        ends.setdefault(at, []).append("")
    for refusal in keyed.refused:
        ends.setdefault(refusal.position, []).append(str(refusal.reason.value))
    for at, kind in enumerate(kinds):
        told.tried[kind] += 1
        found = ends.pop(at, [])
        told.became.setdefault(kind, Counter()).update(found)
        if len(found) != 1 or found[0] not in become[at]:
            detail = [each.detail for each in keyed.refused if each.position == at]
            told.wrong.append(f"{kind}: {found} instead of {sorted(become[at])} {detail}")
    rows = keyed.rows.filter(pa.array(keyed.positions == len(kinds)))
    if ends != {len(kinds): [""]} or rows.column("_tm_key").to_pylist() != [key]:
        told.wrong.append(f"the good record behind them: {ends}")
    told.good += 1


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def main() -> None:
    """Prints what became of them."""
    name, seed, records = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
    use_arrow_alone()
    before = _peak_bytes()
    told = try_all(name, seed, records)
    document = {
        "tried": told.tried,
        "became": told.became,
        "wrong": told.wrong,
        "good": told.good,
        "slowest_batch_s": told.slowest_batch_s,
        "slowest_kinds": told.slowest_kinds,
        "memory_bytes": _peak_bytes() - before,
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main()
