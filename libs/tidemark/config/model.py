"""The content of a table's configuration file as frozen dataclasses.

Users rely on the names of the keys. Fields here have units in their names. A field's metadata has its key
in the YAML, if that differs, and the reader of its value (`decode`). The text below a field is its
description in `tidemark init`. All local paths are absolute.
"""

# ruff: noqa: RUF009 - `_field` is dataclasses.field with metadata
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from tidemark.config import values
from tidemark.config.log_format import LogFormat
from tidemark.config.security_model import SecurityConfig
from tidemark.config.settings import setting as _field
from tidemark.config.table_services_model import TableServicesConfig

EMBEDDED: Final = "embedded"
_KIB: Final = 1024
_MIB: Final = 1024 * _KIB
_GIB: Final = 1024 * _MIB


class ConfiguredTableType(Enum):
    MERGE_ON_READ = "merge_on_read"
    COPY_ON_WRITE = "copy_on_write"


class ConfiguredIndexKind(Enum):
    GLOBAL = "global"
    PARTITIONED = "partitioned"


class InputFormat(Enum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    DEBEZIUM_JSON = "debezium-json"
    DEBEZIUM_AVRO = "debezium-avro"

    @property
    def is_avro(self) -> bool:
        """Whether values are Avro, with writers' schemas from a schema registry."""
        return self in (InputFormat.AVRO, InputFormat.DEBEZIUM_AVRO)

    @property
    def is_debezium(self) -> bool:
        """Whether values are change events: an operation, and the row before and after it."""
        return self in (InputFormat.DEBEZIUM_JSON, InputFormat.DEBEZIUM_AVRO)


class InputFraming(Enum):
    """The header in front of each record's value: none, or Confluent's."""

    NONE = "none"
    CONFLUENT = "confluent"
    """Confluent's wire format: a zero byte, and the schema's id in four bytes."""


class InputPartitioning(Enum):
    """How producers choose the partition of a record."""

    ANY = "any"
    SHARD = "shard"
    """Producers use the key's lane as the partition, so there is no shuffle stage."""


class InputStart(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"


class UnknownFields(Enum):
    """What happens to fields of input records that the table's schema lacks."""

    DROP = "drop"
    """They are left out, counted and named in `status`, because a new field may be wanted in the table."""
    IGNORE = "ignore"
    """They are left out without any report."""
    ERROR = "error"
    """Records that have one become dead letters."""


class Address(NamedTuple):
    """The host and port on which a service listens, or at which it is dialled."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: object) -> Address:
        """The address that `str` shows as this text. Raises BadValueError."""
        return cls(*values.host_and_port(text))


def _read_address_or_off(text: object) -> Address | None:
    # YAML 1.1 reads a bare `off` as false.
    return None if text is False or text == "off" else Address.parse(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexConfig:
    """`lanes`: number of the units of ownership. `shards`: used only when the record index is created."""

    kind: ConfiguredIndexKind = _field(values.one_of(ConfiguredIndexKind), ConfiguredIndexKind.GLOBAL)
    shards: int = _field(values.integer(1, 10_000), 8)
    lanes: int = _field(values.integer(1, 1_000), 0)
    tombstone_ttl_ms: int = _field(values.duration_ms, 24 * 3_600_000, key="tombstone_ttl")
    column_stats: tuple[str, ...] = _field(values.names(at_least=0, at_most=100), ())
    """Columns whose range in each file a new table keeps, so that readers pass over files. Of a table that is
    there `tidemark index create --column-stats` makes them.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSection:
    """`path` is an absolute local path or a URI; `ordering` None means order of arrival."""

    name: str = _field(values.topic_prefix)
    path: str = _field(values.path_or_uri)
    type: ConfiguredTableType = _field(values.one_of(ConfiguredTableType), ConfiguredTableType.MERGE_ON_READ)
    record_key: tuple[str, ...] = _field(values.names(at_least=1))
    partition: tuple[str, ...] = _field(values.names(at_least=0), ())
    ordering: str | None = _field(values.text, None)
    schema: Path = _field(values.existing_file)
    accept_properties: tuple[str, ...] = _field(values.names(at_least=0), ())
    """Properties in hoodie.properties that Tidemark does not know, and despite which it serves the table."""
    retired_columns: tuple[str, ...] = _field(values.names(at_least=0), ())
    """Columns of the table that were removed from the schema on purpose: new rows have no value there."""
    index: IndexConfig = _field(values.section(IndexConfig), IndexConfig())


@dataclass(frozen=True, slots=True)
class SchemaRegistryConfig:
    """Settings of the registry's client as given, all values as text. They include credentials, so the text
    form of this object does not show them.
    """

    settings: Mapping[str, str] = field(repr=False)
    timeout_ms: int = 5_000

    @property
    def url(self) -> str:
        """The registry's URL; it contains no credentials, which have keys of their own."""
        return self.settings["url"]


def _read_registry(value: object) -> SchemaRegistryConfig:
    return SchemaRegistryConfig(*values.registry_settings(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumConfig:
    """`ordering`: the field of the envelope that fills the column `table.ordering`, for instance
    `source.lsn`.
    """

    ordering: str = _field(values.source_position)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufConfig:
    """`descriptor`: a file with a FileDescriptorSet, imports included. `message`: full name of a message in
    it.
    """

    descriptor: Path = _field(values.existing_file)
    message: str = _field(values.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputConfig:
    topics: tuple[str, ...] = _field(values.topic_names)
    format: InputFormat = _field(values.one_of(InputFormat), InputFormat.JSON)
    framing: InputFraming | None = _field(values.one_of(InputFraming), None)
    """Not set: `confluent` if there is a schema registry, else `none`."""
    schema_registry: SchemaRegistryConfig | None = _field(_read_registry, None)
    debezium: DebeziumConfig | None = _field(values.section(DebeziumConfig), None)
    protobuf: ProtobufConfig | None = _field(values.section(ProtobufConfig), None)
    partitions: int = _field(values.integer(1, 10_000), 0)
    """Number of partitions with which a missing input topic is created. Default: 4, or the number of lanes
    when partitioned by shard.
    """
    partitioning: InputPartitioning = _field(values.one_of(InputPartitioning), InputPartitioning.ANY)
    start: InputStart = _field(values.one_of(InputStart), InputStart.EARLIEST)
    unknown_fields: UnknownFields = _field(values.one_of(UnknownFields), UnknownFields.DROP)
    delete_field: str | None = _field(values.text, None)

    @property
    def confluent(self) -> bool:
        """Whether values have Confluent's wire format."""
        if self.framing is None:
            return self.schema_registry is not None
        return self.framing is InputFraming.CONFLUENT

    @property
    def is_sharded(self) -> bool:
        """Whether producers partition by shard: then the assign stage reads the input itself."""
        return self.partitioning is InputPartitioning.SHARD


@dataclass(frozen=True, slots=True)
class KafkaSection:
    """librdkafka settings as given, all values as text."""

    settings: Mapping[str, str]

    @property
    def bootstrap_servers(self) -> str:
        return self.settings["bootstrap.servers"]

    @property
    def embedded(self) -> bool:
        """Whether Tidemark starts a single-node Kafka of its own under `state.path`."""
        return self.bootstrap_servers == EMBEDDED

    def with_bootstrap_servers(self, servers: str) -> KafkaSection:
        """The same settings with the address of a broker that was started at run time."""
        return KafkaSection({**self.settings, "bootstrap.servers": servers})


MAPPED_BYTES: Final = _GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class StateConfig:
    """The folder of the run and of an assigner's caches, and the limits of one assigner's caches."""

    path: Path = _field(values.linked_path)
    memory_bytes: int = _field(values.size_bytes, 512 * _MIB, key="memory")
    disk_bytes: int = _field(values.size_bytes, 10 * _GIB, key="disk")
    mapped_bytes: int = _field(values.size_bytes, MAPPED_BYTES, key="mapped")
    """Pages of run files that an assigner has mapped at most. They are page cache, beside `state.memory`."""

    @property
    def uncommitted_memory(self) -> int:
        """Bytes for index entries that are tagged and not committed, of all assigners of the table together:
        after a takeover one of them holds them all.
        """
        return uncommitted_memory(self.memory_bytes)


def uncommitted_memory(memory_bytes: int) -> int:
    """Bytes of `state.memory` for index entries that are tagged and not committed."""
    return memory_bytes * 3 // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochConfig:
    interval_ms: int = _field(values.duration_ms, 2_000, key="interval")
    max_bytes: int = _field(values.size_bytes, 256 * _MIB)


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyConfig:
    """When the coordinator verifies the table while epochs go on, in a process of its own."""

    every_commits: int = _field(values.integer(0, 1_000_000), 0)
    """Verify after so many commits; 0: never."""
    timeout_ms: int = _field(values.duration_ms, 3_600_000, key="timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryConfig:
    """`otlp_endpoint`: where traces are sent by gRPC (OTLP). None: to OTEL_EXPORTER_OTLP_ENDPOINT; without
    that variable no traces are made. `log_format`: of the services.
    """

    otlp_endpoint: str | None = _field(values.http_url, None)
    log_format: LogFormat = _field(values.one_of(LogFormat), LogFormat.TEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicesConfig:
    """`bind`: the interface to listen on, if it is not the address that others dial (containers).

    The services listen on other interfaces than loopback only if `security:` encrypts calls and identifies
    callers, or with `allow_remote: true`.
    """

    coordinator: Address = _field(Address.parse, Address("127.0.0.1", 7411))
    metrics: Address = _field(Address.parse, Address("127.0.0.1", 7412))
    http: Address | None = _field(Address.parse, None)
    """Where the coordinator serves HTTP: metrics, health, its page. Not set: `run` takes a free port, and a
    coordinator that is started by itself serves none. Assigners and writers only use `--http`.
    """
    web: Address | None = _field(_read_address_or_off, Address("127.0.0.1", 7413))
    """Where the coordinator serves its page for people; `off`: nowhere."""
    bind: str | None = _field(values.text, None)
    allow_remote: bool = _field(values.boolean, False)

    def listening(self, at: Address) -> Address:
        """The address on which a service listens that others dial at ``at``."""
        return Address(self.bind or at.host, at.port)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsConfig:
    """Limits of everything that could grow. The defaults suit one small machine."""

    key_bytes: int = _field(values.size_bytes, 8 * _KIB)
    """A record key longer than this is dead-lettered."""
    record_bytes: int = _field(values.size_bytes, 4 * _MIB)
    """An input record larger than this is dead-lettered."""
    message_bytes: int = _field(values.size_bytes, 16 * _MIB)
    """The largest message to Tidemark's own topics."""
    batch_bytes: int = _field(values.size_bytes, 1 * _MIB)
    """About the size of messages with rows: few large messages cost least."""
    transaction_interval_ms: int = _field(values.duration_ms, 200, key="transaction_interval")
    transaction_bytes: int = _field(values.size_bytes, 16 * _MIB)
    transaction_records: int = _field(values.integer(1, 10_000_000), 100_000)
    transaction_timeout_ms: int = _field(values.duration_ms, 10_000, key="transaction_timeout")
    """Kafka aborts a transaction that is open for longer. Until then readers do not get past it."""
    uncommitted_entries: int | None = _field(values.integer(1, 1_000_000_000), None)
    """Index entries of the whole table that are tagged but not committed; tagging pauses at the limit. None:
    they are limited by the memory that they take, three eighths of `state.memory`, alone.
    """
    shuffled_transactions: int = _field(values.integer(1, 10_000_000), 20_000)
    """Transactions of the shuffle stage that no committed epoch covers; shuffling pauses at the limit."""
    uncommitted_transactions: int = _field(values.integer(1, 10_000_000), 20_000)
    """Transactions of the assign stage that no committed epoch covers; tagging pauses at the limit."""
    uncommitted_bytes: int = _field(values.size_bytes, 4 * 1_024 * _MIB)
    """Bytes that these transactions wrote to Tidemark's topics; tagging pauses at the limit."""
    secondary_disk: int = _field(values.size_bytes, 4 * 1_024 * _MIB)
    """Bytes of rows that the Python workers of a Spark executor keep on its local disk, to find the former
    values that secondary indexes of MERGE_ON_READ tables have to delete.
    """
    epoch_attempts: int = _field(values.integer(1, 1_000), 10)
    """Attempts to write an epoch. After so many tagging stops until `tidemark epoch retry`."""
    dead_letter_retention_ms: int = _field(values.duration_ms, 30 * 86_400_000, key="dead_letter_retention")
    """Kafka deletes dead letters that are older. An alert warns before that."""
    dead_letter_bytes: int = _field(values.size_bytes, 10 * 1_024 * _MIB)
    """Size of all dead letters. Kafka deletes the oldest ones above it, so that no producer can fill the
    disk.
    """
    lease_ms: int = _field(values.duration_ms, 3_000, key="lease")
    index_build_ms: int = _field(values.duration_ms, 3_600_000, key="index_build")
    """How long another engine may build an index, while nothing is committed; then it is taken for dead."""
    rpc_message_bytes: int = _field(values.size_bytes, 64 * _MIB)
    """Size of a gRPC answer, and of a writer's report with all its parts. A request has at most 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfigFile:
    """The content of one YAML file. `file` is its absolute path."""

    file: Path
    table: TableSection
    input: InputConfig
    kafka: KafkaSection
    state: StateConfig
    epoch: EpochConfig = EpochConfig()
    verify: VerifyConfig = VerifyConfig()
    telemetry: TelemetryConfig = TelemetryConfig()
    services: ServicesConfig = ServicesConfig()
    limits: LimitsConfig = LimitsConfig()
    table_services: TableServicesConfig = TableServicesConfig()
    security: SecurityConfig = SecurityConfig()
    spark: Mapping[str, str] = field(default_factory=dict)
    hoodie: Mapping[str, str] = field(default_factory=dict)
