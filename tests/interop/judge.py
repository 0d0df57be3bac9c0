"""Hudi 1.2.0 on Spark as the judge of what Tidemark writes: every answer here is given by Hudi itself.

Rows come back as plain Python values: Spark answers in Arrow's format, so no type is converted on the way.
Not this module's job: to know what is right. See `verdict` for the comparisons.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from tests.interop.hudi_options import (
    GLOBAL_RECORD_INDEX,
    SMALL_FILTERS,
    SMALL_PARALLELISM,
    existing_table_options,
    new_table_options,
    own_options,
)
from tidemark.hudi_format.schema import META_COLUMNS

Rows = list[dict[str, Any]]
Location = tuple[str, str]


@dataclass(frozen=True)
class Lookup:
    """The answer to `where record key = …`: the rows, and how many file groups Spark opened for them.

    `files_read` below `files_in_table` proves that the record index answered: statistics are off.
    """

    rows: Rows
    files_read: int
    files_in_table: int


class JudgeError(AssertionError):
    """Hudi contradicts itself about a table: two of its own ways of reading differ."""


class HudiJudge:
    """One Spark session with Hudi's bundle; `scratch` holds what passes between Spark and Python."""

    def __init__(self, spark: Any, scratch: Path) -> None:
        self.spark = spark
        self._jvm = spark._jvm
        self._scratch = scratch
        self._serial = itertools.count()

    # -- reading

    def snapshot(self, table: Path, *, metadata: bool = True, meta_columns: bool = False) -> Rows:
        """All live rows; `metadata=False` lists folders instead of asking the metadata table for files."""
        return self._read(table, {"hoodie.metadata.enable": str(metadata).lower()}, meta_columns)

    def read_optimized(self, table: Path, *, meta_columns: bool = False) -> Rows:
        """The rows of the base files alone."""
        return self._read(table, {"hoodie.datasource.query.type": "read_optimized"}, meta_columns)

    def as_of(self, table: Path, instant: str) -> Rows:
        """Time travel: the rows as of a completed instant."""
        return self._read(table, {"as.of.instant": instant}, False)

    def incremental(
        self, table: Path, begin: str, end: str | None = None, *, meta_columns: bool = False
    ) -> Rows:
        """Newest versions of rows changed by instants with completion time in (begin, end]."""
        options = {
            "hoodie.datasource.query.type": "incremental",
            "hoodie.datasource.read.begin.instanttime": begin,
        }
        if end is not None:
            options["hoodie.datasource.read.end.instanttime"] = end
        return self._read(table, options, meta_columns)

    def filtered(self, table: Path, condition: str, *, skipping: bool) -> Rows:
        """The rows that a filter leaves, with or without data skipping by the metadata table's indexes."""
        options = {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": str(skipping).lower()}
        return self._collect(self._frame(table, options).where(condition))

    def lookup(self, table: Path, key_column: str, key: str) -> Lookup:
        """Rows where the record key column equals `key`, found by data skipping with the record index."""
        frame = self._frame(table, {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "true"})
        everything = self._frame(
            table, {"hoodie.metadata.enable": "true", "hoodie.enable.data.skipping": "false"}
        )
        condition = frame[key_column] == key
        rows, files_read = self.rows_and_files(frame.where(condition))
        _, files_in_table = self.rows_and_files(everything.select(key_column))
        return Lookup(rows, files_read, files_in_table)

    def record_locations(self, table: Path, keys: Sequence[str]) -> dict[str, Location]:
        """(partition path, file id) of each known key, from the reader that Hudi's own writers tag with."""
        return self.timed_record_locations(table, keys)[0]

    def timed_record_locations(self, table: Path, keys: Sequence[str]) -> tuple[dict[str, Location], float]:
        """`record_locations`, and the seconds Hudi took inside the JVM, the start of a reader included."""
        mapper = self._jvm.com.fasterxml.jackson.databind.ObjectMapper()
        java_keys = mapper.readValue(json.dumps(list(keys)), self._jvm.java.util.ArrayList().getClass())
        data = self._jvm.org.apache.hudi.common.data.HoodieListData.eager(java_keys)
        started = time.perf_counter()
        metadata = self._table_metadata(table)
        try:
            pairs = metadata.readRecordIndexLocationsWithKeys(data).collectAsList()
            seconds = time.perf_counter() - started
            found: dict[str, Location] = {}
            for pair in json.loads(mapper.writeValueAsString(pairs)):
                for key, value in pair.items():
                    found[key] = (value["partitionPath"], value["fileId"])
            return found, seconds
        finally:
            metadata.close()

    def record_index(self, table: Path) -> dict[str, Location]:
        """All entries of the record index, read by Hudi in two ways that must agree.

        The keys come from a query on the metadata table, the locations from the tagging reader, which also
        hashes each key to its file group. Raises `JudgeError` for a key there twice or in a wrong group.
        """
        listed = self._metadata_records(table)
        keys = [key for key, _ in listed]
        if len(keys) != len(set(keys)):
            raise JudgeError(f"{table}: record index holds keys twice: {sorted(_repeated(keys))[:5]}")
        located = self.record_locations(table, keys) if keys else {}
        if located != dict(listed):
            wrong = sorted(set(located.items()) ^ set(listed))
            raise JudgeError(f"{table}: Hudi's query and its tagging reader differ: {wrong[:5]}")
        return located

    def partitioned_index(self, table: Path) -> dict[tuple[str, str], str]:
        """(partition path, key) -> file id: all entries of a record index that is divided by data partition,
        by a query on the metadata table. Raises `JudgeError` for an entry there twice.

        Hudi's reader for tagging wants the keys of one file group at a time here: ask it by an upsert.
        """
        entries = self._metadata_records(table)
        listed = {(path, key): file_id for key, (path, file_id) in entries}
        if len(listed) != len(entries):
            raise JudgeError(f"{table}: record index holds rows twice")
        return listed

    def metadata_table(self, table: Path) -> Rows:
        """All records of the metadata table as Spark's reader sees them."""
        return self._collect(self._frame(table / ".hoodie" / "metadata", {}))

    def hash_record_keys(self, keys: pa.StringArray, num_shards: int) -> list[int]:
        """File group number of each key by Hudi's own function, run in the JVM on a file of all keys."""
        source = self._put(pa.table({"position": pa.array(range(len(keys)), pa.int64()), "key": keys}))
        call = (
            "cast(reflect('org.apache.hudi.metadata.HoodieTableMetadataUtil', "
            f"'mapRecordKeyToFileGroupIndex', key, {num_shards}) as int) as shard"
        )
        answer = self._collect_table(self.spark.read.parquet(str(source)).selectExpr("position", call))
        return list(answer.sort_by("position")["shard"].to_pylist())

    # -- writing

    def create_table_with_spark(
        self,
        table: Path,
        rows: pa.Table,
        *,
        table_type: str,
        record_key: Sequence[str] = ("id",),
        partition: Sequence[str] = ("region",),
        ordering: str | None = "ts",
        shards: int = 4,
        options: Mapping[str, str] | None = None,
    ) -> None:
        """A table of Hudi's own making with a global record index; its first commit inserts `rows`."""
        base = new_table_options(table.name, table_type, record_key, partition, ordering, shards)
        self._write(table, rows, "insert", {**base, **SMALL_FILTERS, **(options or {})})

    def upsert(self, table: Path, rows: pa.Table, options: Mapping[str, str] | None = None) -> None:
        """Spark upserts `rows` with the table's own settings, tagging through the global record index."""
        self._write(table, rows, "upsert", {**existing_table_options(table), **(options or {})})

    def delete(self, table: Path, rows: pa.Table, options: Mapping[str, str] | None = None) -> None:
        """Spark deletes the keys of `rows`, unconditionally."""
        self._write(table, rows, "delete", {**existing_table_options(table), **(options or {})})

    def write_as_told(self, table: Path, rows: pa.Table, operation: str, options: Mapping[str, str]) -> None:
        """Spark writes with the given options and the table's own: which index to use and keep is theirs."""
        self._write(table, rows, operation, {**own_options(table), **options})

    def compact(self, table: Path, options: Mapping[str, str] | None = None) -> Rows:
        """Schedules and runs a compaction of every file group that has log files. Returns Spark's answer."""
        settings = {"hoodie.compact.inline.max.delta.commits": "1", **(options or {})}
        return self._call("run_compaction", {"op": "run", "path": str(table)}, settings)

    def clean(self, table: Path, options: Mapping[str, str] | None = None) -> Rows:
        """Removes all but the newest file slice of each file group."""
        name = f"judged_{next(self._serial)}"
        self.spark.sql(f"create table {name} using hudi location '{table}'")
        try:
            arguments = {
                "table": name,
                "clean_policy": "KEEP_LATEST_FILE_VERSIONS",
                "file_versions_retained": "1",
            }
            return self._call("run_clean", arguments, options or {})
        finally:
            self.spark.sql(f"drop table {name}")

    def rows_and_files(self, frame: Any) -> tuple[Rows, int]:
        """The rows of a frame, and how many files the scans for them read."""
        self.spark.conf.set("spark.sql.adaptive.enabled", "false")
        try:
            rows = [row.asDict(recursive=True) for row in frame.collect()]
            leaves = frame._jdf.queryExecution().executedPlan().collectLeaves()
            scans = [leaves.apply(each) for each in range(leaves.size())]
            return rows, sum(scan.metrics().apply("numFiles").value() for scan in scans)
        finally:
            self.spark.conf.unset("spark.sql.adaptive.enabled")

    # -- inside

    def _call(self, procedure: str, arguments: Mapping[str, str], settings: Mapping[str, str]) -> Rows:
        quoted = ", ".join(
            f"{name} => {value if value.isdigit() else repr(value)}" for name, value in arguments.items()
        )
        everything = {**SMALL_PARALLELISM, **SMALL_FILTERS, **GLOBAL_RECORD_INDEX, **settings}
        listed = ",".join(f"{key}={value}" for key, value in everything.items())
        answer = self.spark.sql(f"CALL {procedure}({quoted}, options => '{listed}')").collect()
        return [row.asDict(recursive=True) for row in answer]

    def _write(self, table: Path, rows: pa.Table, operation: str, options: Mapping[str, str]) -> None:
        writer = self.frame_of(rows).write.format("hudi").options(**options)
        writer.option("hoodie.datasource.write.operation", operation).mode("append").save(str(table))

    def _frame(self, table: Path, options: Mapping[str, str]) -> Any:
        return self.spark.read.format("hudi").options(**options).load(str(table))

    def _read(self, table: Path, options: Mapping[str, str], meta_columns: bool) -> Rows:
        frame = self._frame(table, options)
        return self._collect(frame if meta_columns else frame.drop(*META_COLUMNS))

    def _collect(self, frame: Any) -> Rows:
        rows: Rows = self._collect_table(frame).to_pylist()
        return rows

    def _collect_table(self, frame: Any) -> pa.Table:
        batches = frame._collect_as_arrow()
        return pa.Table.from_batches(batches) if batches else to_arrow_schema(frame.schema).empty_table()

    def frame_of(self, rows: pa.Table) -> Any:
        """The rows as Spark sees them."""
        return self.spark.read.parquet(str(self._put(rows)))

    def scratch_file(self, name: str) -> Path:
        """A path that nobody has used, below the judge's folder; nothing is there yet."""
        return self._scratch / f"{name}-{next(self._serial)}"

    def _put(self, rows: pa.Table) -> Path:
        """A Parquet file for Spark to read; it stays, since frames read it only when they are run."""
        target = self._scratch / f"given-{next(self._serial)}.parquet"
        pq.write_table(rows, target)
        return target

    def _metadata_records(self, table: Path) -> list[tuple[str, Location]]:
        frame = self._frame(table / ".hoodie" / "metadata", {}).where("type = 5")
        columns = (
            "partitionName",
            "fileIdHighBits",
            "fileIdLowBits",
            "fileIndex",
            "fileId",
            "fileIdEncoding",
        )
        rows = self._collect(frame.selectExpr("key", *(f"recordIndexMetadata.{each}" for each in columns)))
        return [(row["key"], (row["partitionName"], _file_id(row))) for row in rows]

    def _table_metadata(self, table: Path) -> Any:
        hudi = self._jvm.org.apache.hudi
        configuration = hudi.storage.hadoop.HadoopStorageConfiguration(
            self.spark.sparkContext._jsc.hadoopConfiguration()
        )
        return hudi.metadata.HoodieBackedTableMetadata(
            hudi.common.engine.HoodieLocalEngineContext(configuration),
            hudi.storage.HoodieStorageUtils.getStorage(str(table), configuration),
            hudi.common.config.HoodieMetadataConfig.newBuilder().enable(True).build(),
            str(table),
        )


def _file_id(entry: Mapping[str, Any]) -> str:
    """The file id of a record index entry: a UUID in two halves and a number, or plain text (encoding 1)."""
    if entry["fileIdEncoding"] == 1:
        return str(entry["fileId"])
    bits = f"{entry['fileIdHighBits'] % 2**64:016x}{entry['fileIdLowBits'] % 2**64:016x}"
    uuid = f"{bits[:8]}-{bits[8:12]}-{bits[12:16]}-{bits[16:20]}-{bits[20:]}"
    return uuid if entry["fileIndex"] == -1 else f"{uuid}-{entry['fileIndex']}"


def _repeated(keys: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]
