"""Makes the record keyer from the table's properties and the configuration."""

from __future__ import annotations

from typing import Final

from tidemark.config import TableConfigFile
from tidemark.hudi_format.index_definitions import IndexKind, read_record_index_kind
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.index_assigner.shuffle.indexed_values import DefinedIndexes
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer, RecordRules
from tidemark.index_assigner.shuffle.shuffle_batch import MESSAGE_OVERHEAD_BYTES
from tidemark.record_formats.choose import record_decoder
from tidemark.record_formats.decode_bound import DECODING
from tidemark.stream_runtime.clock import Clock

ROWS_PER_INPUT_BYTE: Final = 4
"""Limit of the memory of one transaction's rows, in bytes per byte of `limits.transaction_bytes`: a record
of a few bytes may become a row of many. The rows may exceed it by one part, since whole parts are decoded.
"""


def configured_keyer(
    config: TableConfigFile,
    storage: Storage,
    table: TableConfig,
    schema: TableSchema,
    num_shards: int,
    lanes: int,
    clock: Clock,
) -> RecordKeyer:
    """``schema``: the configured one. Raises SetupError, SchemaError, RegistrySettingsError."""
    limits, kind = config.limits, read_record_index_kind(storage)
    generator = KeyGenerator.from_table_config(table, schema, limits.key_bytes)
    return RecordKeyer(
        RecordRules(
            schema=schema,
            generator=generator,
            ordering=table_ordering(table, schema)[1],
            num_shards=num_shards,
            lanes=lanes,
            record_bytes_max=limits.record_bytes,
            delete_field=config.input.delete_field,
            unknown_fields=config.input.unknown_fields,
            folder_problem=storage.folder_problem,
            row_bytes_max=limits.message_bytes - MESSAGE_OVERHEAD_BYTES,
            rows_bytes_max=ROWS_PER_INPUT_BYTE * limits.transaction_bytes,
            indexed_columns=DefinedIndexes(storage, clock),
            index_kind=kind,
        ),
        record_decoder(config, schema, generator, clock, kind is IndexKind.PARTITIONED),
        DECODING,
    )
