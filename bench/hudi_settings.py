"""Settings of the Hudi side of the benchmark: what differs from the defaults made the batches faster here."""

from __future__ import annotations

from typing import Final

from tests.interop.hudi_options import GLOBAL_RECORD_INDEX, new_table_options

INDEX_SHARDS: Final = 8

SPARK_SETTINGS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.locality.wait": "0",
    "spark.driver.maxResultSize": "0",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseParallelGC",
}


def writer_options() -> dict[str, str]:
    """Options of every write, compaction aside."""
    return {
        **new_table_options("baseline", "MERGE_ON_READ", ["id"], ["region"], "ts", INDEX_SHARDS),
        **GLOBAL_RECORD_INDEX,
        "hoodie.parquet.compression.codec": "zstd",
        # At the default of 100 MB a batch with inserts rewrites a whole base file of each partition, at 0 it
        # leaves a tiny file group in each. With 1 MB, inserts are packed into recent small files only.
        "hoodie.parquet.small.file.limit": str(1 << 20),
        "hoodie.combine.before.upsert": "false",
        "hoodie.write.record.positions": "false",
        # Tasks that read the old file groups of moved keys; of the default 60 most only wait for a core.
        "hoodie.global.index.reconcile.parallelism": "2",
    }


def compaction_options(on: bool) -> dict[str, str]:
    """Data and metadata table compaction at Hudi's default pace, or neither within the measured window."""
    if on:
        return {
            "hoodie.compact.inline": "true",
            "hoodie.compact.inline.max.delta.commits": "5",
            "hoodie.metadata.compact.max.delta.commits": "10",
        }
    return {
        "hoodie.compact.inline": "false",
        "hoodie.metadata.compact.max.delta.commits": "1000",
    }


def settle_options() -> dict[str, str]:
    """Compaction of everything there is, data and metadata table: what each measured case starts from."""
    return {
        "hoodie.compact.inline.max.delta.commits": "1",
        "hoodie.metadata.compact.max.delta.commits": "1",
    }
