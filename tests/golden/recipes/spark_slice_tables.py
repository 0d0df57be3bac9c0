"""Makes the Spark-written tables of tests/golden/slices (see the README.md there).

Run: python spark_slice_tables.py OUTPUT_FOLDER   (needs Java 17 and the Hudi bundle, which Spark fetches)

Each table holds every column type that is served, late and early updates, deletes by `_hoodie_is_deleted`
(typed ordering values) and by the DELETE operation (Int 0). `<name>.expected.json` is what Spark reads of
it.
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
    "id string not null, i int, l long, f float, d double, b boolean, raw binary, day date, ts timestamp, "
    "local timestamp_ntz, price decimal(10,2), big decimal(38,6), "
    "tags array<string>, attrs map<string,long>, "
    "st struct<a:string,n:decimal(20,3),inner:struct<x:int>>, "
    "items array<struct<q:int,p:decimal(6,2)>>, "
    "late string, _hoodie_is_deleted boolean"
)
ORDERING = {
    "mor_long": "l",
    "mor_timestamp": "ts",
    "mor_double": "d",
    "mor_commit_time": None,
    "cow_long": "l",
}


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


def options(name: str) -> dict[str, str]:
    chosen = {
        "hoodie.table.name": name,
        "hoodie.datasource.write.table.type": "COPY_ON_WRITE" if name.startswith("cow") else "MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.table.timeline.timezone": "UTC",
        "hoodie.metadata.enable": "false",
        "hoodie.index.type": "SIMPLE",
        "hoodie.index.bloom.num_entries": "100",
        "hoodie.upsert.shuffle.parallelism": "1",
        "hoodie.delete.shuffle.parallelism": "1",
        "hoodie.compact.inline": "false",
    }
    if ORDERING[name] is not None:
        chosen["hoodie.table.ordering.fields"] = str(ORDERING[name])
    return chosen


def row(number: int, order: int, late: str, deleted: bool = False) -> tuple[Any, ...]:
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC).replace(tzinfo=None) + dt.timedelta(
        days=order, microseconds=number
    )
    full = number % 3 != 2
    return (
        f"k{number:02d}", number - 5, order, number / 4, order / 2, number % 2 == 0, bytes([number, 255]),
        moment.date(), moment, moment, Decimal(number) / 4, Decimal(number * 10**20 + 1) / 1000,
        [f"t{number}", "x"] if full else None, {"a": number, "b": None} if full else None,
        (f"s{number}", Decimal(number) / 8, (number,)) if full else None,
        [(number, Decimal("1.25")), (None, None)] if full else [], late, deleted,
    )  # fmt: skip


def fill(spark: SparkSession, path: Path) -> None:
    def write(rows: list[tuple[Any, ...]], operation: str = "upsert") -> None:
        frame = spark.createDataFrame(rows, SCHEMA)
        writer = frame.write.format("hudi").options(**options(path.name)).mode("append")
        writer.option("hoodie.datasource.write.operation", operation).save(str(path))

    write([row(number, 10, "inserted") for number in range(24)])
    write([row(number, 20, "updated") for number in range(6)] + [row(30, 20, "new")])
    write([row(number, 5, "too early") for number in range(3, 9)])
    write([row(9, 20, "", True), row(10, 5, "", True), row(0, 20, "", True), row(1, 5, "", True)])
    write([row(number, 0, "") for number in (11, 12, 2)], "delete")
    write([row(11, 30, "back"), row(9, 15, "stays deleted"), row(13, 10, "tie")])


def plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, (dt.date, Decimal)):
        return str(value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in sorted(value.items())}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def main() -> None:
    output = Path(sys.argv[1]).resolve()
    output.mkdir(parents=True, exist_ok=True)
    spark = session()
    spark.sparkContext.setLogLevel("ERROR")
    for name in ORDERING:
        path = output / "work" / name
        shutil.rmtree(path, ignore_errors=True)
        fill(spark, path)
        read = spark.read.format("hudi").load(str(path)).drop("_hoodie_is_deleted", "_hoodie_commit_seqno")
        rows = sorted(([plain(each) for each in found] for found in read.collect()), key=lambda each: each[1])
        text = json.dumps({"columns": read.columns, "rows": rows}, indent=None)
        (output / f"{name}.expected.json").write_text(text + "\n", "ascii")
        with zipfile.ZipFile(output / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for file in sorted(path.rglob("*")):
                if file.is_file() and file.suffix != ".crc":
                    info = zipfile.ZipInfo(str(file.relative_to(path)), (2025, 1, 1, 0, 0, 0))
                    info.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(info, file.read_bytes())
    spark.stop()
    shutil.rmtree(output / "work")


if __name__ == "__main__":
    main()
