"""Writes the rows of one data partition: one base file or one log file for each file group.

Rows come in (ledger order, sequence). Of each (file group, key) the last row counts, because assigners emit a
key's events in the order in which they apply. File slices are read as of the epoch's ``as_of``.

* A new file group gets a base file, because hudi-rs ignores groups without one. A group is new if it has no
  committed files, and the first row of each of its keys in this epoch is an insert. A base file in any other
  group without a slice would hide the rows that the group had; so the task stops, and the epoch is planned
  anew.
* COPY_ON_WRITE: the task reads the base file, merges the rows into it, and writes the next base file.
* MERGE_ON_READ: the task writes one log file with a Parquet data block and a delete block.

Where the table has secondary indexes, the task compares the rows before and after: of a base file that it
rewrites anyway; of a slice that gets a log file it takes key, ordering field and the indexed columns, which
the executor's processes keep of the files that they read and of the log files that they write
(`file_group/kept_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.batches import FILE_ID, KEY, OP, ORDERING, PARTITION, DataOp
from tidemark.hudi_format.commit.markers import Marker, MarkerType
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, rewritable_rows, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes, combined
from tidemark.hudi_format.file_group.kept_tables import KeptTables
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.merge import merge_upserts
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.file_group.value_changes import RowsChanged, SliceMerge, rows_merged
from tidemark.hudi_format.file_group.write_stats import (
    log_append_stat,
    new_base_file_stat,
    rewritten_base_file_stat,
)
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.port import Attempt
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage.base import join_path, name_of
from tidemark.hudi_format.table_config import MergeMode
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline.avro_records import WriteStat
from tidemark.ledger_client.named_batches import NamedBatch
from tidemark.stream_writer.epoch_tasks import EpochTask
from tidemark.stream_writer.errors import FileGroupChangedError, FileGroupReplacedError
from tidemark.stream_writer.publishing import Publishers, prepare_file, publish_markers
from tidemark.stream_writer.secondary_task import SecondaryEntries
from tidemark.stream_writer.stats_task import FileStats

_PARTITION_METADATA: Final = ".hoodie_partition_metadata"
Int64Array = npt.NDArray[np.int64]


@dataclass(frozen=True)
class GroupRows:
    """The last row of the epoch for each key of one file group: rows to upsert, and keys to delete with their
    ordering values.

    ``goes_on``: for some key the epoch's first row is not an insert, so the group had rows before the epoch.
    """

    partition_path: str
    file_id: str
    upserts: pa.Table
    deleted_keys: pa.Array
    deleted_ordering: pa.Array
    goes_on: bool

    @property
    def group(self) -> FileGroupId:
        """The identity of the file group."""
        return self.partition_path, self.file_id


@dataclass(frozen=True)
class PlannedFile:
    """The one file that an epoch writes into a file group. ``previous`` is the file slice to which the file
    is added, None for a new group.
    """

    path: str
    marker: MarkerType
    previous: FileSlice | None

    @property
    def name(self) -> str:
        return name_of(self.path)


class DataPartitionWriter:
    """Writes the file groups of one data partition for one attempt."""

    def __init__(
        self,
        task: EpochTask,
        attempt: Attempt,
        view: TableView,
        publishers: Publishers,
        topic_partition: int,
        file_stats: FileStats,
        entries: SecondaryEntries,
        kept: KeptTables,
    ) -> None:
        self._task, self._file_stats, self._entries = task, file_stats, entries
        self._attempt, self._storage = attempt, attempt.storage
        self._view = view
        self._preparers = publishers
        self._number = topic_partition
        self._token = f"{topic_partition}-0-0"
        self._schema = TableSchema.from_avro(task.schema, task.table.name)
        field = task.table.ordering_field
        by_event_time = task.table.merge_mode is MergeMode.EVENT_TIME_ORDERING and field is not None
        self._ordering = OrderingField.of(self._schema, field) if by_event_time and field else None
        self._merge = SliceMerge(
            self._storage, self._schema, task.table.merge_mode, self._ordering, entries.columns, kept
        )
        self._rows_written = 0

    def write(self, batches: Sequence[NamedBatch]) -> list[Future[tuple[WriteStat, Ticket]]]:
        """Makes the files of all groups and has them prepared: a write status and a ticket for each.

        Raises FileGroupReplacedError and FileGroupChangedError, both before any marker or file exists.
        """
        groups = list(last_rows(batches, self._schema))
        slices = self._slices(groups)
        files = [
            (group, file)
            for group in groups
            if (file := self._file_of(group, slices.get(group.group))) is not None
        ]
        if not files:
            return []
        announced = self._preparers.submit(
            publish_markers,
            self._attempt,
            self._task.instant,
            self._number,
            [Marker(file.path, file.marker.value) for _, file in files],
        )
        return [
            self._preparers.submit(self._prepare, announced, *self._make(group, file))
            for group, file in files
        ]

    def _slices(self, groups: Sequence[GroupRows]) -> dict[FileGroupId, FileSlice]:
        """The file slices of the groups as of ``as_of``. Every group without one is new."""
        files: dict[str, list[str]] = {}
        for partition in sorted({group.partition_path for group in groups}):
            names = self._storage.names(partition)
            if _PARTITION_METADATA not in names:
                self._make_partition(partition)
            files[partition] = names
        existing = self._view.slices(files, as_of=self._task.as_of)
        slices = {(file_slice.partition_path, file_slice.file_id): file_slice for file_slice in existing}
        new = [group for group in groups if group.group not in slices]
        committed = self._committed_groups(files) if new else frozenset()
        for group in groups:
            if group.group in self._view.replaced:
                raise FileGroupReplacedError(
                    f"file group {group.file_id} in partition {group.partition_path!r} was replaced by a "
                    f"commit that completed at {self._view.replaced[group.group]}: no reader reads it now"
                )
            if group.group not in slices and (group.goes_on or group.group in committed):
                raise FileGroupChangedError(
                    f"file group {group.file_id} in partition {group.partition_path!r} has rows, but its "
                    f"files completed at {self._task.as_of} or before are gone: another engine compacted and "
                    "cleaned or removed it after the epoch was planned. If this error stays, `tidemark "
                    "verify` says whether the record index still names the file group"
                )
        return slices

    def _committed_groups(self, files: Mapping[str, Sequence[str]]) -> frozenset[FileGroupId]:
        """The file groups that have a file of another completed commit, at whatever time."""
        parsed = (
            (partition, found)
            for partition, names in files.items()
            for name in names
            if (found := parse_data_file(name)) is not None and found.instant != self._task.instant
        )
        is_committed = self._view.timeline.is_committed
        return frozenset(
            (partition, name.file_id) for partition, name in parsed if is_committed(name.instant)
        )

    def _make_partition(self, partition: str) -> None:
        depth = len(partition.split("/")) if partition else 0
        content = partition_metadata(self._task.instant, depth)
        try:
            self._storage.create(join_path(partition, _PARTITION_METADATA), content)
        except AlreadyExistsError:
            return

    def _file_of(self, group: GroupRows, slice_: FileSlice | None) -> PlannedFile | None:
        if slice_ is None and not group.upserts.num_rows:
            # A new group with deletes only: its keys were inserted and deleted within this epoch.
            return None
        in_log = slice_ is not None and (self._task.table.merge_on_read or slice_.base_file is None)
        if in_log:
            name = str(LogFileName(group.file_id, self._task.instant, 1, self._token))
        else:
            name = str(BaseFileName(group.file_id, self._token, self._task.instant, "parquet"))
        marker = MarkerType.CREATE if in_log or slice_ is None else MarkerType.MERGE
        return PlannedFile(join_path(group.partition_path, name), marker, slice_)

    def _make(self, group: GroupRows, file: PlannedFile) -> tuple[bytes, WriteStat]:
        """The file's content, and its write status without the size, which `_prepare` adds."""
        if file.previous is None:
            return self._first_base_file(group, file)
        if file.marker is MarkerType.MERGE and file.previous.base_file is not None:
            return self._next_base_file(group, file, file.previous.base_file)
        return self._log_file(group, file, file.previous)

    def _first_base_file(self, group: GroupRows, file: PlannedFile) -> tuple[bytes, WriteStat]:
        rows = self._with_meta(group, file.name)
        self._file_stats.add(group.partition_path, file.name, rows)
        self._entries.add(RowsChanged(rows.slice(0, 0), rows))
        stat = new_base_file_stat(group.partition_path, group.file_id, file.name, 0, rows.num_rows)
        return write_base_file(rows, self._schema), stat

    def _next_base_file(self, group: GroupRows, file: PlannedFile, previous: str) -> tuple[bytes, WriteStat]:
        existing = rewritable_rows(self._storage, join_path(group.partition_path, previous), self._schema)
        merged = merge_upserts(
            existing,
            cast_rows(self._with_meta(group, file.name), existing.schema),
            self._deletes(group),
            self._task.table.merge_mode,
            self._ordering,
            file.name,
        )
        self._file_stats.add(group.partition_path, file.name, merged.rows)
        if self._entries.columns:
            touched = pa.concat_arrays([combined(group.upserts.column(KEY)), group.deleted_keys])
            self._entries.add(rows_merged(existing, merged.rows, touched, self._entries.columns))
        stat = rewritten_base_file_stat(group.partition_path, group.file_id, file.name, 0, previous, merged)
        return write_base_file(merged.rows, self._schema), stat

    def _log_file(self, group: GroupRows, file: PlannedFile, slice_: FileSlice) -> tuple[bytes, WriteStat]:
        rows = self._with_meta(group, group.file_id) if group.upserts.num_rows else None
        in_log = self._schema.arrow_with_meta.empty_table() if rows is None else rows
        self._file_stats.add(group.partition_path, file.name, in_log)
        deletes = self._deletes(group)
        if self._entries.columns:
            self._entries.add(self._merge.rows_logged(slice_, rows, deletes, file.path))
        data = data_log_bytes(
            self._schema,
            self._task.instant,
            rows,
            deletes,
            group.partition_path,
            self._ordering,
        )
        inserts = pc.sum(pc.equal(group.upserts.column(OP), DataOp.INSERT)).as_py() or 0
        stat = log_append_stat(
            group.partition_path,
            group.file_id,
            file.name,
            0,
            self._task.instant,
            slice_.base_file,
            updates=group.upserts.num_rows - inserts,
            inserts=inserts,
            deletes=len(group.deleted_keys),
        )
        return data, stat

    def _deletes(self, group: GroupRows) -> Deletes:
        if self._ordering is None:
            return Deletes.without_ordering(group.deleted_keys)
        ordering = group.deleted_ordering.to_numpy(zero_copy_only=False).astype(np.int64)
        return Deletes.with_ordering(group.deleted_keys, ordering)

    def _with_meta(self, group: GroupRows, file_name: str) -> pa.Table:
        user = group.upserts.select(self._schema.arrow.names)
        rows = attach_meta_columns(
            user,
            group.upserts.column(KEY),
            group.partition_path,
            self._task.instant,
            self._number,
            file_name,
            self._rows_written,
        )
        self._rows_written += rows.num_rows
        return rows

    def _prepare(self, announced: Future[None], data: bytes, stat: WriteStat) -> tuple[WriteStat, Ticket]:
        # No file without its marker. This cannot wait for ever: the markers were submitted before the files,
        # so a thread writes them by now.
        announced.result()
        ticket = prepare_file(self._attempt, stat.path, data)
        return replace(stat, total_write_bytes=ticket.size, file_size_in_bytes=ticket.size), ticket


def last_rows(batches: Sequence[NamedBatch], schema: TableSchema) -> Iterator[GroupRows]:
    """The last row of each (file group, key); one `GroupRows` for each file group, in the order of (partition
    path, file id).
    """
    if not any(batch.batch.num_rows for batch in batches):
        return
    rows = pa.concat_tables([_normalised(batch.batch, schema) for batch in batches]).unify_dictionaries()
    rows = rows.combine_chunks()
    partitions = _codes(rows.column(PARTITION))
    files = _codes(rows.column(FILE_ID))
    keys = pc.dictionary_encode(rows.column(KEY).combine_chunks())
    # One number for each file group, and one for each (file group, key), so that numpy can sort and compare
    # them. Example with 2 file ids and 3 keys: a row with partition 1, file 0, key 2 has group 0 + 1*2 = 2
    # and pair 2*3 + 2 = 8.
    group_of = files[1] + partitions[1] * np.int64(len(files[0]))
    pair = group_of * np.int64(len(keys.dictionary)) + keys.indices.to_numpy(zero_copy_only=False)
    # A stable sort keeps the rows of a pair in their order. Example: for the pairs 5 2 5 the sorted rows are
    # 1, 0, 2 in two runs, [1] and [0, 2]. A run's first row is its key's first one in the epoch (rows 1 and
    # 0), its last row the one that counts (rows 1 and 2).
    order = np.argsort(pair, kind="stable")
    starts_run = np.flatnonzero(np.diff(pair[order], prepend=-1))
    first, last = order[starts_run], np.sort(order[np.append(starts_run[1:], len(pair)) - 1])
    not_inserted = pc.not_equal(rows.column(OP), DataOp.INSERT).to_numpy()
    going_on = frozenset(np.unique(group_of[first[not_inserted[first]]]).tolist())
    # The rows that count, cut into one piece for each group. Example: for rows 1 and 2 of the groups 3 and 0,
    # `by_group` is 2, 1 and the pieces are [2] and [1].
    by_group = last[np.argsort(group_of[last], kind="stable")]
    starts = np.flatnonzero(np.diff(group_of[by_group], prepend=-1))
    groups = np.split(by_group, starts[1:])
    names = [(partitions[0][partitions[1][g[0]]], files[0][files[1][g[0]]], g) for g in groups]
    is_delete = pc.equal(rows.column(OP), DataOp.DELETE).to_numpy()
    for partition_path, file_id, members in sorted(names, key=lambda group: group[:2]):
        deleted = rows.select([KEY, ORDERING]).take(members[is_delete[members]])
        yield GroupRows(
            partition_path=partition_path,
            file_id=file_id,
            upserts=rows.take(members[~is_delete[members]]),
            deleted_keys=deleted.column(KEY).combine_chunks(),
            deleted_ordering=deleted.column(ORDERING).combine_chunks(),
            goes_on=int(group_of[members[0]]) in going_on,
        )


def _normalised(batch: pa.RecordBatch, schema: TableSchema) -> pa.Table:
    """The batch's rows with the user's columns cast to the epoch's schema, since older batches lack columns
    that came later. Our own columns stay as they are.
    """
    ours = [KEY, PARTITION, FILE_ID, ORDERING, OP]
    table = pa.Table.from_batches([batch])
    loose = pa.schema([field.with_nullable(True) for field in schema.arrow])
    user = cast_rows(table.drop_columns(ours), loose)
    for name in ours:
        user = user.append_column(table.schema.field(name), table.column(name))
    return user


def _codes(column: pa.ChunkedArray) -> tuple[list[str], Int64Array]:
    """The values of a dictionary-encoded column, and for each row the number of its value."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0)
    return array.dictionary.to_pylist(), array.indices.to_numpy(zero_copy_only=False).astype(np.int64)
