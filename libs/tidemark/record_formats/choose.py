"""Makes the decoder for the configuration's `input.format`."""

from __future__ import annotations

from tidemark.config import TableConfigFile
from tidemark.config.model import InputFormat
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.schema import TableSchema
from tidemark.record_formats.avro_columns import UnresolvedError
from tidemark.record_formats.avro_keys import AvroKeys
from tidemark.record_formats.avro_rows import column_defaults
from tidemark.record_formats.avro_schema import AvroSchemaError
from tidemark.record_formats.debezium_avro import DebeziumAvro
from tidemark.record_formats.debezium_json import DebeziumJson
from tidemark.record_formats.decode_avro import AvroDecoder
from tidemark.record_formats.decode_json import JsonDecoder
from tidemark.record_formats.decode_protobuf import ProtobufDecoder
from tidemark.record_formats.decoded_memory import memory_max
from tidemark.record_formats.decoder import RecordDecoder, RowTarget
from tidemark.record_formats.errors import SetupError
from tidemark.record_formats.plain_json import FramedJson, PlainJson
from tidemark.record_formats.protobuf_message import message_class
from tidemark.record_formats.source_position import EnvelopeOrdering
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.schema_registry.confluent import ConfluentSchemaSource
from tidemark.stream_runtime.schema_registry.ports import SchemaSource


def record_decoder(
    config: TableConfigFile,
    schema: TableSchema,
    generator: KeyGenerator,
    clock: Clock,
    deletes_need_partition: bool = False,
) -> RecordDecoder:
    """Makes the decoder of the table's input. ``deletes_need_partition``: as those of a table with
    a partitioned record index do. Raises SetupError, SchemaError, RegistrySettingsError.
    """
    given = config.input
    source: SchemaSource | None = None
    if given.schema_registry is not None:
        source = ConfluentSchemaSource(given.schema_registry)
    unknown = given.unknown_fields
    if given.format.is_avro:
        return _avro(config, schema, generator, source, clock, deletes_need_partition)
    if given.protobuf is not None:
        message = message_class(given.protobuf.descriptor, given.protobuf.message)
        target = RowTarget.of(schema, given.delete_field, unknown)
        return ProtobufDecoder(message, target, generator, given.confluent)
    framed = FramedJson(source, clock) if given.confluent else None
    if given.format is InputFormat.DEBEZIUM_JSON:
        return DebeziumJson(
            schema, generator, unknown, _ordering(config, schema), framed, deletes_need_partition
        )
    return PlainJson(JsonDecoder(schema, given.delete_field, unknown), generator, framed)


def _avro(
    config: TableConfigFile,
    schema: TableSchema,
    generator: KeyGenerator,
    source: SchemaSource | None,
    clock: Clock,
    deletes_need_partition: bool,
) -> RecordDecoder:
    assert source is not None, "the configuration was checked"
    given = config.input
    target = RowTarget.of(schema, given.delete_field, given.unknown_fields)
    try:
        defaults = column_defaults(config.table.schema.read_text("utf-8"), target.columns)
    except (AvroSchemaError, UnresolvedError) as error:
        raise SetupError(f"{config.table.schema}: {error}") from None
    keys = AvroKeys(generator, target, source, clock)
    most = memory_max(config.limits.record_bytes)
    if given.format is InputFormat.DEBEZIUM_AVRO:
        ordering = _ordering(config, schema)
        return DebeziumAvro(
            target, generator, defaults, keys, ordering, source, clock, most, deletes_need_partition
        )
    return AvroDecoder(target, defaults, keys, source, clock, most)


def _ordering(config: TableConfigFile, schema: TableSchema) -> EnvelopeOrdering | None:
    setting, column = config.input.debezium, config.table.ordering
    if setting is None or column is None:
        return None
    return EnvelopeOrdering.of(setting.ordering, column, schema.field(column).type)
