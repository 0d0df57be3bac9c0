"""Layout of the Arrow record batches that travel through the keyed, data, index and tombstones topics.

The value of a Kafka message is one Arrow IPC stream with one record batch. Our columns start with ``_tm_``;
in keyed and data batches the user's columns follow under their own names. The Kafka headers carry what a
reader must know before it decodes:

========== ============================================================================
``tm-v``    layout version (`LAYOUT_VERSION`)
``tm-tx``   nonce of the transaction, as in its ledger entry; readers ignore a batch whose nonce no counting
            entry names
``tm-seq``  0-based number of the message within (transaction, topic, partition), without gap or repeat
``tm-rows`` number of rows in the batch
``tm-sid``  schema fingerprint of the user's columns (keyed, data)
========== ============================================================================

In a table with a partitioned record index `SHARD` is the row's lane: shards are numbered in each partition,
and how many a partition has may not be known yet. Tombstones name their partition there, also without a file.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec
import pyarrow as pa

from tidemark.epoch_protocol.arrow_streams import unpacks
from tidemark.epoch_protocol.errors import UnknownEntryError

LAYOUT_VERSION: Final = 1
KEY: Final = "_tm_key"
SHARD: Final = "_tm_shard"
PARTITION: Final = "_tm_partition"
FILE_ID: Final = "_tm_file_id"
ORDERING: Final = "_tm_ordering"
OP: Final = "_tm_op"
EXACT: Final = "_tm_exact"
EXPIRES: Final = "_tm_expires_ms"

HEADER_VERSION: Final = "tm-v"
HEADER_NONCE: Final = "tm-tx"
HEADER_SEQUENCE: Final = "tm-seq"
HEADER_ROWS: Final = "tm-rows"
HEADER_SCHEMA: Final = "tm-sid"


class KeyedOp(IntEnum):
    """The operation that an input record asks for."""

    UPSERT = 0
    DELETE = 1


class DataOp(IntEnum):
    """The operation of the writer on a data row in its file group."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2


class IndexOp(IntEnum):
    """What happened to the key's location. UNCHANGED rows never reach the record index: they exist only to
    carry the ordering value.
    """

    UPSERT = 0
    DELETE = 1
    UNCHANGED = 2


_dictionary = pa.dictionary(pa.int32(), pa.string())

KEYED_COLUMNS: Final = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(SHARD, pa.int32(), nullable=False),
        pa.field(PARTITION, _dictionary),  # null: a delete that does not know its partition (global index)
        pa.field(ORDERING, pa.int64()),  # order-preserving int64; null: none given
        pa.field(OP, pa.int8(), nullable=False),
    ]
)
DATA_COLUMNS: Final = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(PARTITION, _dictionary, nullable=False),
        pa.field(FILE_ID, _dictionary, nullable=False),
        pa.field(ORDERING, pa.int64()),
        pa.field(OP, pa.int8(), nullable=False),
    ]
)
INDEX_COLUMNS: Final = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(SHARD, pa.int32(), nullable=False),
        pa.field(PARTITION, _dictionary, nullable=False),
        pa.field(FILE_ID, _dictionary, nullable=False),  # of a delete: where the key was
        pa.field(ORDERING, pa.int64()),
        pa.field(EXACT, pa.bool_(), nullable=False),  # ordering is the stored one, not a lower bound
        pa.field(OP, pa.int8(), nullable=False),
    ]
)
TOMBSTONE_COLUMNS: Final = pa.schema(
    [
        pa.field(KEY, pa.string(), nullable=False),
        pa.field(SHARD, pa.int32(), nullable=False),
        pa.field(PARTITION, _dictionary),  # null: the key was unknown when it was deleted
        pa.field(FILE_ID, _dictionary),
        pa.field(ORDERING, pa.int64(), nullable=False),
        pa.field(EXPIRES, pa.int64(), nullable=False),  # epoch milliseconds
    ]
)


class BatchHeader(msgspec.Struct, frozen=True):
    """The decoded Kafka headers of a batch message."""

    nonce: str
    sequence: int
    rows: int
    schema_id: str
    version: int = LAYOUT_VERSION

    def encode(self) -> tuple[tuple[str, bytes], ...]:
        """The Kafka headers of the batch."""
        return (
            (HEADER_VERSION, str(self.version).encode()),
            (HEADER_NONCE, self.nonce.encode()),
            (HEADER_SEQUENCE, str(self.sequence).encode()),
            (HEADER_ROWS, str(self.rows).encode()),
            (HEADER_SCHEMA, self.schema_id.encode()),
        )

    @classmethod
    def decode(cls, headers: Iterable[tuple[str, bytes]]) -> BatchHeader:
        """Reads the Kafka headers. Raises UnknownEntryError for a message that is no batch of this layout."""
        by_name: Mapping[str, bytes] = dict(headers)
        try:
            header = cls(
                nonce=by_name[HEADER_NONCE].decode(),
                sequence=int(by_name[HEADER_SEQUENCE]),
                rows=int(by_name[HEADER_ROWS]),
                schema_id=by_name[HEADER_SCHEMA].decode(),
                version=int(by_name[HEADER_VERSION]),
            )
        except (KeyError, ValueError, AttributeError, TypeError) as error:
            raise UnknownEntryError(f"not a Tidemark batch: header {error} missing or unreadable") from error
        if header.version != LAYOUT_VERSION:
            raise UnknownEntryError(
                f"batch layout {header.version} is not known; this Tidemark reads {LAYOUT_VERSION}"
            )
        return header


def with_user_columns(columns: pa.Schema, user: pa.Schema) -> pa.Schema:
    """Our columns, then the user's: the schema of keyed or data batches. Deletes leave the user's null."""
    return pa.schema([*columns, *(field.with_nullable(True) for field in user)])


def encode_batch(table: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """One Arrow IPC stream with the rows as a single record batch."""
    batch = table if isinstance(table, pa.RecordBatch) else _single_batch(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def decode_batch(value: bytes | pa.Buffer) -> pa.RecordBatch:
    """The record batch of a message value, zero-copy. Raises UnknownEntryError when it is none of ours.

    Arrow trusts the offsets, lengths and indices inside a batch, so a damaged one would crash the process
    where a column is used. `validate` checks all of them here, for about a millisecond per megabyte.
    """
    try:
        if unpacks(value):
            raise UnknownEntryError(
                "batch message is compressed inside, which ours never are: it could unpack to any size"
            )
        with pa.ipc.open_stream(pa.py_buffer(value)) as reader:
            batch = reader.read_next_batch()
            batch.validate(full=True)
            # Arrow decodes field names only where they are used, and they need not be valid UTF-8.
            _check_names(batch.schema)
            return batch
    except (
        pa.ArrowException,
        StopIteration,
        struct.error,
        OSError,
        ValueError,
        LookupError,
        MemoryError,
    ) as error:
        raise UnknownEntryError(f"batch message does not hold an Arrow stream: {error}") from error


def _check_names(fields: Iterable[pa.Field]) -> None:
    """Raises UnicodeDecodeError when a field's name, at any depth, is not valid UTF-8."""
    for field in fields:
        _ = field.name
        if pa.types.is_nested(field.type):
            _check_names(field.type.field(i) for i in range(field.type.num_fields))


def chained_checksum(values: Iterable[bytes | pa.Buffer], start: int = 0) -> int:
    """The CRC-32 over the values, chained in their order from ``start``: the checksum in `Produced`."""
    checksum = start
    for value in values:
        checksum = zlib.crc32(value, checksum)
    return checksum


def _single_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_pylist([], schema=table.schema)
