"""Reads the live rows of a file slice: its base file merged with its log files, as Hudi's snapshot
readers do.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import RECORD_KEY, read_base_file
from tidemark.hudi_format.file_group.log_blocks import LogContent, read_data_log
from tidemark.hudi_format.file_group.merge import apply_log
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.log_file.folding import merge_instants
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import IS_DELETED_FIELD, TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode


def read_slice(
    storage: Storage,
    file_slice: FileSlice,
    schema: TableSchema,
    mode: MergeMode,
    ordering: OrderingField | None,
    columns: list[str] | None = None,
) -> pa.Table:
    """The merged rows of a slice, with the columns of `schema` and meta columns first, or with just
    `columns`.

    A column that a file lacks is null. Base rows come first, in their order. Raises `FileMissingError` (the
    slice was cleaned away: reload the timeline), `CorruptFileError`, `SchemaError`, `UnsupportedTableError`.
    """
    wanted = schema.arrow_with_meta
    if columns is not None:
        wanted = pa.schema([wanted.field(name) for name in columns])
    read = merge_columns(wanted, schema, ordering)
    base = read_base_rows(storage, file_slice, read)
    if not file_slice.log_files:
        return cast_rows(read.empty_table() if base is None else base, wanted)
    contents = {
        name: read_data_log(storage, join_path(file_slice.partition_path, name), read, mode, ordering)
        for name in file_slice.log_files
    }
    order = merge_files({name: content.folds for name, content in contents.items()})
    log = LogContent.concat([contents[name] for name in order], read)
    return cast_rows(apply_log(base, log.rows, log.changes, mode, ordering, log.has), wanted)


def merge_files(folds: Mapping[str, frozenset[str]]) -> list[str]:
    """The log files of a slice that are merged, in the order of merging (see `log_file.folding`).

    `folds` maps each log file's name, in the order of the slice, to the instants that a log compaction folded
    into it (none for an ordinary file).
    """
    if not any(folds.values()):
        return list(folds)
    of_instant: dict[str, list[str]] = {}
    for name in folds:
        parsed = LogFileName.parse(name)
        if parsed is not None:
            of_instant.setdefault(parsed.instant, []).append(name)
    folded = {
        instant: frozenset().union(*(folds[name] for name in names)) for instant, names in of_instant.items()
    }
    return [name for instant in merge_instants(list(of_instant), folded) for name in of_instant[instant]]


def merge_columns(wanted: pa.Schema, schema: TableSchema, ordering: OrderingField | None) -> pa.Schema:
    """`wanted`, and the further columns that merging needs: record key, ordering field,
    `_hoodie_is_deleted`.
    """
    names = [RECORD_KEY] + ([ordering.name] if ordering is not None else [])
    if IS_DELETED_FIELD in schema.arrow.names:
        names.append(IS_DELETED_FIELD)
    more = [schema.arrow_with_meta.field(name) for name in names if name not in wanted.names]
    return pa.schema([*wanted, *more])


def read_base_rows(storage: Storage, file_slice: FileSlice, columns: pa.Schema) -> pa.Table | None:
    """The rows of the slice's base file cast to `columns`; None when the slice has only log files."""
    if file_slice.base_file is None:
        return None
    path = join_path(file_slice.partition_path, file_slice.base_file)
    return cast_rows(read_stored_rows(storage, path, columns), columns)


def read_stored_rows(storage: Storage, path: str, columns: pa.Schema) -> pa.Table:
    """The rows of a base file as stored, with those of `columns` that it has."""
    if not path.endswith(".parquet"):
        raise UnsupportedTableError(f"base file {path} is not Parquet", "Only Parquet base files are served.")
    return read_base_file(storage, path, columns.names)
