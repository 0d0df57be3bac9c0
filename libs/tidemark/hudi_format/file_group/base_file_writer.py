"""Writes a base file row group by row group, with the content that `base_file.write_base_file` gives it.

A bloom filter's size follows from the number of keys, which is known at the end. So the keys are kept on disk
meanwhile, and read once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from tidemark.hudi_format.bloom import BloomFilter, BloomSpec
from tidemark.hudi_format.file_group.base_file import (
    FILE_NAME,
    RECORD_KEY,
    ROW_GROUP_BYTES,
    base_file_footer,
    constant_column,
    java_order,
    min_max_key,
    parquet_writer,
)
from tidemark.hudi_format.schema import OPERATION_FIELD, TableSchema


class Sink(Protocol):
    """Takes the bytes of a file, in order."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Appends `data`."""
        ...


class BaseFileWriter:
    """Writes the base file `file_name` to a sink. A row group has as many rows as take `row_group_bytes` in
    memory; two of them are held at most.
    """

    def __init__(
        self,
        sink: Sink,
        schema: TableSchema,
        columns: pa.Schema,
        file_name: str,
        *,
        bloom_keys: Path | None = None,
        row_group_bytes: int = ROW_GROUP_BYTES,
    ) -> None:
        """`columns`: those of `schema` with meta columns, with or without `_hoodie_operation`. `bloom_keys`:
        a new file for the keys; None: the base file gets no bloom filter.
        """
        self._output = _Counted(sink)
        self._schema, self._columns, self._name = schema, columns, file_name
        self._group_bytes = row_group_bytes
        self._writer = parquet_writer(pa.PythonFile(self._output, mode="w"), columns)
        self._held: list[pa.Table] = []
        self._held_bytes = self._rows = 0
        self._bounds: tuple[str, str] | None = None
        self._keys = None if bloom_keys is None else _KeptKeys(bloom_keys)

    def add(self, rows: pa.Table) -> None:
        """Adds rows with the writer's columns; their `_hoodie_file_name` becomes that of this file."""
        if not rows.num_rows:
            return
        number = rows.schema.get_field_index(FILE_NAME)
        field = self._columns.field(FILE_NAME)
        rows = rows.set_column(number, field, constant_column(self._name, rows.num_rows).cast(field.type))
        keys = rows.column(RECORD_KEY)
        low, high = min_max_key(keys)
        if self._bounds is not None:
            low, high = min(low, self._bounds[0], key=java_order), max(high, self._bounds[1], key=java_order)
        self._bounds = low, high
        if self._keys is not None:
            self._keys.add(keys)
        self._rows += rows.num_rows
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._group_bytes:
            self._write_group()

    def finish(self) -> int:
        """Writes the rest of the file; returns its size in bytes."""
        self._write_group()
        bloom = None
        if self._keys is not None:
            bits = BloomFilter(self._rows, BloomSpec())
            for keys in self._keys.all():
                bits.add(keys)
            bloom = bits.text()
        with_operation = OPERATION_FIELD in self._columns.names
        footer = base_file_footer(self._schema, with_operation, self._bounds, bloom)
        self._writer.add_key_value_metadata(footer)
        self._writer.close()
        return self._output.size

    def _write_group(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._held, self._held_bytes = [], 0


class _Counted:
    """A sink as the file object that Arrow wants."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink, self.size = sink, 0

    def write(self, data: bytes | memoryview) -> int:
        self._sink.write(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        return None

    def tell(self) -> int:
        return self.size

    def close(self) -> None:
        self.closed = True


class _KeptKeys:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = pa.OSFile(str(path), "wb")
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        schema = pa.schema([("key", pa.string())])
        self._writer: Any = pa.ipc.new_stream(self._file, schema, options=options)

    def add(self, keys: pa.ChunkedArray) -> None:
        self._writer.write_table(pa.table({"key": keys}))

    def all(self) -> Iterator[pa.Array]:
        self._writer.close()
        self._file.close()
        with pa.OSFile(str(self._path), "rb") as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield batch.column(0)
        self._path.unlink()
