"""Bytes of the archive's files, in Hudi's form (FORMAT.md, section 3.8): Avro-Parquet with the footer that
Hudi's reader takes the schema from.

Written by pyarrow, such a file differs from Hudi's own in the name of the Parquet message and in the codec
(zstd for gzip, which takes a fifth of the time). Hudi reads, archives behind and compacts them as its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.hudi_format.timeline.archive_actions import said_actions
from tidemark.hudi_format.timeline.archive_files import ArchivedInstant

_TEXT: Final = ["null", {"type": "string", "avro.java.string": "String"}]
_BLOB: Final = ["null", "bytes"]
_AVRO: Final = {
    "type": "record",
    "name": "HoodieLSMTimelineInstant",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "instantTime", "type": _TEXT, "default": None},
        {"name": "completionTime", "type": _TEXT, "default": None},
        {"name": "action", "type": _TEXT, "default": None},
        {"name": "metadata", "type": _BLOB, "default": None},
        {"name": "plan", "type": _BLOB, "default": None},
        {"name": "version", "type": "int", "default": 1},
    ],
}
SCHEMA: Final = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
FOOTER: Final = {
    "parquet.avro.schema": json.dumps(_AVRO, separators=(",", ":")),
    "writer.model.name": "avro",
}
"""Hudi's reader takes the schema from here."""
_ROW_VERSION: Final = 1
# A row group is what a reader holds at a time, and what a question about one instant reads of three columns.
# A merge holds its contents several times, while epochs go on beside it.
GROUP_ROWS_MAX: Final = 8_192
GROUP_BYTES_MAX: Final = 2 << 20
_PIECE_ROWS_MAX: Final = 512
_PIECE_BYTES_MAX: Final = 256 << 10


class ByteSink(Protocol):
    """Where the bytes go, piece by piece."""

    def write(self, data: bytes) -> object:
        """Appends to the file."""
        ...


def encode_archive_file(rows: Sequence[ArchivedInstant]) -> bytes:
    """The bytes of a file with these rows, which are in order of requested time."""
    sink = pa.BufferOutputStream()
    write_archive_file(rows, sink)
    return bytes(sink.getvalue())


def write_archive_file(rows: Iterable[ArchivedInstant], sink: ByteSink) -> None:
    """Writes a file with these rows, which come in order of requested time. One row group is in memory at a
    time.
    """
    with archive_file_writer(sink) as writer:
        for group in _groups(rows):
            table = pa.Table.from_batches(group)
            del group[:]
            writer.write(table)


class ArchiveFileWriter:
    """Writes row groups, and notes the actions of their rows."""

    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer
        self.actions: set[str] = set()

    def write(self, group: pa.Table) -> None:
        """``group``: a table of `SCHEMA`."""
        self.actions.update(group.column("action").to_pylist())
        self._writer.write_table(group, row_group_size=GROUP_ROWS_MAX)


@contextmanager
def archive_file_writer(sink: ByteSink) -> Iterator[ArchiveFileWriter]:
    """Takes the tables of `SCHEMA` that become the file's row groups."""
    target = sink if isinstance(sink, pa.NativeFile) else pa.PythonFile(sink, "w")
    with pq.ParquetWriter(
        target, SCHEMA, compression="zstd", use_dictionary=["action"], store_schema=False
    ) as writer:
        noting = ArchiveFileWriter(writer)
        yield noting
        writer.add_key_value_metadata(FOOTER | said_actions(noting.actions))


def _groups(rows: Iterable[ArchivedInstant]) -> Iterator[list[pa.RecordBatch]]:
    """The row groups, each in pieces: only the last piece is there as Python's objects, too."""
    group: list[pa.RecordBatch] = []
    count = size = 0
    for piece, piece_bytes in _pieces(rows):
        group.append(_batch(piece))
        count, size = count + len(piece), size + piece_bytes
        if count >= GROUP_ROWS_MAX or size >= GROUP_BYTES_MAX:
            yield group
            group, count, size = [], 0, 0
    if group:
        yield group


def _pieces(rows: Iterable[ArchivedInstant]) -> Iterator[tuple[list[ArchivedInstant], int]]:
    """(rows, bytes of their contents)."""
    piece: list[ArchivedInstant] = []
    size = 0
    for row in rows:
        piece.append(row)
        size += len(row.metadata) + len(row.plan)
        if len(piece) >= _PIECE_ROWS_MAX or size >= _PIECE_BYTES_MAX:
            yield piece, size
            piece, size = [], 0
    if piece:
        yield piece, size


def _batch(rows: list[ArchivedInstant]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)]
    # A plan is there or null, as in Hudi's files; the result of an instant may be empty.
    columns[4] = [plan or None for plan in columns[4]]
    return pa.RecordBatch.from_pydict(
        dict(zip(SCHEMA.names, [*columns, [_ROW_VERSION] * len(rows)], strict=True)), schema=SCHEMA
    )
