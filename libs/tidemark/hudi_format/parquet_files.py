"""Opens Parquet files that others wrote: damage becomes a typed error with the file's name, and the claims of
a footer are bounded.

Parquet has no checksum that readers check, but it states the number of rows three times (file, row group,
column chunk), and they have to agree. Run-length encoding fits a billion rows into a few bytes, so a footer's
claims are compared with the file's size before anything is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.hudi_format.errors import CorruptFileError, damage_in

# Every row has its own key and sequence number: even the best packed ones take some bits.
_ROWS_PER_BYTE_MAX: Final = 64
_UNPACKED_PER_BYTE_MAX: Final = 500
_SMALL_BYTES: Final = 256 << 20
_BATCH_ROWS: Final = 16_384
_FIRST_ROWS: Final = 256
_BATCH_BYTES: Final = 16 << 20
_ONE_THREAD_ROWS: Final = 10_000
"""Below it one thread decodes all columns: of a file of some rows, handing them to others took a third of the
CPU. Where it begins to pay was not measured.
"""


@contextmanager
def parquet_damage(path: str) -> Iterator[None]:
    """Turns what decoding Parquet raises inside into a `CorruptFileError` with the file's name.

    pyarrow raises OSError for damage, too. An OSError with an errno means that the storage failed, and
    passes.
    """
    with damage_in(path, "the Parquet file"):
        try:
            yield
        except OSError as error:
            if error.errno is not None:
                raise
            raise CorruptFileError(f"{path} is no readable Parquet file: {error}") from error
        except pa.ArrowException as error:
            raise CorruptFileError(f"{path} is no readable Parquet file: {error}") from error


def open_parquet(
    source: pa.NativeFile | pa.Buffer | pa.BufferReader, path: str, **options: Any
) -> pq.ParquetFile:
    """Opens a file and checks its footer's claims; `path` names it in errors, `options` go to pyarrow.

    Raises `CorruptFileError`.
    """
    with parquet_damage(path):
        size = source.size if isinstance(source, pa.Buffer) else source.size()
        file = pq.ParquetFile(source, **options)
        _check_claims(file.metadata, size, path)
    return file


def read_columns(file: pq.ParquetFile, path: str, columns: list[str] | None = None) -> pa.Table:
    """The rows of an open file, with all columns or only `columns`. Raises `CorruptFileError`."""
    with parquet_damage(path):
        rows = file.read(columns, use_threads=_pays_threads(file))
        if rows.num_rows != file.metadata.num_rows:
            raise ValueError(f"{rows.num_rows} rows, the footer says {file.metadata.num_rows}")
        # A full validation: Parquet does not check that text is UTF-8, and bad text would fail much later.
        rows.validate(full=True)
    return rows


def read_in_batches(
    file: pq.ParquetFile, path: str, columns: list[str] | None = None, batch_bytes: int = _BATCH_BYTES
) -> Iterator[pa.Table]:
    """What `read_columns` reads, in tables of about `batch_bytes`; at least one table. Open the file with a
    `buffer_size`: otherwise each row group's bytes are held whole. Raises `CorruptFileError`.
    """
    found, batches, size = 0, list[pa.RecordBatch](), 0
    schema = file.schema_arrow
    if columns is not None:
        schema = pa.schema([schema.field(name) for name in columns])
    with parquet_damage(path):
        for batch in _batches(file, columns, batch_bytes):
            batch.validate(full=True)
            found += batch.num_rows
            batches.append(batch)
            size += batch.nbytes
            if size >= batch_bytes:
                yield pa.Table.from_batches(batches, schema)
                batches, size = [], 0
        if batches or not found:
            yield pa.Table.from_batches(batches, schema)
        if found != file.metadata.num_rows:
            raise ValueError(f"{found} rows, the footer says {file.metadata.num_rows}")


def _batches(file: pq.ParquetFile, columns: list[str] | None, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches of about `batch_bytes` at most, by the width of the rows: Arrow counts rows alone, and 16 384
    documents of 25 KiB are 400 MiB.

    The footer says how wide the rows of a row group are as they are stored. A text that repeats is stored
    once, so the width of rows that were decoded counts as well: of some hundred rows first.
    """
    threads, row_bytes = _pays_threads(file), 0.0
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        if not group.num_rows:
            continue
        if not row_bytes:
            few = file.iter_batches(_FIRST_ROWS, [number], columns=columns, use_threads=threads)
            first = next(few, None)
            # A damaged file may have fewer rows than it says.
            row_bytes = 0.0 if first is None else first.nbytes / max(first.num_rows, 1)
        width = max(row_bytes, _stored_row_bytes(group, columns), 1.0)
        rows = int(min(max(batch_bytes / width, 1.0), _BATCH_ROWS))
        for batch in file.iter_batches(rows, [number], columns=columns, use_threads=threads):
            row_bytes = max(row_bytes, batch.nbytes / max(batch.num_rows, 1))
            yield batch


def _stored_row_bytes(group: Any, columns: list[str] | None) -> float:
    """Bytes of a mean row of the row group in these columns, before compression."""
    chunks = (group.column(number) for number in range(group.num_columns))
    sizes = (
        chunk.total_uncompressed_size
        for chunk in chunks
        if columns is None or chunk.path_in_schema.split(".")[0] in columns
    )
    return float(sum(sizes)) / float(group.num_rows)


def _pays_threads(file: pq.ParquetFile) -> bool:
    return bool(file.metadata.num_rows >= _ONE_THREAD_ROWS)


def _check_claims(metadata: pq.FileMetaData, size: int, path: str) -> None:
    """Raises `CorruptFileError` when the footer contradicts itself, or claims more than `size` bytes can
    hold.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    rows, unpacked = sum(group.num_rows for group in groups), 0
    for group in groups:
        for number in range(group.num_columns):
            chunk = group.column(number)
            unpacked += max(chunk.total_uncompressed_size, 0)
            is_flat = metadata.schema.column(number).max_repetition_level == 0
            if chunk.num_values < 0 or (is_flat and chunk.num_values != group.num_rows):
                raise CorruptFileError(
                    f"{path}: column {chunk.path_in_schema} has {chunk.num_values} values in a row group of "
                    f"{group.num_rows} rows"
                )
    if rows != metadata.num_rows or any(group.num_rows < 0 for group in groups):
        raise CorruptFileError(f"{path}: {rows} rows in its row groups, {metadata.num_rows} in its footer")
    if rows > _ROWS_PER_BYTE_MAX * size or unpacked > max(_UNPACKED_PER_BYTE_MAX * size, _SMALL_BYTES):
        raise CorruptFileError(
            f"{path}: {size} bytes claim {rows} rows of {unpacked} bytes: no file of rows with keys is "
            f"packed so"
        )
