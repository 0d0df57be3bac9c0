"""Merges one file group of a MERGE_ON_READ table: its base file with its log files, as `read_slice` does.

Log files whose blocks have columns (Parquet) are read twice. The first time only keys and ordering values are
read; they say which version of each key counts. Then the base file's rows are compared with them, batch by
batch (`merge.log_merge`). The second time only those blocks are read that have rows which count. So a change
takes about 60 bytes of memory, however long its row is.

Rows of Avro blocks cost more to read than to keep: their changes are held with their rows, reduced to one per
key (`log_parts`). Changes that do not fit are divided by the keys' hashes among 16 parts on disk, and so are
the base file's rows; then each part is merged like a small file group, or divided once more. Nothing is
sorted: Hudi's base files have no order, and a part needs no more memory than its changes.

Rows keep `_hoodie_commit_time` and `_hoodie_commit_seqno`, and get the new file's name. A group whose rows
are all deleted becomes a file of no rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.base_file import (
    RECORD_KEY,
    ROW_GROUP_BYTES,
    check_keeps_all,
    parquet_batches,
    read_base_head,
)
from tidemark.hudi_format.file_group.base_file_writer import BaseFileWriter, Sink
from tidemark.hudi_format.file_group.changes import Changes
from tidemark.hudi_format.file_group.log_blocks import LogContent, block_contents, refuse_unreadable
from tidemark.hudi_format.file_group.lost_ends import check_empty
from tidemark.hudi_format.file_group.merge import LogMerge, log_merge, taken_rows
from tidemark.hudi_format.file_group.partial_rows import PartialLogMerge
from tidemark.hudi_format.file_group.slice_reader import merge_files
from tidemark.hudi_format.log_file import BlockType, HeaderKey, read_block_at, scan_heads
from tidemark.hudi_format.metadata_table.file_ranges import FileRanges
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import IS_DELETED_FIELD, OPERATION_FIELD, TableSchema, cast_rows
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds, MergeCounts
from tidemark.hudi_format.table_services.merging.log_parts import (
    PARTS,
    LogCollector,
    PartFile,
    SpilledLogs,
    positions_of_parts,
)
from tidemark.hudi_format.table_services.operations import MergeOperation

# 16 parts, seven times divided: more is needed only where one key's changes alone do not fit.
_DEPTH_MAX: Final = 7
_BATCH_BYTES_MAX: Final = 32 << 20
# What the changes of one block take beside their values: the objects of their arrays. Of many small blocks
# that is the most.
_CHANGES_BYTES: Final = 6 << 10


@dataclass(frozen=True, slots=True)
class RowRules:
    """How rows of the table are merged (`ordering.table_ordering`), the schema that the new file gets, and of
    which columns the table keeps stats.
    """

    schema: TableSchema
    mode: MergeMode
    ordering: OrderingField | None
    stats_columns: Sequence[str] = ()


def merge_data_group(
    storage: Storage,
    operation: MergeOperation,
    rules: RowRules,
    file_name: str,
    sink: Sink,
    bounds: MergeBounds,
) -> MergeCounts:
    """Writes the base file `file_name` of a data file group to `sink`.

    The new file has a bloom filter if the old one has. Raises FileMissingError, CorruptFileError, SchemaError
    (also where a row would lose a column), and UnsupportedTableError for a log block that is not served.
    """
    merge = _GroupMerge(storage, operation, rules, file_name, sink, bounds)
    merge.run()
    return merge.counts


class _Block(NamedTuple):
    """A block of a log file. `rows`: how many data rows it has; None while nobody has read it."""

    path: str
    offset: int
    rows: int | None = None


class _GroupMerge:
    def __init__(
        self,
        storage: Storage,
        operation: MergeOperation,
        rules: RowRules,
        file_name: str,
        sink: Sink,
        bounds: MergeBounds,
    ) -> None:
        self._storage, self._operation, self._rules, self._bounds = storage, operation, rules, bounds
        self.counts, self._ranges = MergeCounts(), FileRanges(rules.stats_columns)
        self._base_path: str | None = None
        has_bloom = has_operation = False
        if operation.base_file is not None:
            self._base_path = join_path(operation.partition, operation.base_file)
            if not operation.base_file.endswith(".parquet"):
                raise UnsupportedTableError(
                    f"base file {self._base_path} is not Parquet", "Only Parquet base files are served."
                )
            stored, has_bloom = read_base_head(storage, self._base_path)
            check_keeps_all(stored, rules.schema, self._base_path)
            has_operation = OPERATION_FIELD in stored.names
        self._in_columns = True
        self._blocks, logs_have_operation = self._merged_blocks()
        schema = rules.schema
        with_operation = has_operation or logs_have_operation
        self._columns = schema.arrow_with_operation if with_operation else schema.arrow_with_meta
        self._ranges.add(self._columns.empty_table())
        self._writer = BaseFileWriter(
            sink,
            schema,
            self._columns,
            file_name,
            bloom_keys=bounds.scratch / "keys" if has_bloom else None,
            row_group_bytes=min(ROW_GROUP_BYTES, bounds.held_bytes),
        )

    def run(self) -> None:
        """Merges everything and ends the file."""
        changes = self._changes_alone() if self._in_columns else None
        if changes is not None:
            self._merge_reading_again(changes)
        else:
            self._merge(self._log_contents(), self._base_rows(), 0, self._bounds.scratch)
        self.counts.size = self._writer.finish()
        self.counts.ranges = self._ranges.ranges

    def _merged_blocks(self) -> tuple[list[_Block], bool]:
        """The blocks of the log files in the order of merging, and whether a data block has
        `_hoodie_operation`.
        """
        folds: dict[str, frozenset[str]] = {}
        found: dict[str, list[_Block]] = {}
        rules, has_operation = self._rules, False
        ordering = rules.ordering.name if rules.ordering else None
        for name in self._operation.log_files:
            path = join_path(self._operation.partition, name)
            with self._storage.open_input(path) as file:
                if not file.size():
                    check_empty(self._storage, path)
                blocks = scan_heads(file, path)
            for block in blocks:
                refuse_unreadable(block.block_type, block.headers, path, ordering)
                if block.block_type is BlockType.DELETE:
                    continue
                if block.schema:
                    stored = _schema_of(block.schema, rules.schema.table_name)
                    check_keeps_all(stored, rules.schema, path)
                    has_operation |= OPERATION_FIELD in block.schema
                is_partial = HeaderKey.IS_PARTIAL in block.headers
                self._in_columns &= block.block_type is BlockType.PARQUET_DATA and not is_partial
            folds[name] = frozenset(time for block in blocks for time in block.compacted_block_times)
            found[name] = [_Block(path, block.offset) for block in blocks]
        return [block for name in merge_files(folds) for block in found[name]], has_operation

    def _log_contents(self) -> Iterator[LogContent]:
        for block in self._blocks:
            for content in self._contents_of(block, self._columns):
                self.counts.log_records += len(content.changes)
                yield content

    def _contents_of(self, block: _Block, columns: pa.Schema) -> Iterator[LogContent]:
        with self._storage.open_input(block.path) as file:
            stored = read_block_at(file, block.path, block.offset)
        rules = self._rules
        yield from block_contents(stored, block.path, columns, rules.mode, rules.ordering)

    def _changes_alone(self) -> Changes | None:
        """The changes of all log files, whose rows are numbered through all blocks; None when even they do
        not fit. Notes how many rows each block has.
        """
        rules, limit = self._rules, self._bounds.held_bytes
        wanted = {RECORD_KEY, IS_DELETED_FIELD, rules.ordering.name if rules.ordering else RECORD_KEY}
        columns = pa.schema([field for field in self._columns if field.name in wanted])
        parts: list[Changes] = []
        held = rows = records = 0
        for number, block in enumerate(self._blocks):
            first = rows
            for content in self._contents_of(block, columns):
                changes = content.changes
                moved = np.where(changes.row >= 0, changes.row + rows, -1)
                parts.append(replace(changes, row=moved))
                rows += content.rows.num_rows
                records += len(changes)
                held += changes.nbytes + _CHANGES_BYTES
            self._blocks[number] = block._replace(rows=rows - first)
            if held > limit:
                parts = [Changes.concat(parts, [0] * len(parts)).reduce(rules.mode)]
                held = parts[0].nbytes
                if held > limit // 2:
                    return None
        self.counts.log_records = records
        return Changes.concat(parts, [0] * len(parts))

    def _merge_reading_again(self, changes: Changes) -> None:
        """Merges changes that are numbered by `_changes_alone`."""
        merge = LogMerge(self._columns.empty_table(), changes, self._rules.mode, self._rules.ordering)
        for rows in self._base_rows():
            self._write(merge.over(rows))
        positions = merge.rest_positions()
        begin = 0
        for block in self._blocks:
            end = begin + (block.rows or 0)
            # The positions ascend: of 3, 7, 9 those in a block of the rows 5 to 9 are the second and third.
            first, last = np.searchsorted(positions, [begin, end])
            at = begin
            for content in self._contents_of(block, self._columns) if first < last else ():
                some = positions[slice(*np.searchsorted(positions, [at, at + content.rows.num_rows]))]
                self._write(taken_rows(content.rows, some - at))
                at += content.rows.num_rows
            begin = end
        self._count(merge)

    def _base_rows(self) -> Iterator[pa.Table]:
        if self._base_path is None:
            return
        with self._storage.open_input(self._base_path) as source:
            # The larger they are, the fewer times the changes are looked through. A batch is there up to
            # three times: as it was read, cast, and without the rows that changes replace.
            size = min(self._bounds.held_bytes // 2, _BATCH_BYTES_MAX)
            for rows in parquet_batches(source, self._base_path, batch_bytes=size):
                yield cast_rows(rows, self._columns)

    def _merge(
        self, contents: Iterable[LogContent], base: Iterable[pa.Table], depth: int, scratch: Path
    ) -> None:
        """Merges changes with base rows that have no keys in common with other calls of one depth."""
        collector = LogCollector(self._columns, self._rules.mode, self._bounds.held_bytes)
        spilled: SpilledLogs | None = None
        for content in contents:
            if collector.add(content):
                continue
            if depth > _DEPTH_MAX:
                raise UnsupportedTableError(
                    f"{self._operation.partition}/{self._operation.file_id}: the changes of one key do not "
                    f"fit {self._bounds.held_bytes >> 20} MiB",
                    "Give table_services.task_memory more, or compact this file group with Spark",
                )
            spilled = spilled or SpilledLogs(_new_folder(scratch, depth), self._columns, depth)
            spilled.add(collector.take())
        if spilled is None:
            self._merge_held(collector.take(), base)
            return
        spilled.add(collector.take())
        parts = self._divided(base, depth, scratch)
        for number in range(PARTS):
            self._merge(spilled.part(number), parts[number].tables(), depth + 1, scratch)

    def _merge_held(self, log: LogContent, base: Iterable[pa.Table]) -> None:
        rules = self._rules
        merge = log_merge(log.rows, log.changes, rules.mode, rules.ordering, log.has)
        for rows in base:
            self._write(merge.over(rows))
        self._write(merge.rest())
        self._count(merge)

    def _count(self, merge: LogMerge | PartialLogMerge) -> None:
        self.counts.inserts += merge.inserts
        self.counts.updates += merge.updates
        self.counts.deletes += merge.deletes

    def _write(self, rows: pa.Table) -> None:
        rows = cast_rows(rows, self._columns)
        self.counts.add_keys(rows.column(RECORD_KEY))
        self._ranges.add(rows)
        self._writer.add(rows)

    def _divided(self, base: Iterable[pa.Table], depth: int, scratch: Path) -> list[PartFile]:
        """The base rows on disk, divided like the changes."""
        folder = scratch / f"depth-{depth}"
        parts = [PartFile(folder / f"base-{number}", self._columns) for number in range(PARTS)]
        for rows in base:
            for number, positions in enumerate(positions_of_parts(rows.column(RECORD_KEY), depth)):
                if len(positions):
                    parts[number].write(rows.take(pa.array(positions)))
        return parts


def _new_folder(scratch: Path, depth: int) -> Path:
    folder = scratch / f"depth-{depth}"
    folder.mkdir(exist_ok=True)
    return folder


def _schema_of(avro: str, table_name: str) -> pa.Schema:
    return TableSchema.from_avro(avro, table_name).arrow
