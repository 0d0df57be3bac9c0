"""Finds what a file slice says of one key: its base row, every version in its log files, and the merged row.

It serves people who want to see why a row is as it is. Versions are in the order in which readers merge them.
Memory is bounded: one row group of a base file at a time, and log files up to a size limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.hudi_format.file_group.base_file import COMMIT_SEQNO, RECORD_KEY
from tidemark.hudi_format.file_group.changes import Changes
from tidemark.hudi_format.file_group.log_blocks import LogContent, read_data_log
from tidemark.hudi_format.file_group.merge import apply_log
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.file_group.slice_reader import merge_columns, merge_files
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingField
from tidemark.hudi_format.parquet_files import open_parquet, parquet_damage
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode

VERSIONS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class KeyVersion:
    """One version of a key in one file: a row (all columns, meta columns first), or a delete (`row` None).

    `ordering`: the ordering value of a delete record; None for rows, and for a delete of whatever there is.
    `instant`: the instant in the file's name. `deletes`: also true for a row that says that it is a delete.
    """

    file: str
    instant: str
    is_base: bool
    row: dict[str, Any] | None
    deletes: bool
    ordering: Any


@dataclass(frozen=True, slots=True)
class KeyVersions:
    """All versions of a key, in the order of merging.

    `merged`: the row that readers see; None when they see none. `left_out`: log files that were too large, or
    too many, to be read here; `merged` is None then, because it is not known.
    """

    versions: tuple[KeyVersion, ...]
    merged: dict[str, Any] | None
    left_out: tuple[str, ...] = ()

    @property
    def winner(self) -> int | None:
        """The position, in `versions`, of the version that readers see; None when they see none."""
        if self.merged is None:
            return None
        number = self.merged[COMMIT_SEQNO]
        positions = [
            at
            for at, version in enumerate(self.versions)
            if version.row and version.row[COMMIT_SEQNO] == number
        ]
        return positions[-1] if positions else None


@dataclass(frozen=True)
class KeyReader:
    """Reads slices of one table.

    `check` is called before each file and row group, and may raise to stop the reading. Log files of more
    than `file_bytes_max` bytes are left out.
    """

    storage: Storage
    schema: TableSchema
    mode: MergeMode
    ordering: OrderingField | None
    file_bytes_max: int
    check: Callable[[], None] = lambda: None

    def versions(self, file_slice: FileSlice, key: str) -> KeyVersions:
        """The versions of `key` in the slice.

        Raises `FileMissingError` (the slice was cleaned away), `CorruptFileError`, `UnsupportedTableError`,
        and what `check` raises.
        """
        columns = merge_columns(self.schema.arrow_with_meta, self.schema, self.ordering)
        base = self.base_row(file_slice, key, columns)
        versions = [] if base is None else self._rows_of(str(file_slice.base_file), base, is_base=True)
        logs: dict[str, LogContent] = {}
        left_out: list[str] = []
        for name in file_slice.log_files:
            self.check()
            path = join_path(file_slice.partition_path, name)
            info = self.storage.stat(path)
            changes = sum(len(log.changes) for log in logs.values())
            if changes >= VERSIONS_MAX or (info is not None and info.size > self.file_bytes_max):
                left_out.append(name)
                continue
            logs[name] = self._in_log(path, key, columns)
        order = merge_files({name: content.folds for name, content in logs.items()})
        for name in order:
            versions += self._changes_of(name, logs[name].rows, logs[name].changes)
        if left_out:
            return KeyVersions(tuple(versions), None, tuple(left_out))
        log = LogContent.concat([logs[name] for name in order], columns)
        merged = apply_log(base, log.rows, log.changes, self.mode, self.ordering, log.has).to_pylist()
        return KeyVersions(tuple(versions), merged[0] if merged else None)

    def base_row(self, file_slice: FileSlice, key: str, columns: pa.Schema | None = None) -> pa.Table | None:
        """The key's row in the slice's base file, as a table of one row; None when the file lacks the key."""
        if file_slice.base_file is None:
            return None
        wanted = columns or merge_columns(self.schema.arrow_with_meta, self.schema, self.ordering)
        path = join_path(file_slice.partition_path, file_slice.base_file)
        with self.storage.open_input(path) as source:
            row = self._find(open_parquet(source, path), path, key, wanted)
        return None if row is None else cast_rows(row, wanted)

    def some_key(self, file_slice: FileSlice) -> str | None:
        """Some key of the newest log file that has rows, or else of the base file; None when there is
        none.
        """
        key_only = pa.schema([self.schema.arrow_with_meta.field(RECORD_KEY)])
        columns = merge_columns(key_only, self.schema, self.ordering)
        for name in reversed(file_slice.log_files):
            self.check()
            path = join_path(file_slice.partition_path, name)
            info = self.storage.stat(path)
            if info is not None and info.size > self.file_bytes_max:
                continue
            changes = read_data_log(self.storage, path, columns, self.mode, self.ordering).changes
            rows = np.flatnonzero(~changes.is_delete)
            if len(rows):
                return str(changes.keys[int(rows[len(rows) // 2])].as_py())
        if file_slice.base_file is None:
            return None
        path = join_path(file_slice.partition_path, file_slice.base_file)
        with self.storage.open_input(path) as source, parquet_damage(path):
            keys = open_parquet(source, path).read_row_group(0, [RECORD_KEY]).column(0)
            return str(keys[len(keys) // 2].as_py()) if len(keys) else None

    def _find(self, file: pq.ParquetFile, path: str, key: str, wanted: pa.Schema) -> pa.Table | None:
        for group in range(file.num_row_groups):
            self.check()
            with parquet_damage(path):
                stored = [name for name in wanted.names if name in file.schema_arrow.names]
                at = pc.index(file.read_row_group(group, [RECORD_KEY]).column(0), key).as_py()
                if at >= 0:
                    return file.read_row_group(group, stored).slice(at, 1)
        return None

    def _in_log(self, path: str, key: str, columns: pa.Schema) -> LogContent:
        """The rows and changes of a log file that belong to the key."""
        content = read_data_log(self.storage, path, columns, self.mode, self.ordering)
        return content.of_keys(pa.array([key], pa.string()))

    def _changes_of(self, name: str, rows: pa.Table, changes: Changes) -> list[KeyVersion]:
        row_versions = iter(self._rows_of(name, rows, is_base=False))
        versions = []
        for at in range(len(changes)):
            if changes.row[at] >= 0:
                version = next(row_versions)
                deletes = bool(changes.is_delete[at])
                versions.append(KeyVersion(name, version.instant, False, version.row, deletes, None))
            else:
                value = None if changes.unconditional[at] else self._ordering_value(int(changes.ordering[at]))
                versions.append(KeyVersion(name, _instant_of(name), False, None, True, value))
        return versions

    def _ordering_value(self, ordering: int) -> Any:
        if self.ordering is None or ordering == NO_ORDERING:
            return None
        return self.ordering.from_int64(np.array([ordering], np.int64))[0].as_py()

    def _rows_of(self, name: str, rows: pa.Table, *, is_base: bool) -> list[KeyVersion]:
        return [
            KeyVersion(name, _instant_of(name), is_base, row, deletes=False, ordering=None)
            for row in rows.to_pylist()
        ]


def _instant_of(name: str) -> str:
    parsed = parse_data_file(name)
    return parsed.instant if parsed is not None else ""
