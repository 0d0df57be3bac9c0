"""Small Hudi tables made by `hudi_format` alone, without a metadata table: the raw material of interop
tests.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.bloom import BloomSpec
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, read_base_file, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.merge import MergeResult, merge_upserts
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.write_stats import (
    log_append_stat,
    new_base_file_stat,
    rewritten_base_file_stat,
)
from tidemark.hudi_format.ordering import OrderingField, table_ordering
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema, cast_rows
from tidemark.hudi_format.storage import LocalStorage
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_config import TableDefinition, TableType, read_table_config
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import (
    CommitMetadata,
    WriteStat,
    encode_commit_metadata,
    group_stats,
)

PARTITION = "eu"


class NativeTable:
    """One table, one partition, one file group; commits are numbered from 1."""

    def __init__(self, path: Path, schema: TableSchema, table_type: TableType, ordering: str | None) -> None:
        path.mkdir(parents=True)
        self.path, self.schema, self.table_type = path, schema, table_type
        self.storage = LocalStorage(str(path))
        definition = TableDefinition(
            name=schema.table_name,
            table_type=table_type,
            record_key_fields=("id",),
            partition_fields=("region",),
            ordering_fields=(ordering,) if ordering else (),
        )
        config = create_table(self.storage, definition)
        self.mode, self.ordering = table_ordering(config, schema)
        self.file_id = "7b1f0a52-0000-4000-8000-000000000001-0"
        self.base_file: str | None = None
        self._commits = 0

    def write_base(self, rows: pa.Table, bloom: BloomSpec | None = None) -> None:
        """The first commit: a base file with `rows`."""
        instant, name = self._next_instant(), self._base_name(self._commits)
        with_meta = attach_meta_columns(rows, rows["id"], PARTITION, instant, 0, name)
        content = write_base_file(with_meta, self.schema, bloom=bloom)
        stat = new_base_file_stat(PARTITION, self.file_id, name, len(content), rows.num_rows)
        self._commit(instant, name, content, stat)
        self.base_file = name

    def append_log(self, rows: pa.Table, deletes: Deletes) -> None:
        """A deltacommit with one log file."""
        instant = self._next_instant()
        name = f".{self.file_id}_{instant}.log.1_0-0-0"
        with_meta = attach_meta_columns(rows, rows["id"], PARTITION, instant, 0, self.file_id)
        content = data_log_bytes(self.schema, instant, with_meta, deletes, PARTITION, self.ordering)
        stat = log_append_stat(
            PARTITION, self.file_id, name, len(content), instant, self.base_file,
            updates=rows.num_rows, deletes=len(deletes),
        )  # fmt: skip
        self._commit(instant, name, content, stat)

    def rewrite_base(self, rows: pa.Table, deletes: Deletes, bloom: BloomSpec | None = None) -> MergeResult:
        """A commit that replaces the base file by its merge with `rows` and `deletes`."""
        assert self.base_file is not None
        instant, name = self._next_instant(), self._base_name(self._commits)
        stored = read_base_file(self.storage, join_path(PARTITION, self.base_file))
        with_meta = attach_meta_columns(rows, rows["id"], PARTITION, instant, 0, name)
        schema = self.schema.arrow_with_meta
        existing, upserts = cast_rows(stored, schema), cast_rows(with_meta, schema)
        merged = merge_upserts(existing, upserts, deletes, self.mode, self.ordering, name)
        content = write_base_file(merged.rows, self.schema, bloom=bloom)
        stat = rewritten_base_file_stat(PARTITION, self.file_id, name, len(content), self.base_file, merged)
        self._commit(instant, name, content, stat)
        self.base_file = name
        return merged

    def read(self) -> pa.Table:
        """All live rows as `read_slice` gives them, meta columns included."""
        return read_table(self.storage, self.schema, self.ordering, [PARTITION])

    def deletes(self, keys: list[str], ordering: pa.Array | None) -> Deletes:
        """Deletes with the ordering values of `ordering`, or unconditional ones."""
        array = pa.array(keys, pa.string())
        if ordering is None or self.ordering is None:
            return Deletes.without_ordering(array)
        return Deletes.with_ordering(array, self.ordering.to_int64(ordering))

    def _next_instant(self) -> str:
        self._commits += 1
        return f"2026010100{self._commits:02d}00000"

    def _base_name(self, number: int) -> str:
        return f"{self.file_id}_0-{number}-0_2026010100{number:02d}00000.parquet"

    def _commit(self, instant: str, name: str, content: bytes, stat: WriteStat) -> None:
        on_read = self.table_type is TableType.MERGE_ON_READ
        pending = create_requested(
            Unfenced(self.storage), instant, Action.DELTA_COMMIT if on_read else Action.COMMIT
        )
        pending = create_inflight(Unfenced(self.storage), pending, encode_commit_metadata(CommitMetadata()))
        metafile = f"{PARTITION}/.hoodie_partition_metadata"
        if not self.storage.exists(metafile):
            self.storage.create(metafile, f"commitTime={instant}\npartitionDepth=1\n".encode())
        self.storage.create(join_path(PARTITION, name), content)
        metadata = CommitMetadata(
            write_stats=group_stats([stat]), extra_metadata={"schema": self.schema.avro_json}
        )
        complete(Unfenced(self.storage), pending, instant[:-1] + "9", encode_commit_metadata(metadata))


def both_deletes(first: Deletes, second: Deletes) -> Deletes:
    """Two lots of deletes as one."""
    return Deletes(
        pa.concat_arrays([first.keys, second.keys]),
        np.concatenate([first.ordering, second.ordering]),
        np.concatenate([first.unconditional, second.unconditional]),
    )


def read_table(
    storage: LocalStorage, schema: TableSchema, ordering: OrderingField | None, partitions: list[str]
) -> pa.Table:
    """All live rows of a table without a metadata table, from its files and timeline."""
    mode = read_table_config(storage).merge_mode
    files = {partition: [info.name for info in storage.list(partition)] for partition in partitions}
    slices = TableView.load(storage).slices(files)
    tables = [read_slice(storage, each, schema, mode, ordering) for each in slices]
    return pa.concat_tables(tables) if tables else schema.arrow_with_meta.empty_table()
