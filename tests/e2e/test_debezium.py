"""A change stream into a table: Debezium's Avro events with a schema registry, as of a PostgreSQL source.

On the way the registry is away, a new schema version arrives, the connector repeats itself, and records are
refused and replayed. At the end the table holds what the newest event of each key says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.interop.verdict import assert_same_rows, hudi_rs_snapshot
from tests.pipeline import Message, Pipeline
from tests.schema_registry import RegistryServer
from tests.unit.index_assigner.avro_world import framed
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]

TABLE = {
    "type": "record",
    "name": "accounts",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "region", "type": "string"},
        {"name": "visits", "type": "long"},
        {
            "name": "balance",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}],
            "default": None,
        },
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lsn", "type": "long"},
    ],
}
DECIMAL = {
    "type": "bytes",
    "scale": 2,
    "precision": 12,
    "connect.name": "org.apache.kafka.connect.data.Decimal",
    "logicalType": "decimal",
}
FIRST: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "region", "type": "string"},
    {"name": "visits", "type": "int"},
    {"name": "balance", "type": ["null", DECIMAL], "default": None},
]
SECOND: list[dict[str, Any]] = [
    {"name": "id", "type": "long"},
    {"name": "region", "type": "string"},
    {"name": "visits", "type": "long"},
    {"name": "balance", "type": ["null", DECIMAL], "default": None},
    {"name": "note", "type": ["null", "string"], "default": None},
    {"name": "not_in_the_table", "type": "double", "default": 0.0},
]

THIRD: list[dict[str, Any]] = [*SECOND[:-1], {"name": "added", "type": "long"}]


def envelope(fields: list[dict[str, Any]]) -> dict[str, Any]:
    value = {"type": "record", "name": "Value", "namespace": "db.public.accounts", "fields": fields}
    source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": ["null", "long"]}]}
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "db.public.accounts",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": source},
            {"name": "op", "type": "string"},
        ],
    }


KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}


@dataclass
class Source:
    """The source's table and its log: rows change, and each change has the next position."""

    topic: str
    client: SchemaRegistryClient
    random: Random = field(default_factory=lambda: Random(17))
    lsn: int = 24_000_000
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    version: int = 1

    def __post_init__(self) -> None:
        self._key = AvroSerializer(self.client, json.dumps(KEY))
        self._first = AvroSerializer(self.client, json.dumps(envelope(FIRST)))
        self._second = AvroSerializer(self.client, json.dumps(envelope(SECOND)))

    def key(self, id_: int) -> bytes:
        return bytes(self._key({"id": id_}, SerializationContext(self.topic, MessageField.KEY)))

    def event(self, op: str, before: Any, after: Any) -> bytes:
        self.lsn += self.random.randrange(1, 50)
        record = {"before": before, "after": after, "source": {"lsn": self.lsn}, "op": op}
        serializer = self._first if self.version == 1 else self._second
        return bytes(serializer(record, SerializationContext(self.topic, MessageField.VALUE)))

    def put(self, id_: int, op: str = "") -> Message:
        """A new row of the id, or a change of it (perhaps of its region)."""
        row: dict[str, Any] = {
            "id": id_,
            "region": f"region-{self.random.randrange(4)}",
            "visits": self.random.randrange(1_000),
            "balance": Decimal(self.random.randrange(-(10**9), 10**9)).scaleb(-2),
        }
        if self.version == 2:
            row |= {"visits": row["visits"] + 2**40, "note": f"note {self.lsn}", "not_in_the_table": 0.5}
        message = self.key(id_), self.event(op or ("u" if id_ in self.rows else "c"), None, row)
        self.rows[id_] = {"note": None, **row, "lsn": self.lsn}
        self.rows[id_].pop("not_in_the_table", None)
        return message

    def remove(self, id_: int) -> list[Message]:
        """The delete, which knows the key alone (the other columns as a connector fills them), and its
        tombstone.
        """
        before: dict[str, Any] = {"id": id_, "region": "", "visits": 0, "balance": None}
        if self.version == 2:
            before |= {"note": None, "not_in_the_table": 0.0}
        self.rows.pop(id_, None)
        return [(self.key(id_), self.event("d", before, None)), (self.key(id_), None)]

    def changes(self, count: int, keys: int) -> list[Message]:
        messages: list[Message] = []
        for _ in range(count):
            id_ = self.random.randrange(keys)
            if id_ in self.rows and self.random.random() < 0.2:
                messages += self.remove(id_)
            else:
                messages.append(self.put(id_))
        return messages


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with RegistryServer(user_info="reader:hush-hush") as server:
        yield server


def check(pipeline: Pipeline, source: Source) -> None:
    pipeline.flush()
    assert_same_rows(hudi_rs_snapshot(pipeline.table), source.rows.values(), "rows")


def misses_the_registry(pipeline: Pipeline) -> bool:
    return any("schema registry" in each for each in pipeline.status()["warnings"])


def test_a_change_stream_becomes_the_table_of_its_source(
    kafka: EmbeddedKafka, registry: RegistryServer, tmp_path: Path
) -> None:
    table = {"name": "accounts", "record_key": ["id"], "partition": ["region"], "ordering": "lsn"}
    access = {"url": registry.url, "basic.auth.user.info": "reader:hush-hush", "timeout": "2s"}
    reads = {"format": "debezium-avro", "schema_registry": access, "debezium": {"ordering": "source.lsn"}}
    with Pipeline(tmp_path, kafka.bootstrap_servers, table, TABLE, spark=False, input=reads) as pipeline:
        client = SchemaRegistryClient({"url": registry.url, "basic.auth.user.info": "reader:hush-hush"})
        source = Source(pipeline.topic, client)
        pipeline.start()
        pipeline.feed([source.put(id_, "r") for id_ in range(50)] + source.changes(400, 80))
        check(pipeline, source)

        # A new version that nobody has asked for yet, and no registry to ask: the input waits, and says so.
        source.version = 2
        repeated = source.changes(150, 80)
        registry.stop()
        pipeline.feed(repeated)
        pipeline.wait("the warning", lambda: misses_the_registry(pipeline))
        assert pipeline.status()["records"]["dead_letters"] == 0
        registry.start()
        check(pipeline, source)
        # An assigner reports what it waits for with its heartbeats: flush may be back before the next one.
        pipeline.wait("the warning's end", lambda: not misses_the_registry(pipeline))

        # The connector starts again behind where it was; a truncation, and an id that is not registered yet.
        later = registry.schemas + 1
        row = {"id": 1_000, "region": "late", "visits": 1, "balance": None, "note": None, "added": 1}
        position = source.lsn + 1
        change = {"before": None, "after": row, "source": {"lsn": position}, "op": "c"}
        early = source.key(1_000), framed(later, envelope(THIRD), change)
        pipeline.feed([*repeated, (None, source.event("t", None, None)), early])
        check(pipeline, source)
        assert sorted(each.reason for each in pipeline.dead_letters()) == ["truncate", "unknown-schema"]
        counts = pipeline.status()["records"]["committed"]
        assert counts["superseded"] + counts["no_ops"] >= 100

        # The schema that was missing is registered; its record is taken when it comes again, once.
        assert registry.register(f"{pipeline.topic}-value", json.dumps(envelope(THIRD))) == later
        pipeline.stop("assigner")
        pipeline.start("assigner")
        replay = ("dead-letter", "replay", "--reason", "unknown-schema", "--json")
        for replayed in (1, 0):
            done = pipeline.command(*replay)
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["replayed"] == replayed
        row.pop("added")
        source.rows[1_000] = {**row, "lsn": position}
        check(pipeline, source)
        letters = pipeline.dead_letters()
        assert len(letters) == 2
        # Two lanes wrote them: which one came first depends on the run.
        (truncation,) = (each for each in letters if each.reason == "truncate")
        shown = pipeline.command("dead-letter", "show", str(truncation.id))
        assert (shown.returncode, "truncated" in shown.stdout) == (0, True), shown.stderr
        verified = pipeline.command("verify", "--json")
        assert verified.returncode == 0, verified.stdout
        pipeline.stop()
    for log in tmp_path.glob("*.log"):
        assert "hush-hush" not in log.read_text(), log
