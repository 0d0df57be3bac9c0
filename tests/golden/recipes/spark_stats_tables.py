"""Makes the Spark-written tables of tests/golden/column_stats (see the README.md there).

Run: python spark_stats_tables.py OUTPUT_FOLDER [NAME …]   (needs Java 17; Spark fetches the Hudi bundle)

They keep column stats and partition stats, as Hudi 1.2.0 does by default, of every type of column that
can have them. `<name>.expected.json` is what Spark itself reads of the column stats' records.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
import zipfile
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SCHEMA = (
    "id string not null, region string, seq long, i int, l long, f float, d double, b boolean, s string, "
    "raw binary, day date, ts timestamp, local timestamp_ntz, price decimal(10,2), big decimal(30,10), "
    "none string"
)
STATS = "ColumnStatsMetadata"
# Table type, and after how many of its deltacommits the metadata table is compacted.
TABLES = {"mor": ("MERGE_ON_READ", 100), "cow": ("COPY_ON_WRITE", 4)}


def session() -> SparkSession:
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("golden")
        .config("spark.driver.memory", "1g")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.default.parallelism", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.ui.enabled", "false")
    )
    jar = os.environ.get("HUDI_BUNDLE_JAR")
    named = ("spark.jars", jar) if jar else ("spark.jars.packages", BUNDLE)
    return builder.config(*named).getOrCreate()


def options(name: str, table_type: str, compact_index_after: int) -> dict[str, str]:
    return {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.table.ordering.fields": "seq",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.metadata.global.record.level.index.enable": "true",
        "hoodie.metadata.global.record.level.index.min.filegroup.count": "1",
        "hoodie.metadata.global.record.level.index.max.filegroup.count": "1",
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.metadata.compact.max.delta.commits": str(compact_index_after),
        "hoodie.index.bloom.num_entries": "100",
        "hoodie.clean.commits.retained": "1",
        "hoodie.compact.inline": str(table_type == "MERGE_ON_READ").lower(),
        "hoodie.compact.inline.max.delta.commits": "4",
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.insert.shuffle.parallelism": "1",
        "hoodie.delete.shuffle.parallelism": "1",
    }


def row(key: str, region: str, seq: int, number: int, text: str | None) -> tuple[Any, ...]:
    """A row of ordinary values, negative ones among them; row 7 has nulls wherever it may."""
    if number % 10 == 7:
        return (key, region, seq, *([None] * 13))
    sign = -1 if number % 2 else 1
    begin = dt.datetime(2024, 1, 1, 12, 0, 0, 123_456, dt.UTC)
    moment = begin + sign * dt.timedelta(days=400 * number)
    price, big = (
        Decimal(sign * number * 129) / 100,
        Decimal(sign * number) * Decimal("12345678901.2345678901"),
    )
    return (
        key, region, seq, sign * number * 1_000, sign * number * 10**15, sign * number / 4, sign * number / 3,
        number % 3 == 0, text, bytes([number, 0, 255 - number]), moment.date(), moment,
        moment.replace(tzinfo=None), price, big, None,
    )  # fmt: skip


def write(
    spark: SparkSession, path: Path, opts: dict[str, str], operation: str, rows: list[tuple[Any, ...]]
) -> None:
    frame = spark.createDataFrame(rows, SCHEMA)
    mode = "append" if path.exists() else "overwrite"
    frame.write.format("hudi").options(**opts).option("hoodie.datasource.write.operation", operation).mode(
        mode
    ).save(str(path))


def expected(spark: SparkSession, path: Path) -> dict[str, Any]:
    """The column stats as Hudi merges them."""
    records = (
        spark.read.format("hudi")
        .load(str(path / ".hoodie" / "metadata"))
        .where("type = 3")
        .selectExpr("key", f"to_json({STATS}, map('ignoreNullFields', 'false')) stats")
        .collect()
    )
    return {"column_stats": {row.key: json.loads(row.stats) for row in sorted(records)}}


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


def table(spark: SparkSession, path: Path, table_type: str, compact_index_after: int) -> None:
    opts = options(path.name, table_type, compact_index_after)
    texts = ["berlin", "", "oslo\U0001f600", "oslo\uff5e", "naïve", "x" * 300]
    regions, nan = ("eu", "us", "a b=c"), float("nan")
    write(spark, path, opts, "insert", [
        row(f"k{number}", regions[number % 3], 1, number, texts[number % 6]) for number in range(12)
    ])  # fmt: skip
    write(spark, path, opts, "upsert", [
        row("k0", "eu", 2, 21, "\U0001f600"), row("k3", "eu", 0, 90, "too old"), row("k1", "us", 2, 7, None),
        ("k14", "a b=c", 2, 0, 0, -0.0, -0.0, True, "\uff5e", b"", None, None, None, Decimal(0), None, None),
        ("k17", "a b=c", 2, 0, 0, nan, nan, True, "z", b"\x80", None, None, None, None, None, None),
    ])  # fmt: skip
    write(spark, path, opts, "delete", [row("k2", "a b=c", 3, 2, None), row("k6", "eu", 3, 6, None)])
    write(spark, path, opts, "upsert", [row("k4", "us", 4, 33, "later"), row("k8", "a b=c", 4, 36, "y")])
    write(spark, path, opts, "upsert", [row("k9", "eu", 5, 41, "more"), row("k4", "us", 5, 44, "last")])
    write(spark, path, opts, "upsert", [row("k10", "us", 6, 45, "end")])
    pack(path, path.parent, expected(spark, path))
    shutil.rmtree(path)


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    spark = session()
    for name in sys.argv[2:] or list(TABLES):
        table(spark, output / name, *TABLES[name])
    spark.stop()


if __name__ == "__main__":
    main()
