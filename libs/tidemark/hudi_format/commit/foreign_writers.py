"""What every other writer of the table has to be told, so that it shares lock and record index with us."""

from __future__ import annotations

from typing import Final

from tidemark.hudi_format.publication.table_lock import LOCK_FOLDER

LOCK_PROVIDER: Final = "org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
_INDEX: Final = "hoodie.metadata.global.record.level.index"


def foreign_writer_options(base_uri: str, shards: int = 0) -> dict[str, str]:
    """The options that every other writer of the table needs to share lock and record index with Tidemark.

    `base_uri` is the table's location as that writer sees it, `shards` the number of its record index's (0:
    leave it to Hudi). Optimistic concurrency control makes it take
    locks at all, lazy cleaning keeps it from rolling back instants that have a heartbeat. The retries (a
    minute) outlast an epoch of ours that holds the lock from plan to commit; tries 100 ms apart meet the
    moments at which we leave the lock to others (`FREE_MS`).

    Hudi's default for the record index is off, and a writer *deletes* what is off in its options. Its other
    kinds of index do not look into log files; without the partition path option it leaves rows in their old
    partition. A restore may build the index anew; without both counts Hudi chooses the number of shards (10
    for a small table).
    """
    counts = {f"{_INDEX}.{bound}.filegroup.count": str(shards) for bound in ("min", "max")}
    return {
        "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
        "hoodie.clean.failed.writes.policy": "LAZY",
        "hoodie.write.lock.provider": LOCK_PROVIDER,
        "hoodie.write.lock.filesystem.path": f"{base_uri.rstrip('/')}/{LOCK_FOLDER}",
        "hoodie.write.lock.filesystem.expire": "0",
        "hoodie.write.lock.client.num_retries": "600",
        "hoodie.write.lock.client.wait_time_ms_between_retry": "100",
        "hoodie.metadata.enable": "true",
        f"{_INDEX}.enable": "true",
        **(counts if shards else {}),
        "hoodie.index.type": "GLOBAL_RECORD_LEVEL_INDEX",
        "hoodie.record.index.update.partition.path": "true",
        "hoodie.metadata.index.column.stats.enable": "false",
        "hoodie.metadata.index.partition.stats.enable": "false",
    }


def procedure_options(shards: int = 0) -> str:
    """What Hudi's procedures (`CALL run_clustering` and others) need in `options => '…'` to keep the record
    index with its number of shards: those of `foreign_writer_options` that are about the metadata table.
    """
    options = foreign_writer_options("", shards)
    return ",".join(f"{key}={value}" for key, value in options.items() if key.startswith("hoodie.metadata."))
