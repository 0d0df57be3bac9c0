"""Makes the Spark-written tables of tests/golden/operations (see the README.md there).

Run: HUDI_BUNDLE_JAR=… python spark_operation_tables.py OUTPUT_FOLDER [NAME …]   (needs Java 17; without the
variable Spark fetches the Hudi bundle)

Each table has seen operations that Tidemark itself does not do. `<name>.expected.json` is what Spark reads of
it: rows with their file, and the whole record index.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SCHEMA = "id string, region string, ts long, name string, amount long"
INDEX = {
    "hoodie.metadata.enable": "true",
    "hoodie.metadata.global.record.level.index.enable": "true",
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}


def session() -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("golden")
        .config("spark.driver.memory", "1g")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.default.parallelism", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    jar = os.environ.get("HUDI_BUNDLE_JAR")
    named = ("spark.jars", jar) if jar else ("spark.jars.packages", BUNDLE)
    return builder.config(*named).getOrCreate()


class Table:
    """A MERGE_ON_READ table with a global record index of one shard."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.spark, self.path = spark, path
        ordering = None if path.name == "partial_commit_time" else "ts"
        # MERGE INTO looks keys up by partition, and its changes do not name one.
        is_partitioned = not path.name.startswith("partial")
        self.options = {
            **INDEX,
            "hoodie.table.name": path.name,
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "region" if is_partitioned else "",
            "hoodie.datasource.write.keygenerator.type": "SIMPLE" if is_partitioned else "NON_PARTITION",
            "hoodie.table.timeline.timezone": "UTC",
            "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
            "hoodie.metadata.global.record.level.index.max.filegroup.count": "1",
            "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
            "hoodie.record.index.update.partition.path": "true",
            "hoodie.index.bloom.num_entries": "100",
            "hoodie.upsert.shuffle.parallelism": "1",
            "hoodie.delete.shuffle.parallelism": "1",
            "hoodie.compact.inline": "false",
            "hoodie.clean.automatic": "false",
            "hoodie.archive.automatic": "false",
            # The only merger that can read what MERGE INTO writes.
            "hoodie.write.record.merge.custom.implementation.classes": (
                "org.apache.hudi.DefaultSparkRecordMerger"
            ),
        }
        self.options |= (
            {"hoodie.table.ordering.fields": ordering, "hoodie.record.merge.mode": "EVENT_TIME_ORDERING"}
            if ordering
            else {"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}
        )
        # What SQL and procedures write takes its options from the session.
        for key, value in {**self.options, **INDEX}.items():
            if not key.startswith(("hoodie.table.", "hoodie.datasource.", "hoodie.index.type")):
                spark.sql(f"SET {key}={value}")

    def write(self, rows: list[tuple[Any, ...]], operation: str = "upsert", **more: str) -> None:
        frame = self.spark.createDataFrame(rows, SCHEMA)
        writer = frame.write.format("hudi").options(**self.options)
        for key, value in more.items():
            writer = writer.option(key.replace("__", "."), value)
        writer.option("hoodie.datasource.write.operation", operation).mode("append").save(str(self.path))

    def sql(self, text: str) -> list[Any]:
        return self.spark.sql(text).collect()

    def merge(self, rows: list[tuple[Any, ...]], column: str) -> None:
        """MERGE INTO that sets the ordering field and one other column."""
        frame = self.spark.createDataFrame(rows, "id string, ts long, name string, amount long")
        frame.createOrReplaceTempView("changes")
        self.sql(
            f"MERGE INTO {self.path.name} t USING changes s ON t.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET ts = s.ts, {column} = s.{column}"
        )

    def register(self) -> None:
        self.sql(f"DROP TABLE IF EXISTS {self.path.name}")
        self.sql(f"CREATE TABLE {self.path.name} USING hudi LOCATION '{self.path}'")

    def instants(self) -> list[str]:
        names = [each.name for each in (self.path / ".hoodie" / "timeline").iterdir()]
        return sorted(
            name.partition("_")[0] for name in names if "_" in name and name.endswith(".deltacommit")
        )

    def options_text(self) -> str:
        return ",".join(f"{key}={value}" for key, value in INDEX.items())


def rows(first: int, count: int, ts: int, name: str) -> list[tuple[Any, ...]]:
    return [(f"k{n:02d}", "eu" if n % 2 else "us", ts, name, n) for n in range(first, first + count)]


def restored(table: Table) -> None:
    """A savepoint, commits, a restore to it, then commits until the metadata table is compacted again."""
    compact = {"hoodie__metadata__compact__max__delta__commits": "4"}
    table.write(rows(0, 12, 1, "first"), **compact)
    table.write(rows(0, 6, 2, "second"), **compact)
    kept = table.instants()[-1]
    table.register()
    table.sql(f"CALL create_savepoint(table => '{table.path.name}', commit_time => '{kept}')")
    table.write(rows(20, 6, 3, "to be undone"), **compact)
    table.sql(f"CALL rollback_to_savepoint(table => '{table.path.name}', instant_time => '{kept}')")
    for step in range(6):
        table.write(rows(30 + step, 2, 4, "after"), **compact)


def restored_to_start(table: Table) -> None:
    """Older instants are archived; the restore left a savepointed one as the only active write instant."""
    busy = {
        "hoodie__metadata__compact__max__delta__commits": "1",
        "hoodie__archive__automatic": "true",
        "hoodie__clean__automatic": "true",
        "hoodie__clean__commits__retained": "1",
        "hoodie__keep__min__commits": "2",
        "hoodie__keep__max__commits": "3",
        "hoodie__parquet__small__file__limit": "0",
    }
    for step in range(8):
        table.write(rows(step * 5, 5, 1, f"step {step}"), **busy)
    table.register()
    kept = table.instants()[0]
    table.sql(f"CALL create_savepoint(table => '{table.path.name}', commit_time => '{kept}')")
    table.sql(f"CALL rollback_to_savepoint(table => '{table.path.name}', instant_time => '{kept}')")


def partial(table: Table) -> None:
    """MERGE INTO that sets some columns: Spark writes log blocks with these columns only."""
    table.write(rows(0, 10, 10, "first"))
    table.register()
    for ts, low, high, column in ((20, 0, 4, "name"), (30, 2, 6, "amount"), (5, 7, 9, "name")):
        table.merge([(f"k{n:02d}", ts, "merged", 1000 + n) for n in range(low, high)], column)
    table.write([("k03", "eu", 40, "whole again", 3)])
    table.write([("k08", "us", 50, "", 8)], "delete")
    table.merge([("k03", 60, "", 7)], "amount")


def log_compacted(table: Table) -> None:
    """Log files of several commits folded into one, then commits on top of it."""
    table.write(rows(0, 10, 10, "first"))
    for step in range(4):
        table.write(rows(step, 3, 20 + step, f"step {step}"))
    table.write([("k09", "eu", 50, "", 9)], "delete")
    folding = {
        "hoodie__log__compaction__enable": "true",
        "hoodie__log__compaction__inline": "true",
        "hoodie__log__compaction__blocks__threshold": "2",
    }
    table.write(rows(2, 3, 40, "with log compaction"), **folding)
    table.write(rows(4, 2, 60, "after"))


def clustered(table: Table) -> None:
    """One clustering executed, its old files not cleaned; a delete_partition; one clustering planned only."""
    table.write([*rows(0, 12, 1, "first"), ("x1", "asia", 1, "dropped", 1)])
    options = table.options_text()
    table.register()
    name = table.path.name
    table.sql(f"CALL run_clustering(table => '{name}', op => 'scheduleandexecute', options => '{options}')")
    table.write(rows(20, 4, 2, "second"))
    table.sql(f"ALTER TABLE {name} DROP PARTITION (region = 'asia')")
    table.sql(
        f"CALL run_clustering(table => '{name}', op => 'schedule', predicate => \"region = 'eu'\", "
        f"options => '{options}')"
    )


MAKERS = {
    "restored": restored,
    "restored_to_start": restored_to_start,
    "partial_event_time": partial,
    "partial_commit_time": partial,
    "log_compacted": log_compacted,
    "clustered": clustered,
}


def expected(spark: SparkSession, path: Path) -> dict[str, Any]:
    columns = "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name", "ts", "name", "amount"
    found = spark.read.format("hudi").options(**INDEX).load(str(path)).select(*columns).collect()
    index = (
        spark.read.format("hudi")
        .load(str(path / ".hoodie" / "metadata"))
        .where("type = 5")
        .selectExpr(
            "key",
            "recordIndexMetadata.partitionName p",
            "recordIndexMetadata.fileIdHighBits hi",
            "recordIndexMetadata.fileIdLowBits lo",
            "recordIndexMetadata.fileIndex n",
            "recordIndexMetadata.fileId t",
        )
        .collect()
    )
    return {
        "columns": list(columns),
        "rows": sorted(list(row) for row in found),
        "record_index": sorted(list(row) for row in index),
    }


def pack(path: Path, output: Path, facts: dict[str, Any]) -> None:
    with zipfile.ZipFile(output / f"{path.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path.rglob("*")):
            if file.is_dir() or file.suffix == ".crc":
                continue
            info = zipfile.ZipInfo(str(file.relative_to(path)), (2025, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.read_bytes())
    text = json.dumps(facts, ensure_ascii=True, indent=0)
    (output / f"{path.name}.expected.json").write_text(text + "\n", "ascii")


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    for name in sys.argv[2:] or MAKERS:
        MAKERS[name](Table(spark, work / name))
        pack(work / name, output, expected(spark, work / name))
    spark.stop()
    shutil.rmtree(work)


if __name__ == "__main__":
    main()
