"""A table on disk with its writer and its coordinator, and what readers must see of it."""

from __future__ import annotations

import copy
import shutil
import time
from pathlib import Path

import pyarrow as pa

from testing.clock import ManualClock
from tests.hudi_rules.table import HudiTable
from tests.interop.native_commit import NativeWriter
from tests.interop.read_table import ReadTable
from tests.interop.verdict import assert_verify_agrees
from tests.service_actions import ServedTable
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import MergeMode, TableDefinition, TableType
from tidemark.stream_runtime.clock import SystemClock

ARROW = pa.schema([("id", pa.string()), ("region", pa.string()), ("ts", pa.int64()), ("name", pa.string())])
SCHEMA = TableSchema.from_arrow("t", ARROW)
ORDERING = OrderingField.of(SCHEMA, "ts")
HOUR_S = 3_600.0


class Story:
    """A table, its writer and its coordinator, and what readers must see: key -> (region, ts, name)."""

    served: ServedTable

    def __init__(
        self,
        path: Path,
        table_type: TableType = TableType.MERGE_ON_READ,
        clock: ManualClock | SystemClock | None = None,
    ) -> None:
        """``clock``: of writer and coordinator; one that stands still unless a test moves it."""
        self.clock = clock or ManualClock(int(time.time() * 1000))
        self.path = path
        self.live: dict[str, tuple[str, int, str]] = {}
        self._ts = 0
        definition = TableDefinition(
            name="t",
            table_type=table_type,
            record_key_fields=("id",),
            partition_fields=("region",),
            ordering_fields=("ts",),
        )
        self.writer = NativeWriter.create(path, SCHEMA, definition, 2, self.clock)
        self.commit(range(12))
        self.commit(range(3, 8), deletes=(0, 10))
        self.commit((1, 9, 20), moved=(2,))

    def serve(self) -> None:
        """A coordinator begins its term."""
        self.served = ServedTable(self.path, SCHEMA, self.clock)

    def forget_coordinator(self) -> Story:
        """Removes the coordinator's own files, so that a copy of the table begins with a first term."""
        self.storage.delete_tree(".hoodie/.aux/tidemark")
        self.storage.delete_tree(".hoodie/lock")
        return self

    def copy(self, path: Path) -> Story:
        """The same table in another folder, with a coordinator of its own."""
        shutil.copytree(self.path, path)
        made = copy.copy(self)
        made.path, made.live = path, dict(self.live)
        made.clock = ManualClock(self.clock.now_ms()) if isinstance(self.clock, ManualClock) else self.clock
        made.writer = NativeWriter(path, SCHEMA, made.clock)
        made.serve()
        return made

    def commit(self, keys, deletes=(), moved=()) -> None:
        """Upserts keys with a new name; a moved key changes its partition."""
        rows = self.changed(keys, moved)
        self.writer.commit(rows, [(f"k{n}", self._ts) for n in deletes])
        for n in deletes:
            self.live.pop(f"k{n}")
        self.pass_by(1.0)

    def changed(self, keys, moved=()) -> pa.Table:
        """New rows for keys, which somebody is about to upsert."""
        self._ts += 1
        for n in (*keys, *moved):
            region = ("eu", "us")[(n + (n in moved)) % 2]
            self.live[f"k{n}"] = (region, self._ts, self.named(n))
        names = [f"k{n}" for n in (*keys, *moved)]
        return pa.Table.from_pylist([row for row in self.rows() if row["id"] in names], schema=ARROW)

    def named(self, n: int) -> str:
        """What a key is called since its newest write."""
        return f"k{n}@{self._ts}"

    def rows(self) -> list[dict[str, object]]:
        """What every reader must see."""
        return [
            {"id": key, "region": region, "ts": ts, "name": name}
            for key, (region, ts, name) in self.live.items()
        ]

    @property
    def commits(self) -> int:
        """How many writes there were, of anybody; each row's `ts` is the number of its own."""
        return self._ts

    def pass_by(self, seconds: float) -> None:
        """So much time passes, if the clock is a test's."""
        if isinstance(self.clock, ManualClock):
            self.clock.advance(seconds)

    @property
    def storage(self) -> LocalStorage:
        return self.served.storage

    def check(self) -> None:
        """Readers and the record index agree, `verify` finds nothing: also while an action is half done."""
        self.check_readers()
        assert_verify_agrees(self.path, len(self.live))

    def check_readers(self) -> None:
        """Our reader, and Hudi's rules with and without the metadata table, see the rows."""
        assert plain(ReadTable(self.path).rows()) == self.live
        for files in (self.listed_folders(), MetadataTableSnapshot.load(self.storage).files.names()):
            assert plain(self.hudi_rows(files)) == self.live

    def listed_folders(self) -> dict[str, list[str]]:
        return {each: [info.name for info in self.storage.list(each)] for each in ("eu", "us")}

    def hudi_rows(self, files: dict[str, list[str]]) -> pa.Table:
        def names(folder: str) -> list[str]:
            return [info.name for info in self.storage.list(folder) if not info.is_dir]

        slices = HudiTable(names, self.storage.read, files).read_slices()
        rows = [
            read_slice(
                self.storage,
                FileSlice(partition, file_id, base, "", tuple(logs)),
                SCHEMA,
                MergeMode.EVENT_TIME_ORDERING,
                ORDERING,
            )
            for (partition, file_id), (base, logs) in slices.items()
        ]
        return pa.concat_tables(rows)

    def log_files(self) -> int:
        return sum(len(each.log_files) for each in ReadTable(self.path).slices())

    def index_log_files(self) -> int:
        slices = MetadataTableSnapshot.load(self.storage).slices
        return sum(len(each.log_files) for of_partition in slices.values() for each in of_partition)

    def table_files(self) -> set[str]:
        """The paths of base and log files of both tables."""
        folders = ("eu", "us", *(f"{METADATA_TABLE_PATH}/{name}" for name in ("files", "record_index")))
        return {info.path for folder in folders for info in self.storage.list(folder)}

    def later(self) -> None:
        """Readers of before have ended."""
        self.pass_by(2 * HOUR_S)


def plain(rows: pa.Table) -> dict[str, tuple[str, int, str]]:
    found = {row["id"]: (row["region"], row["ts"], row["name"]) for row in rows.to_pylist()}
    assert len(found) == rows.num_rows, "a key is doubled"
    return found
