"""The options with which every other writer of the table shares the lock and the record index with us."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.publication.table_lock import LOCK_FOLDER

LOCK_PROVIDER: Final = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
_INDEX: Final = {
    IndexKind.GLOBAL: "hoodie.metadata.global.record.level.index",
    IndexKind.PARTITIONED: "hoodie.metadata.record.level.index",
}
_TAGGING: Final = {
    # Without the last option the writer leaves a row that moves in its old partition.
    IndexKind.GLOBAL: {
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.record.index.update.partition.path": "true",
    },
    IndexKind.PARTITIONED: {"hoodie.index.type": "RECORD_LEVEL_INDEX"},
}
_STATS: Final = "hoodie.metadata.index.column.stats"
_KEEP_SCHEMA: Final = {"hoodie.datasource.write.reconcile.schema": "true"}


def foreign_writer_options(
    base_uri: str,
    shards: int = 0,
    archive_max: int | None = None,
    stats: Sequence[str] = (),
    kind: IndexKind = IndexKind.GLOBAL,
    schema: pa.Schema | None = None,
) -> dict[str, str]:
    """The options that every other writer of the table needs to share lock and record index with Tidemark.

    `base_uri` is the table's location as that writer sees it. `shards` is the number of file groups of the
    record index, in a partitioned one of each data partition that the writer begins; with 0 the counts are
    left out, and Hudi chooses. `kind`: of the record index. `archive_max` is
    `table_services.archive.max` where Tidemark runs the table services, else None. `stats`: the columns that
    the table keeps column stats of. `schema`: the table's, where it is known. Why each option is there:

    - Only with optimistic concurrency control does the writer take locks.
    - Lazy cleaning of failed writes keeps it from rolling back instants that have a fresh heartbeat.
    - 600 tries, 100 ms apart, are a minute: longer than an epoch of ours holds the lock from plan to commit.
      The pause is shorter than the time for which we leave the lock free (`FREE_MS`), so a try falls into it.
    - The record index is off by Hudi's default, and a writer *deletes* a metadata partition that its options
      switch off.
    - A restore may build the record index again: without both counts Hudi then chooses the number of file
      groups (10 for a small table).
    - Hudi's other kinds of index do not look into log files.
    - Column stats: `kept_stats_options`. Partition stats are off always: with two writers Hudi loses rows by
      them alone. Hudi 1.2.0 does not read that option any more, former versions do.
    - Where Tidemark runs the table services, a writer's own would count in commits: a clean after 10 commits
      takes the files of readers of the last seconds. Every write with the metadata table plans a compaction
      of it, executes it under the lock, and archives it, whatever the other options say; so the numbers of
      commits after which it does are above ours.
    - Spark has timestamps in microseconds only, and Hudi refuses to write these into a column of milliseconds
      unless the writer is told to keep the table's schema.
    """
    counts = {f"{_INDEX[kind]}.{bound}.filegroup.count": str(shards) for bound in ("min", "max")}
    return {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        "hoodie.write.lock.filesystem.path": f"{base_uri.rstrip('/')}/{LOCK_FOLDER}",
        "hoodie.write.lock.filesystem.expire": "0",
        "hoodie.write.lock.client.num_retries": "600",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
        "hoodie.metadata.enable": "true",
        f"{_INDEX[kind]}.enable": "true",
        **(counts if shards else {}),
        **_TAGGING[kind],
        **(kept_stats_options(stats) if stats else {f"{_STATS}.enable": "false"}),
        "hoodie.metadata.index.partition.stats.enable": "false",
        **({} if archive_max is None else _without_services(archive_max)),
        **(_KEEP_SCHEMA if schema is not None and any(_has_millis(field.type) for field in schema) else {}),
    }


def kept_stats_options(columns: Sequence[str]) -> dict[str, str]:
    """The options with which a writer goes on with the column stats of `columns` that a table has.

    Switching column stats on would switch partition stats on, too, whatever else the options say: Hudi 1.2.0
    asks for the one where it means the other (`HoodieMetadataConfig.isPartitionStatsIndexEnabled`). So they
    are off. A writer deletes what its options switch off unless the second option forbids that, and adds to
    what it does not delete.
    """
    return {
        f"{_STATS}.enable": "false",
        "hoodie.metadata.auto.delete.partitions": "false",
        f"{_STATS}.column.list": ",".join(columns),
    }


def _has_millis(kind: pa.DataType) -> bool:
    """Also within arrays, maps and records."""
    if pa.types.is_timestamp(kind):
        return bool(kind.unit == "ms")
    return any(_has_millis(kind.field(number).type) for number in range(kind.num_fields))


def _without_services(archive_max: int) -> dict[str, str]:
    return {
        "hoodie.metadata.compact.max.delta.commits": "1000000",
        "hoodie.compact.inline": "false",
        "hoodie.clean.automatic": "false",
        "hoodie.archive.automatic": "false",
        "hoodie.keep.min.commits": str(archive_max),
        "hoodie.keep.max.commits": str(2 * archive_max),
    }


def procedure_options(
    shards: int = 0, archive_max: int | None = None, kind: IndexKind = IndexKind.GLOBAL
) -> str:
    """The text for `options => '…'` of Hudi's procedures (`CALL run_clustering` and others): the options of
    `foreign_writer_options` about the metadata table, as `key=value` joined by commas. With them a procedure
    keeps the record index and its number of shards. Column stats it deletes: these options are parted by
    commas, as the columns in a list are.
    """
    options = foreign_writer_options("", shards, archive_max, kind=kind)
    return ",".join(f"{key}={value}" for key, value in options.items() if key.startswith("hoodie.metadata."))
