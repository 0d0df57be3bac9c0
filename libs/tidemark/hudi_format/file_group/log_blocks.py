"""Log files of data: writes what one commit does to one file group, and reads such files back as columns.

A file that we write holds one Parquet data block, then delete blocks: first those with ordering values, then
unconditional ones. hudi-rs refuses a delete block that mixes the two (FORMAT.md, section 5.5). Files that
Spark writes hold Avro data blocks. Its log compaction writes blocks that replace those of other files, and
its MERGE INTO writes blocks with only some of the columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError, damage_in
from tidemark.hudi_format.file_group.avro_rows import avro_row_chunks
from tidemark.hudi_format.file_group.base_file import parquet_batches, write_parquet
from tidemark.hudi_format.file_group.changes import Changes, Deletes, combined, positions_in
from tidemark.hudi_format.file_group.delete_records import delete_block_contents, read_deletes
from tidemark.hudi_format.file_group.lost_ends import check_empty, check_size
from tidemark.hudi_format.file_group.merge import changes_of_rows
from tidemark.hudi_format.log_file.blocks import (
    BlockType,
    HeaderKey,
    LogBlock,
    frame_block,
    read_blocks,
    scan_blocks,
)
from tidemark.hudi_format.ordering import BoolArray, Int64Array, OrderingField
from tidemark.hudi_format.parsed_avro import parsed_json
from tidemark.hudi_format.schema import IS_DELETED_FIELD, OPERATION_FIELD, TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import MergeMode

_DELETE_OPERATIONS = ("D", "-U")


@dataclass(frozen=True, slots=True)
class LogContent:
    """A log file's data rows (with the requested columns), and its changes, which point into these rows.

    `folds`: the instants that the file stands for, when a log compaction wrote it. `has`: a matrix that
    tells, per row and column, whether the row has the column; None when all rows have all columns.
    """

    rows: pa.Table
    changes: Changes
    folds: frozenset[str] = frozenset()
    has: BoolArray | None = None

    @property
    def nbytes(self) -> int:
        """The memory that it takes, in bytes."""
        matrix = 0 if self.has is None else self.has.size
        return int(self.rows.nbytes) + self.changes.nbytes + matrix

    @classmethod
    def concat(cls, contents: Sequence[LogContent], columns: pa.Schema) -> LogContent:
        """The contents in their order, as one."""
        rows = pa.concat_tables([columns.empty_table(), *(content.rows for content in contents)])
        changes = Changes.concat(
            [content.changes for content in contents], [content.rows.num_rows for content in contents]
        )
        has = None
        if any(content.has is not None for content in contents):
            whole = [np.ones((content.rows.num_rows, len(columns)), np.bool_) for content in contents]
            has = np.concatenate(
                [
                    full if content.has is None else content.has
                    for full, content in zip(whole, contents, strict=True)
                ]
            )
        return cls(rows, changes, has=has)

    def of_keys(self, keys: pa.Array) -> LogContent:
        """The rows and changes of these keys, in their former order."""
        return self.take(np.flatnonzero(positions_in(combined(self.changes.keys), keys) >= 0))

    def take(self, positions: Int64Array) -> LogContent:
        """The changes at these positions, and their rows."""
        changes = self.changes.take(positions)
        has_row = changes.row >= 0
        rows_at = changes.row[has_row]
        # The kept rows are numbered from 0 again: changes with rows 8, -1, 3 (-1: a delete record) take rows
        # 8 and 3, and get the numbers 0, -1, 1.
        renumbered = np.full(len(changes), -1, np.int64)
        renumbered[has_row] = np.arange(len(rows_at))
        has = None if self.has is None else self.has[rows_at]
        rows = self.rows.take(pa.array(rows_at))
        return LogContent(rows, replace(changes, row=renumbered), self.folds, has)


def data_log_bytes(
    schema: TableSchema,
    instant: str,
    rows: pa.Table | None,
    deletes: Deletes | None,
    partition_path: str,
    ordering: OrderingField | None,
) -> bytes:
    """The bytes of a log file with `rows` and `deletes`.

    `rows` have their meta columns; their `_hoodie_file_name` is the bare file id. No key may be in both.
    Ordering values must not be null, because Spark could not read the file group then. Raises
    `OrderingError`, `SchemaError`, and `HudiFormatError` when there is nothing to write.
    """
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema.avro_with_meta_json}
    blocks = []
    if rows is not None and rows.num_rows:
        rows = cast_rows(rows, schema.arrow_with_meta)
        if ordering is not None:
            ordering.to_int64(rows.column(ordering.name))
        footer = {"parquet.avro.schema": schema.avro_with_meta_json, "writer.model.name": "avro"}
        blocks.append(frame_block(BlockType.PARQUET_DATA, headers, write_parquet(rows, footer)))
    for content in delete_block_contents(deletes or Deletes.none(), partition_path, ordering):
        blocks.append(frame_block(BlockType.DELETE, headers, content))
    if not blocks:
        raise HudiFormatError(f"log file of instant {instant} in {partition_path!r}: no rows and no deletes")
    return b"".join(blocks)


def read_data_log(
    storage: Storage,
    path: str,
    columns: pa.Schema,
    mode: MergeMode,
    ordering: OrderingField | None,
) -> LogContent:
    """The content of a log file, in its order. `columns` includes at least the record key and the ordering
    field.

    Raises `FileMissingError`, `CorruptFileError`, and `UnsupportedTableError` for a block that is not served.
    """
    parts: list[LogContent] = []
    folds: set[str] = set()
    data = storage.read(path)
    if not data:
        check_empty(storage, path)
    for block in read_blocks(data, path):
        folds.update(block.compacted_block_times)
        parts.extend(block_contents(block, path, columns, mode, ordering))
    return replace(LogContent.concat(parts, columns), folds=frozenset(folds))


def block_contents(
    block: LogBlock, path: str, columns: pa.Schema, mode: MergeMode, ordering: OrderingField | None
) -> Iterator[LogContent]:
    """The content of one block, in parts of some MiB at most. Parameters and errors are those of
    `read_data_log`.
    """
    refuse_unreadable(block.block_type, block.headers, path, ordering.name if ordering else None)
    if block.block_type is BlockType.DELETE:
        deletes = Changes.of_deletes(read_deletes(block.content, ordering, path))
        yield LogContent(columns.empty_table(), deletes)
        return
    for rows, removed, has in _data_rows(block, path, columns):
        changes = changes_of_rows(rows, mode, ordering)
        if removed is not None:
            changes = replace(changes, is_delete=changes.is_delete | removed)
        yield LogContent(rows, changes, has=has)


def read_log_deletes(
    storage: Storage,
    path: str,
    columns: pa.Schema,
    mode: MergeMode,
    ordering: OrderingField | None,
) -> Deletes:
    """The deletes in a log file, with repeated keys. Parameters and errors are those of `read_data_log`.

    Data blocks are not read, unless their schema has a column by which a row can say that it is a delete.
    """
    parts = [Deletes.none()]
    with storage.open_input(path) as file:
        if not file.size():
            check_empty(storage, path)
        for block in scan_blocks(file, path, _may_delete):
            if block.block_type is BlockType.DELETE:
                parts.append(read_deletes(block.content, ordering, path))
                continue
            refuse_unreadable(block.block_type, block.headers, path, ordering.name if ordering else None)
            for rows, removed, _ in _data_rows(block, path, columns):
                changes = changes_of_rows(rows, mode, ordering)
                gone = np.flatnonzero(changes.is_delete if removed is None else changes.is_delete | removed)
                keys = changes.keys.take(pa.array(gone))
                parts.append(Deletes(keys, changes.ordering[gone], changes.unconditional[gone]))
    return Deletes(
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.ordering for part in parts]),
        np.concatenate([part.unconditional for part in parts]),
    )


def read_log_rows(
    storage: Storage, path: str, columns: pa.Schema, ordering_field: str | None
) -> Iterator[tuple[pa.Table, bool]]:
    """The rows of a log file's data blocks with `columns`, in parts of some MiB; and whether they are partial
    updates that lack some of them, because they did not change these.

    Raises `FileMissingError`, `CorruptFileError`, and `UnsupportedTableError` for a block that is not served.
    """
    with storage.open_input(path) as file:
        if not file.size():
            check_empty(storage, path)
        for block in scan_blocks(file, path, lambda kind, headers: kind is not BlockType.DELETE):
            refuse_unreadable(block.block_type, block.headers, path, ordering_field)
            for rows, _, has in _data_rows(block, path, columns):
                yield rows, has is not None and not has.all()


def _may_delete(block_type: BlockType, headers: Mapping[HeaderKey, str]) -> bool:
    schema = headers.get(HeaderKey.SCHEMA, "")
    in_rows = block_type in (BlockType.PARQUET_DATA, BlockType.AVRO_DATA) and (
        IS_DELETED_FIELD in schema or OPERATION_FIELD in schema
    )
    return in_rows or block_type is BlockType.DELETE


def check_log_blocks(storage: Storage, path: str, ordering_field: str | None, committed: int = 0) -> None:
    """Checks the headers of a log file's blocks, and its size.

    `committed`: the size with which it was committed, in bytes; 0: not known. Raises `UnsupportedTableError`
    for a block that this library does not read, `CorruptFileError` for a damaged or shortened file, and
    `FileMissingError`.
    """

    def look(block_type: BlockType, headers: Mapping[HeaderKey, str]) -> bool:
        refuse_unreadable(block_type, headers, path, ordering_field)
        return False

    with storage.open_input(path) as file:
        check_size(path, file.size(), committed)
        for _ in scan_blocks(file, path, look):
            pass


def refuse_unreadable(
    block_type: BlockType, headers: Mapping[HeaderKey, str], path: str, ordering_field: str | None
) -> None:
    """Raises `UnsupportedTableError` for a block that this library does not read."""
    unreadable = None
    if block_type not in (BlockType.DELETE, BlockType.PARQUET_DATA, BlockType.AVRO_DATA):
        unreadable = f"a {block_type.name} block"
    elif (
        HeaderKey.IS_PARTIAL in headers
        and ordering_field is not None
        and ordering_field not in columns_of_block(headers, path)
    ):
        unreadable = f"partial updates without the ordering field {ordering_field}"
    if unreadable is not None:
        raise UnsupportedTableError(
            f"{path} holds {unreadable}", "Compact this file group with Spark (CALL run_compaction)"
        )


def columns_of_block(headers: Mapping[HeaderKey, str], path: str) -> set[str]:
    """The columns that a block of partial updates has, by its schema. Raises CorruptFileError."""
    text = "the schema of a block of partial updates"
    schema = parsed_json(headers.get(HeaderKey.SCHEMA) or "{}", path, text)
    with damage_in(path, text):
        return {field.get("name") for field in schema.get("fields", ())}


def _data_rows(
    block: LogBlock, path: str, columns: pa.Schema
) -> Iterator[tuple[pa.Table, BoolArray | None, BoolArray | None]]:
    """A data block's rows, in parts: cast to `columns`; which of them are deletes by their
    `_hoodie_operation` (None: the block lacks that column); and which columns each row has (None: all).
    """
    for rows in _stored_rows(block, path, columns):
        removed = has = None
        if OPERATION_FIELD in rows.column_names:
            deletes = pa.array(_DELETE_OPERATIONS)
            removed = np.asarray(pc.is_in(rows.column(OPERATION_FIELD), value_set=deletes))
        if HeaderKey.IS_PARTIAL in block.headers:
            held = [name in rows.column_names for name in columns.names]
            has = np.broadcast_to(np.array(held, np.bool_), (rows.num_rows, len(held)))
        yield cast_rows(rows, columns), removed, has


def _stored_rows(block: LogBlock, path: str, columns: pa.Schema) -> Iterator[pa.Table]:
    if block.block_type is not BlockType.PARQUET_DATA:
        if not block.schema:
            raise CorruptFileError(f"{path}: a data block has no SCHEMA header")
        yield from avro_row_chunks(block.content, block.schema, path)
        return
    wanted = dict.fromkeys([*columns.names, OPERATION_FIELD])
    yield from parquet_batches(pa.BufferReader(block.content), path, list(wanted))
