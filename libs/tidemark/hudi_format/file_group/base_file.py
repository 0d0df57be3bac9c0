"""Writes and reads base files: Parquet with Hudi's five meta columns first (FORMAT.md, section 4).

The caller chooses the file's name; `attach_meta_columns` needs it because every row carries it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.hudi_format.bloom import BloomSpec, bloom_filter_text
from tidemark.hudi_format.columnar import BinaryColumn
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.parquet_files import (
    open_parquet,
    parquet_damage,
    read_columns,
    read_in_batches,
)
from tidemark.hudi_format.schema import (
    META_COLUMNS,
    OPERATION_FIELD,
    SchemaError,
    TableSchema,
    cast_rows,
    left_out,
)
from tidemark.hudi_format.storage.base import Storage

COMMIT_TIME, COMMIT_SEQNO, RECORD_KEY, PARTITION_PATH, FILE_NAME = META_COLUMNS
ROW_GROUP_BYTES: Final = 64 << 20
BLOOM_ENTRY: Final = "org.apache.hudi.bloomfilter"
BATCH_BYTES: Final = 16 << 20
_READ_BYTES: Final = 1 << 20
_ZSTD_LEVEL: Final = 1
# UTF-8 characters from U+E000 on begin with this byte or a higher one. Only such characters sort differently
# in UTF-8 bytes and in Java's UTF-16.
_UNORDERED_BYTE: Final = 0xEE
# Columns with distinct values: a dictionary for them would be built, found too large and thrown away.
_UNIQUE_COLUMNS: Final = (COMMIT_SEQNO, RECORD_KEY)


def attach_meta_columns(
    rows: pa.Table,
    keys: pa.Array | pa.ChunkedArray,
    partition_path: str,
    instant: str,
    task_partition: int,
    file_name: str,
    first_seqno: int = 0,
) -> pa.Table:
    """`rows` (user columns) with the meta columns of new row versions in front.

    `_hoodie_commit_seqno` is `<instant>_<task_partition>_<number>`. It is unique within the commit when each
    task has its own partition number and continues `first_seqno` over its files. `file_name` is the name of
    the base file, or the bare file id for rows of a log file.
    """
    count = rows.num_rows
    numbers = pa.array(np.arange(first_seqno, first_seqno + count)).cast(pa.string())
    meta = [
        constant_column(instant, count),
        pc.binary_join_element_wise(f"{instant}_{task_partition}_", numbers, ""),
        keys,
        constant_column(partition_path, count),
        constant_column(file_name, count),
    ]
    user = [name for name in rows.column_names if name not in META_COLUMNS]
    columns = meta + [rows.column(name) for name in user]
    fields = [pa.field(name, pa.string()) for name in META_COLUMNS] + [
        rows.schema.field(name) for name in user
    ]
    return pa.table(columns, schema=pa.schema(fields))


def constant_column(value: str, count: int) -> pa.Array:
    """A column with the same text in `count` rows."""
    return pa.repeat(pa.scalar(value, pa.string()), count)


def write_base_file(
    rows: pa.Table,
    schema: TableSchema,
    *,
    bloom: BloomSpec | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> bytes:
    """The bytes of a base file with `rows` (meta and user columns; missing user columns become null).

    The file has `_hoodie_operation` when `rows` have it. Spark writers with the BLOOM index need `bloom`; the
    record index does not. Raises `SchemaError`.
    """
    with_operation = OPERATION_FIELD in rows.column_names
    rows = cast_rows(rows, schema.arrow_with_operation if with_operation else schema.arrow_with_meta)
    keys = rows.column(RECORD_KEY)
    bounds = min_max_key(keys) if rows.num_rows else None
    text = None if bloom is None else bloom_filter_text(keys, bloom)
    return write_parquet(rows, base_file_footer(schema, with_operation, bounds, text), row_group_bytes)


def base_file_footer(
    schema: TableSchema, with_operation: bool, bounds: tuple[str, str] | None, bloom: str | None
) -> dict[str, str]:
    """The footer's entries. `bounds`: the smallest and largest key (None: no rows); `bloom`: the filter's
    text.
    """
    avro = schema.avro_with_operation_json if with_operation else schema.avro_with_meta_json
    footer = {"parquet.avro.schema": avro, "writer.model.name": "avro"}
    if bounds is not None:
        footer["hoodie_min_record_key"], footer["hoodie_max_record_key"] = bounds
    if bloom is not None:
        footer[BLOOM_ENTRY], footer["hoodie_bloom_filter_type_code"] = bloom, "SIMPLE"
    return footer


def write_parquet(rows: pa.Table, footer: dict[str, str], row_group_bytes: int = ROW_GROUP_BYTES) -> bytes:
    """A Parquet file in memory, without Arrow's own schema entry, which only Arrow would read."""
    sink = pa.BufferOutputStream()
    row_bytes = max(rows.nbytes // max(rows.num_rows, 1), 1)
    with parquet_writer(sink, rows.schema) as writer:
        writer.write_table(rows, row_group_size=max(row_group_bytes // row_bytes, 1))
        writer.add_key_value_metadata(footer)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def parquet_writer(sink: Any, schema: pa.Schema) -> pq.ParquetWriter:
    """Writes data files as Tidemark has them: zstd, and no dictionary where values are distinct."""
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=_ZSTD_LEVEL,
        use_dictionary=_dictionary_columns(schema),
        store_schema=False,
    )


def min_max_key(keys: pa.Array | pa.ChunkedArray) -> tuple[str, str]:
    """The smallest and largest key in Java's string order, by which Spark's BLOOM index prunes files."""
    if BinaryColumn.from_arrow(keys).data.max(initial=0) < _UNORDERED_BYTE:
        bounds = pc.min_max(keys)
        return bounds["min"].as_py(), bounds["max"].as_py()
    ordered = sorted(keys.to_pylist(), key=java_order)
    return ordered[0], ordered[-1]


def java_order(key: str) -> bytes:
    """Sorts texts as Java does."""
    return key.encode("utf-16-be")


def read_base_file(storage: Storage, path: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of a base file as stored; `cast_rows` casts them to the table's schema.

    `columns` that the file lacks are left out. Raises `FileMissingError`, `CorruptFileError`.
    """
    with storage.open_input(path) as source:
        return read_parquet(source, path, columns)


def read_base_schema(storage: Storage, path: str) -> pa.Schema:
    """The columns of a base file, from its footer. Raises as `read_base_file`."""
    return read_base_head(storage, path)[0]


def read_base_head(storage: Storage, path: str) -> tuple[pa.Schema, bool]:
    """The columns of a base file, and whether it has a bloom filter. Raises as `read_base_file`."""
    with storage.open_input(path) as source:
        file = open_parquet(source, path)
        with parquet_damage(path):
            return file.schema_arrow, BLOOM_ENTRY.encode() in (file.metadata.metadata or {})


def rewritable_rows(storage: Storage, path: str, schema: TableSchema) -> pa.Table:
    """All rows of a base file with the columns that the next base file with `schema` will have; none is lost.

    Raises `SchemaError` when the file has a column that `schema` lacks, or a wider type: rewriting it would
    lose values of rows that nobody touched. Other errors are those of `read_base_file`.
    """
    rows = read_base_file(storage, path)
    check_keeps_all(rows.schema, schema, path)
    with_operation = OPERATION_FIELD in rows.column_names
    return cast_rows(rows, schema.arrow_with_operation if with_operation else schema.arrow_with_meta)


def check_keeps_all(stored: pa.Schema, schema: TableSchema, path: str) -> None:
    """Raises `SchemaError` when rows of the file would lose something if they were written with `schema`."""
    if lost := left_out(stored, schema.arrow):
        raise SchemaError(
            f"{path} has columns that the table's schema lacks ({', '.join(lost)}): written anew it would "
            "lose them. Add them to table.schema, as optional fields of the file's types, and restart"
        )


def parquet_batches(
    source: pa.NativeFile | pa.Buffer,
    path: str,
    columns: list[str] | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Iterator[pa.Table]:
    """What `read_parquet` reads, in tables of about `batch_bytes`; at least one. Errors are the same."""
    file = open_parquet(source, path, buffer_size=_READ_BYTES)
    with parquet_damage(path):
        stored = file.schema_arrow
    wanted = None if columns is None else [name for name in columns if name in stored.names]
    if RECORD_KEY not in stored.names and (columns is None or RECORD_KEY in columns):
        raise CorruptFileError(
            f"{path} has no column {RECORD_KEY}; tables without meta columns are not served"
        )
    yield from read_in_batches(file, path, wanted, batch_bytes)


def read_parquet(
    source: pa.NativeFile | pa.Buffer,
    path: str,
    columns: list[str] | None = None,
) -> pa.Table:
    """The rows of an open Parquet file or buffer; `path` names it in errors.

    Other parameters and errors are those of `read_base_file`.
    """
    file = open_parquet(source, path, pre_buffer=True)
    wanted = None
    if columns is not None:
        with parquet_damage(path):
            wanted = [name for name in columns if name in file.schema_arrow.names]
    rows = read_columns(file, path, wanted)
    if RECORD_KEY not in rows.column_names and (columns is None or RECORD_KEY in columns):
        raise CorruptFileError(
            f"{path} has no column {RECORD_KEY}; tables without meta columns are not served"
        )
    return rows


def _dictionary_columns(schema: pa.Schema) -> list[str]:
    names: list[str] = []
    for field in schema:
        if field.name not in _UNIQUE_COLUMNS:
            names += _leaf_paths(field, field.name)
    return names


def _leaf_paths(field: pa.Field, path: str) -> list[str]:
    if pa.types.is_struct(field.type):
        return [leaf for child in field.type for leaf in _leaf_paths(child, f"{path}.{child.name}")]
    if pa.types.is_list(field.type):
        return _leaf_paths(field.type.value_field, f"{path}.list.element")
    if pa.types.is_map(field.type):
        key, value = field.type.key_field, field.type.item_field
        return _leaf_paths(key, f"{path}.key_value.key") + _leaf_paths(value, f"{path}.key_value.value")
    return [path]
