"""Every input format from a real broker, with a schema registry beside it, to keyed rows; with and without
the shuffle stage; by a configuration made by hand without, by the one that `tidemark init` writes with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from tests.integration.input_formats import SCHEMA, Format, Row, formats
from tests.schema_registry import RegistryServer
from tidemark.cli.main import main
from tidemark.config import TableConfigFile, load_config
from tidemark.epoch_protocol.batches import KeyedOp, decode_batch
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.index_assigner.input.positions import earliest
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.sharded_input_source import ShardedInputSource
from tidemark.index_assigner.shuffle.stage import ShuffleSettings, ShuffleWork
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.choose import record_decoder
from tidemark.record_formats.errors import InputWaitsError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka

PLENTY = Budget(10_000, 1 << 24)
LANES, SHARDS = 2, 4
FORMATS = ("json", "avro", "protobuf", "debezium-json", "debezium-avro")
ROWS: list[tuple[Row, bool]] = [
    *(
        ({"id": n, "region": f"r{n % 2}", "at": 100 + n, "name": f"é{n}" if n % 3 else None}, False)
        for n in range(20)
    ),
    *(({"id": n, "region": "r0", "at": 200 + n, "name": "x"}, True) for n in range(0, 20, 5)),
]
Told = list[tuple[str, str, str | None, int | None, Any]]


@pytest.fixture(scope="module")
def registry() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server


class Table:
    """A table's configuration, its input topic, and all that was fed."""

    def __init__(
        self, kafka: EmbeddedKafka, registry: RegistryServer, folder: Path, name: str, by_shard: bool
    ) -> None:
        self.topic = f"formats-{name}-{'shard' if by_shard else 'any'}"
        self.format: Format = formats(self.topic, registry, folder)[name]
        (folder / "rows.avsc").write_text(json.dumps(SCHEMA))
        partitioning = "shard" if by_shard else "any"
        document = {
            "table": {
                "name": f"{self.topic}-table",
                "path": "./table",
                "record_key": ["id"],
                "partition": ["region"],
                "ordering": "at",
                "schema": "rows.avsc",
                "index": {"shards": SHARDS, "lanes": LANES},
            },
            "input": {"topics": [self.topic], "partitioning": partitioning, **self.format.settings},
            "kafka": {"bootstrap.servers": kafka.bootstrap_servers},
            "state": {"path": "./state"},
        }
        (folder / "rows.yaml").write_text(yaml.safe_dump(document))
        self.config = load_config(folder / "rows.yaml", {})
        self.client = ConfluentKafkaClient.from_config(self.config)
        self.names = TopicNames(self.config.table.name)
        admin = self.client.admin()
        admin.create_topics([TopicSpec(self.topic, LANES, 1)])
        admin.close()

    def keyer(self, config: TableConfigFile) -> RecordKeyer:
        schema = TableSchema.from_avro(config.table.schema.read_text(), config.table.name)
        generator = KeyGenerator.for_table(schema, config.table.record_key, config.table.partition)
        assert config.table.ordering is not None
        rules = RecordRules(
            schema,
            generator,
            OrderingField.of(schema, config.table.ordering),
            SHARDS,
            LANES,
            config.limits.record_bytes,
            config.input.delete_field,
            config.input.unknown_fields,
        )
        return RecordKeyer(rules, record_decoder(config, schema, generator, SystemClock()))

    def feed(self, *, broken: bool = True) -> int:
        """All rows and deletes, by lane; a null value after each delete, where the format has them."""
        producer = self.client.plain_producer()
        count = 0
        for row, deleted in ROWS:
            lane = int(record_index_shard(pa.array([str(row["id"])]), SHARDS)[0]) % LANES
            producer.produce(self.topic, self.format.value(row, deleted), self.format.key(row), lane)
            count += 1
            if deleted and self.format.tombstones:
                producer.produce(self.topic, None, self.format.key(row), lane)
                count += 1
        if broken:
            producer.produce(self.topic, b"\x00\x00\x00\xff\xff!", b"k", 0)
            count += 1
        producer.flush()
        producer.close()
        return count

    def expected(self) -> Told:
        told: Told = []
        for row, deleted in ROWS:
            key = str(row["id"])
            if not deleted:
                told.append((key, "UPSERT", row["region"], row["at"], row["name"]))
                continue
            delete = (key, "DELETE", None if self.format.tombstones else row["region"], row["at"])
            told.append((*delete, None if self.format.tombstones else row["name"]))
            if self.format.tombstones:
                told.append((key, "DELETE", None, row["at"], None))
        return sorted(told, key=str)


def told(batches: list[pa.RecordBatch]) -> Told:
    found: Told = []
    for batch in batches:
        for row in batch.to_pylist():
            op = KeyedOp(row["_tm_op"]).name
            found.append((row["_tm_key"], op, row["_tm_partition"], row["_tm_ordering"], row["name"]))
    return sorted(found, key=str)


def shuffled(table: Table, config: TableConfigFile, count: int) -> list[OutgoingMessage]:
    """What the shuffle stage makes of all that the topic holds."""
    settings = ShuffleSettings(table.names, earliest, "s", 1 << 20, 1 << 20, config.limits.record_bytes)
    work = ShuffleWork(table.client, table.keyer(config), settings, SystemClock())
    work.start({f"{table.topic}:{lane}": 0 for lane in range(LANES)})
    end = time.monotonic() + 240.0
    while work.gather(PLENTY, 0.2).records < count:
        assert time.monotonic() < end
    taken = 0
    sent: list[OutgoingMessage] = []
    while taken < count:
        assert time.monotonic() < end, "an id that the registry does not have is refused after a while"
        try:
            prepared = work.prepare("nonce")
        except InputWaitsError:
            time.sleep(0.1)
            continue
        # Those in front of one that waits come by themselves.
        if prepared is not None:
            taken += sum(part.next - part.start for part in prepared.consumed)
            sent += prepared.messages
    work.close()
    return sent


@pytest.mark.parametrize("name", FORMATS)
def test_shuffled_records_become_keyed_rows(
    kafka: EmbeddedKafka,
    registry: RegistryServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    table = Table(kafka, registry, tmp_path, name, False)
    count = table.feed()
    # A new user's configuration: everything that can be told from the topic is left to `init`.
    written = tmp_path / "written.yaml"
    options = ["--topic", table.topic, "--bootstrap-servers", kafka.bootstrap_servers, "--out", str(written)]
    if "schema_registry" in table.format.settings:
        options += ["--schema-registry", registry.url]
    if name == "protobuf":
        options += ["--format", "protobuf", "--descriptor", str(tmp_path / "rows.desc")]
    if "delete_field" in table.format.settings:
        options += ["--delete-field", "gone"]
    assert main(["init", *options, "--name", table.config.table.name, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["format"], answer["sampled"], answer["taken"]) == (name, count, count - 1)
    assert (answer["record_key"], answer["partition"]) == (["id"], ["region"])
    assert len(answer["refused"]) == 1, "the broken record"
    assert main(["config", "check", "-c", str(written)]) == 0
    config = load_config(written, {})
    assert config.input.protobuf is None or config.input.protobuf.message == "shop.Row"
    messages = shuffled(table, config, count)
    keyed = [m for m in messages if m.topic_partition.topic == table.names.keyed]
    letters = [m for m in messages if m.topic_partition.topic == table.names.dead_letter]
    assert told([decode_batch(m.value or b"") for m in keyed]) == table.expected()
    assert [dict(m.headers)["tm-topic"] for m in letters] == [table.topic.encode()]
    assert letters[0].value == b"\x00\x00\x00\xff\xff!"


@pytest.mark.parametrize("name", FORMATS)
def test_records_partitioned_by_shard_become_keyed_rows(
    kafka: EmbeddedKafka, registry: RegistryServer, tmp_path: Path, name: str
) -> None:
    table = Table(kafka, registry, tmp_path, name, True)
    source = ShardedInputSource(
        table.client,
        table.topic,
        table.keyer(table.config),
        earliest,
        table.names.dead_letter,
        table.config.limits.record_bytes,
        SystemClock(),
    )
    count = table.feed(broken=False)
    for lane in range(LANES):
        source.assign(str(lane), 0)
    batches: list[pa.RecordBatch] = []
    end = time.monotonic() + 240.0
    while sum(batch.num_rows for batch in batches) < count:
        assert time.monotonic() < end
        for slice_ in source.poll(PLENTY, 0.2):
            assert slice_.dead_letters == []
            batches += slice_.batches
    source.close()
    assert told(batches) == table.expected()
