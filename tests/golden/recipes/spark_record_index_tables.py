"""Makes the Spark-written tables of tests/golden/record_index (see tests/golden/README.md).

Run: python spark_record_index_tables.py OUTPUT_FOLDER [TABLE]   (needs Java 17 and the Hudi bundle, which
Spark fetches; without TABLE all are made)

Every table comes with `<name>.expected.json`: what Spark itself says is in the table and in its record index,
and the JVM's String.hashCode of every key.
"""

from __future__ import annotations

import json
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

BUNDLE = "org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0"
SCHEMA = "id string, region string, ts long, name string"
ODD_KEYS = [
    "",
    "a",
    "polygenelubricants",
    "naïve",
    "日本語",
    "\U0001f600",
    "x\U0001d11ey",
    "￿",
    "\U00010000",
    "a/b?c:d=e",
    "sp ace",
    "q'uote\"",
    "percent%41",
    "under_score-dash",
    "L" * 300,
    "\t tab",
    "Ωmega",
]


def session() -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .appName("golden")
        .config("spark.jars.packages", BUNDLE)
        .config("spark.driver.memory", "1g")
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.default.parallelism", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )


def options(name: str, table_type: str, shards: int, partitioned: bool, compact_after: int) -> dict[str, str]:
    kind = "record.level.index" if partitioned else "global.record.level.index"
    return {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.metadata.enable": "true",
        f"hoodie.metadata.{kind}.enable": "true",
        f"hoodie.metadata.{kind}.min.filegroup.count": str(shards),
        f"hoodie.metadata.{kind}.max.filegroup.count": str(shards),
        "hoodie.index.type": "RECORD_LEVEL_INDEX" if partitioned else "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.record.index.update.partition.path": "true",
        "hoodie.global.record.level.index.update.partition.path": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
        "hoodie.metadata.compact.max.delta.commits": str(compact_after),
        "hoodie.index.bloom.num_entries": "100",
        "hoodie.upsert.shuffle.parallelism": "2",
        "hoodie.insert.shuffle.parallelism": "2",
        "hoodie.bulkinsert.shuffle.parallelism": "2",
        "hoodie.delete.shuffle.parallelism": "2",
        "hoodie.compact.inline": "false",
    }


def write(
    spark: SparkSession, path: Path, opts: dict[str, str], operation: str, rows: list[tuple[Any, ...]]
) -> None:
    frame = spark.createDataFrame(rows, SCHEMA)
    mode = "append" if path.exists() else "overwrite"
    frame.write.format("hudi").options(**opts).option("hoodie.datasource.write.operation", operation).mode(
        mode
    ).save(str(path))


def expected(spark: SparkSession, path: Path) -> dict[str, Any]:
    table = (
        spark.read.format("hudi")
        .load(str(path))
        .selectExpr("_hoodie_record_key k", "_hoodie_partition_path p", "_hoodie_file_name f")
        .collect()
    )
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
            "recordIndexMetadata.instantTime t",
        )
        .collect()
    )
    objects = spark.sparkContext._jvm.java.util.Objects
    keys = sorted({row.k for row in table} | {row.key for row in index})
    return {
        "rows": sorted([row.k, row.p, row.f] for row in table),
        "record_index": sorted([row.key, row.p, row.hi, row.lo, row.n, row.t] for row in index),
        "java_hash": {key: objects.hashCode(key) for key in keys},
    }


def pack(path: Path, output: Path, facts: dict[str, Any], with_data: bool) -> None:
    with zipfile.ZipFile(output / f"{path.name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for file in sorted(path.rglob("*")):
            relative = file.relative_to(path)
            if file.is_dir() or file.suffix == ".crc" or (relative.parts[0] != ".hoodie" and not with_data):
                continue
            info = zipfile.ZipInfo(str(relative), (2025, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, file.read_bytes())
    text = json.dumps(facts, ensure_ascii=True, indent=0)
    (output / f"{path.name}.expected.json").write_text(text + "\n", "ascii")


def odd_table(spark: SparkSession, path: Path, table_type: str, partitioned: bool) -> None:
    opts = options(path.name, table_type, 1 if partitioned else 4, partitioned, 4)
    keys = [key for key in ODD_KEYS if key] + [f"k{i}" for i in range(60)]
    write(
        spark,
        path,
        opts,
        "insert",
        [(key, "eu" if i % 2 else "us", 1, "first") for i, key in enumerate(keys)],
    )
    write(
        spark,
        path,
        opts,
        "upsert",
        [(f"k{i}", "eu" if (i + len(ODD_KEYS) - 1) % 2 else "us", 2, "update") for i in range(10)],
    )
    write(
        spark,
        path,
        opts,
        "delete",
        [(key, "eu" if i % 2 else "us", 3, "gone") for i, key in enumerate(keys) if i % 7 == 0],
    )
    write(spark, path, opts, "upsert", [(f"k{i}", "asia", 4, "moved") for i in range(20, 26)])
    write(spark, path, opts, "upsert", [(f"new{i}", "eu", 5, "new") for i in range(5)])
    write(spark, path, opts, "upsert", [(key, "us", 6, "again") for key in keys[:8]])


def sharded_table(spark: SparkSession, path: Path) -> None:
    """Three shards for each data partition, and five for the one that another writer's commit begins; some
    keys are in several partitions. Nothing is compacted.
    """
    three, five = (options(path.name, "MERGE_ON_READ", shards, True, 20) for shards in (3, 5))
    keys = [key for key in ODD_KEYS if key] + [f"k{i}" for i in range(30)]
    write(spark, path, three, "insert", [(key, "eu", 1, "x") for key in keys])
    write(spark, path, three, "upsert", [(key, "a_b-c d", 2, "x") for key in keys[:12]])
    write(spark, path, three, "delete", [(key, "eu", 3, "x") for key in keys[::5]])
    write(spark, path, five, "upsert", [(key, "us/ca", 4, "x") for key in keys[5:25]])
    write(spark, path, five, "upsert", [(key, "eu", 5, "x") for key in [*keys[:4], "late1", "late2"]])


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    wanted = set(sys.argv[2:])
    work = output / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    for name, table_type, partitioned in (
        ("mor_global", "MERGE_ON_READ", False),
        ("cow_global", "COPY_ON_WRITE", False),
        ("mor_partitioned", "MERGE_ON_READ", True),
    ):
        if wanted and name not in wanted:
            continue
        odd_table(spark, work / name, table_type, partitioned)
        pack(work / name, output, expected(spark, work / name), with_data=True)
    if not wanted or "partitioned_shards" in wanted:
        sharded_table(spark, work / "partitioned_shards")
        facts = expected(spark, work / "partitioned_shards")
        pack(work / "partitioned_shards", output, facts, with_data=False)
    if not wanted or "many_blocks" in wanted:
        many_blocks(spark, work / "many_blocks", output)
    spark.stop()
    shutil.rmtree(work)


def many_blocks(spark: SparkSession, path: Path, output: Path) -> None:
    opts = options(path.name, "MERGE_ON_READ", 1, False, 3)
    for step in range(3):
        write(spark, path, opts, "insert", [(f"key-{i:07d}", "eu", 1, "x") for i in range(step, 24000, 3)])
    facts = expected(spark, path)
    sample = {name: rows[::500] for name, rows in facts.items() if isinstance(rows, list)}
    pack(path, output, {**sample, "java_hash": {}, "count": len(facts["record_index"])}, with_data=False)


if __name__ == "__main__":
    main()
