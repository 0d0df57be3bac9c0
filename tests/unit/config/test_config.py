"""The configuration file: what is accepted, what is refused, and what the refusal says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidemark.config import (
    Address,
    ConfigError,
    ConfiguredIndexKind,
    ConfiguredTableType,
    InputFormat,
    InputPartitioning,
    load_config,
)

SCHEMA = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "flight_id", "type": "string"},
        {"name": "day", "type": "string"},
        {"name": "event_time", "type": "long"},
    ],
}
MINIMAL = """
table:
  name: flights
  path: ./warehouse/flights
  record_key: [flight_id]
  partition: [day]
  ordering: event_time
  schema: flights.avsc
input: {topics: [flights]}
kafka: {bootstrap.servers: embedded}
state: {path: ./state}
"""
FULL = """
table:
  name: flights
  path: ./warehouse/flights              # local path or object-store URI; ${IN_A_COMMENT} is no reference
  type: copy_on_write
  record_key: [flight_id]
  partition: [day]
  ordering: event_time
  schema: flights.avsc
  accept_properties: [hoodie.of.another.version]
  index: {kind: partitioned, shards: 32, lanes: 16, tombstone_ttl: 36h}
input:
  topics: [flights, more]
  format: avro
  schema_registry:
    {url: "http://one:8081,http://two:8081", basic.auth.user.info: "me:${SECRET:-hush}", timeout: 3s}
  partitions: 6
  partitioning: any
  start: latest
  unknown_fields: error
  delete_field: _deleted
kafka: {bootstrap.servers: "${BROKERS:-one:9092}", socket.keepalive.enable: true, retries: 7}
state: {path: ./state, memory: 64MiB, disk: 1.5GiB}
epoch: {interval: 500ms, max_bytes: 12MiB}
services: {coordinator: 127.0.0.1:7411, metrics: "[::1]:7412"}
spark: {spark.master: "local[2]"}
hoodie: {hoodie.metadata.compact.max.delta.commits: 5}
limits: {message_bytes: 2MiB, record_bytes: 1MiB, batch_bytes: 512KiB, transaction_interval: 1s}
"""


@pytest.fixture
def write(tmp_path: Path):
    (tmp_path / "flights.avsc").write_text(json.dumps(SCHEMA))

    def write_file(text: str) -> Path:
        file = tmp_path / "flights.yaml"
        file.write_text(text)
        return file

    return write_file


def test_minimal_file_gets_the_documented_defaults(write, tmp_path):
    config = load_config(write(MINIMAL), {})
    assert config.table.type is ConfiguredTableType.MERGE_ON_READ
    assert config.table.index.kind is ConfiguredIndexKind.GLOBAL
    assert (config.table.index.shards, config.table.index.lanes) == (8, 8)
    assert config.table.index.tombstone_ttl_ms == 86_400_000
    assert config.input.format is InputFormat.JSON
    assert config.input.partitions == 4
    assert config.table.path == str(tmp_path / "warehouse/flights")
    assert config.state.path == tmp_path / "state"
    assert config.table.schema == tmp_path / "flights.avsc"
    assert config.epoch.interval_ms == 2_000
    assert config.services.coordinator == Address("127.0.0.1", 7411)
    assert config.services.web == Address("127.0.0.1", 7413)
    assert config.kafka.embedded
    assert config.limits.key_bytes == 8192


@pytest.mark.parametrize(
    ("value", "web"), [("off", None), ('"off"', None), ("localhost:0", Address("localhost", 0))]
)
def test_the_page_may_be_elsewhere_or_nowhere(write, value, web):
    text = MINIMAL + f"services: {{web: {value}}}\n"
    assert load_config(write(text), {}).services.web == web


def test_full_file_is_read_with_its_units(write):
    config = load_config(write(FULL), {})
    assert config.table.type is ConfiguredTableType.COPY_ON_WRITE
    assert (config.table.index.shards, config.table.index.lanes) == (32, 16)
    assert config.table.accept_properties == ("hoodie.of.another.version",)
    assert config.table.index.tombstone_ttl_ms == 36 * 3_600_000
    assert config.input.topics == ("flights", "more")
    assert config.state.memory_bytes == 64 * 2**20
    assert config.state.disk_bytes == 3 * 2**29
    assert config.epoch.interval_ms == 500
    assert str(config.services.metrics) == "[::1]:7412"
    assert config.kafka.settings == {
        "bootstrap.servers": "one:9092",
        "socket.keepalive.enable": "true",
        "retries": "7",
    }
    assert config.spark == {"spark.master": "local[2]"}
    assert config.hoodie == {"hoodie.metadata.compact.max.delta.commits": "5"}
    assert config.limits.message_bytes == 2 * 2**20


def test_credentials_of_the_schema_registry_are_in_no_text_of_the_configuration(write):
    config = load_config(write(FULL), {"SECRET": "hushhush"})
    assert config.input.schema_registry is not None
    assert config.input.schema_registry.settings["basic.auth.user.info"] == "me:hushhush"
    assert config.input.schema_registry.timeout_ms == 3_000
    assert config.input.confluent
    assert "hushhush" not in repr(config)


def test_embedded_kafka_takes_its_address_at_run_time(write):
    kafka = load_config(write(MINIMAL), {}).kafka.with_bootstrap_servers("127.0.0.1:5")
    assert not kafka.embedded
    assert kafka.bootstrap_servers == "127.0.0.1:5"


def test_environment_value_wins_over_its_default_and_cannot_change_the_structure(write):
    config = load_config(write(FULL), {"BROKERS": "a:1}, evil: {b: 2"})
    assert config.kafka.bootstrap_servers == "a:1}, evil: {b: 2"


def test_reference_inside_braces_without_quotes_fills_a_number(write):
    text = MINIMAL.replace(
        "  schema: flights.avsc", "  schema: flights.avsc\n  index: {shards: ${SHARDS:-16}, lanes: ${LANES}}"
    )
    index = load_config(write(text), {"LANES": "4"}).table.index
    assert (index.shards, index.lanes) == (16, 4)


def test_partitioning_by_shard_takes_the_lanes_as_partitions(write):
    text = MINIMAL.replace("{topics: [flights]}", "{topics: [flights], partitioning: shard}")
    config = load_config(write(text), {})
    assert config.input.partitioning is InputPartitioning.SHARD
    assert config.input.partitions == 8


def test_table_path_may_be_a_uri(write):
    config = load_config(write(MINIMAL.replace("./warehouse/flights", "s3://bucket/flights")), {})
    assert config.table.path == "s3://bucket/flights"


@pytest.mark.parametrize(
    ("old", "new", "key_path", "says"),
    [
        ("ordering:", "orderin:", "table.orderin", "did you mean ordering?"),
        ("input:", "inputs:", "inputs", "did you mean input?"),
        ("{topics: [flights]}", "{topics: [flights], zzz: 1}", "input.zzz", "known keys: debezium"),
        ("{topics: [flights]}", "{topics: []}", "input.topics", "at least 1"),
        ("{topics: [flights]}", "{topics: [a b]}", "input.topics", "no Kafka topic name"),
        (
            "{topics: [flights]}",
            "{topics: [a], format: xml}",
            "input.format",
            "json, avro, protobuf, debezium",
        ),
        ("{topics: [flights]}", "{topics: [a], partitions: 0}", "input.partitions", "from 1 to"),
        ("{topics: [flights]}", "{topics: [a], format: avro}", "input.schema_registry", "is required"),
        ("{topics: [flights]}", "{topics: [a], schema_registry: {}}", "input.schema_registry", "url"),
        (
            "{topics: [flights]}",
            "{topics: [a], schema_registry: {url: 'http://me:hush@one'}}",
            "input.schema_registry",
            "without credentials",
        ),
        (
            "{topics: [flights]}",
            "{topics: [a], schema_registry: {url: 'http://one', max.retries: 1}}",
            "input.schema_registry",
            "unknown key max.retries",
        ),
        (
            "{topics: [flights]}",
            "{topics: [a], format: avro, framing: none, schema_registry: {url: 'http://one'}}",
            "input.framing",
            "confluent",
        ),
        ("{topics: [flights]}", "{topics: [a], format: protobuf}", "input.protobuf", "is required"),
        (
            "{topics: [flights]}",
            "{topics: [a], protobuf: {descriptor: flights.avsc, message: a}}",
            "input.protobuf",
            "no meaning",
        ),
        (
            "{topics: [flights]}",
            "{topics: [a], debezium: {ordering: source.lsn}}",
            "input.debezium",
            "no meaning",
        ),
        (
            "{topics: [flights]}",
            "{topics: [a], format: debezium-json, debezium: {ordering: lsn}}",
            "input.debezium.ordering",
            "source.binlog",
        ),
        (
            "{topics: [flights]}",
            "{topics: [a], format: debezium-json, delete_field: x}",
            "input.delete_field",
            "op says",
        ),
        (
            "  ordering: event_time\n  schema: flights.avsc\n",
            "  schema: flights.avsc\n"
            "input: {topics: [a], format: debezium-json, debezium: {ordering: ts_ms}}\n#",
            "input.debezium.ordering",
            "table.ordering",
        ),
        ("name: flights", "name: a/b", "table.name", "topic names"),
        ("  name: flights\n", "", "table.name", "is required"),
        ("flights.avsc", "nowhere.avsc", "table.schema", "there is no file"),
        ("[flight_id]", "[flightid]", "table.record_key", "has no field flightid; it has flight_id, day"),
        ("[flight_id]", "[flight_id, flight_id]", "table.record_key", "twice"),
        ("partition: [day]", "partition: {a: 1}", "table.partition", "list of field names"),
        ("ordering: event_time", "ordering: [a]", "table.ordering", "non-empty text"),
        ("{path: ./state}", "{path: ./state, memory: 5 apples}", "state.memory", "must be a size"),
        ("{path: ./state}", "{path: ./state, memory: 0}", "state.memory", "above zero"),
        ("{path: ./state}", "./state", "state", "must be a mapping"),
        ("{bootstrap.servers: embedded}", "{}", "kafka.bootstrap.servers", "is required"),
        ("{bootstrap.servers: embedded}", "{bootstrap.servers: embedded, a: [1]}", "kafka.a", "single value"),
        ("{path: ./state}", "{path: ./state}\nepoch: {interval: 2}", "epoch.interval", "with its unit"),
        ("{path: ./state}", "{path: ./state}\nservices: {metrics: 1}", "services.metrics", "host:port"),
        ("{path: ./state}", "{path: ./state}\nservices: {web: no-port}", "services.web", "host:port"),
        ("{path: ./state}", "{path: '${NOPE}'}", "state.path", "NOPE is not set"),
        ("{path: ./state}", "{path: ./state}\nlimits: {batch_bytes: 1GiB}", "limits.batch_bytes", "below"),
        (
            "{path: ./state}",
            "{path: ./state}\nlimits: {record_bytes: 2000KiB, message_bytes: 2MiB}",
            "limits.record_bytes",
            "at least 128 KiB below",
        ),
        (
            "  schema:",
            "  index: {shards: 4, lanes: 5}\n  schema:",
            "table.index.lanes",
            "at least as many shards",
        ),
        (
            "{topics: [flights]}",
            "{topics: [a], partitioning: shard, partitions: 3}",
            "input.partitions",
            "equal the 8 lanes",
        ),
        ("{path: ./state}", "{path: ./state}\nspark: {${X:-a}: 1}", "spark", "not for keys"),
    ],
)
def test_mistake_is_refused_with_its_place_and_a_way_out(write, old, new, key_path, says):
    assert MINIMAL.count(old) >= 1
    with pytest.raises(ConfigError) as refused:
        load_config(write(MINIMAL.replace(old, new, 1)), {})
    assert refused.value.key_path == key_path
    assert says in str(refused.value)
    assert str(refused.value).startswith(refused.value.file)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "no valid YAML"),
        ("- 1", "mapping with the sections"),
        (MINIMAL + "state: {path: ./other}\n", "key 'state' is given twice"),
        ("a: &a [*a]", "no valid YAML"),
    ],
)
def test_document_that_is_no_configuration_is_refused(write, text, says):
    with pytest.raises(ConfigError, match=r"flights\.yaml") as refused:
        load_config(write(text), {})
    assert says in str(refused.value)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="there is no such file"):
        load_config(tmp_path / "none.yaml", {})


def test_schema_that_is_no_record_is_refused(write, tmp_path):
    file = write(MINIMAL)
    (tmp_path / "flights.avsc").write_text('"string"')
    with pytest.raises(ConfigError, match="no Avro record schema"):
        load_config(file, {})


def _bomb(levels: int, width: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize("bomb", [_bomb(30, 9), _bomb(9, 9), "a: &a [*a]", "a: &a {b: *a}"])
def test_aliases_that_stand_for_billions_of_values_are_refused_at_once(tmp_path: Path, bomb: str) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(f"{bomb}\ntable: {{name: a}}\n")
    with pytest.raises(ConfigError, match="alias"):
        load_config(file, {})
