"""Refuses a table whose record index was left as it was when another engine restored the rows.

Hudi's `rollback_to_savepoint` deletes the metadata table when the oldest compaction on its active timeline is
newer than the savepoint, or when that timeline begins after the savepoint. It builds the metadata table anew
at once, and takes the commits back afterwards. At the end it brings `files` up to date, and not the record
index, which still has the entries from before the restore.

Example: since the savepoint key a was inserted, b deleted, and c moved from partition x to y. After the
restore a has no row but an entry, b has a row but no entry, and the row of c is in x while its entry says y.
An upsert of b or c doubles the key, also one of Hudi on Spark.

The rule: an index that was built after the newest commit that the restore kept, and before the restore
completed, does not match the rows. That commit may be archived by now (Hudi archives commits before a
restore, and never the restore). An exception is a restore that took nothing back, because the savepoint was
of the newest commit: the index that was built meanwhile is right, unless another restore began and has not
ended. A bootstrap of column stats or of a secondary index says nothing of the record index.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.index_definitions import read_index_definitions
from tidemark.hudi_format.metadata_table.index_life import partition_build
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.model import BOOTSTRAP_INSTANT_PREFIX, is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant, Timeline
from tidemark.hudi_format.timeline.service_records import decode_restored_instants

INDEX_REMEDY = (
    "With Hudi on Spark drop the record index (an upsert of a DataFrame without rows and with "
    "hoodie.metadata.global.record.level.index.enable=false and hoodie.index.type=GLOBAL_SIMPLE), then let "
    "another one with the options of `tidemark table describe` build it anew (docs/hudi-beside.md)"
)


def check_index_is_of_the_rows(storage: Storage, data: Timeline, metadata: Timeline) -> None:
    """Raises UnsupportedTableError where a restore on the active timeline did not restore the index.

    Reads nothing where there is no restore. With one it reads the metadata table's archive; the data table's
    archive, where the active timeline has no commit between the build and the restore; then the restore's
    file. Also raises CorruptFileError, and FileMissingError where that file was deleted meanwhile: list
    again.
    """
    restores = data.completed(Action.RESTORE)
    built = _built(metadata, _builds_of_others(storage)) if restores else ""
    for restore in restores:
        if (
            built
            and built < str(restore.completion)
            and not _is_kept_behind(data, built, restore)
            and not _took_nothing_back(storage, data, restore)
        ):
            raise UnsupportedTableError(
                f"another engine's restore {restore.requested} took commits back that the record index still "
                f"holds: Hudi built it anew (at {built}) before it took them back. Updates through it would "
                "double keys",
                INDEX_REMEDY,
            )


def newest_build(metadata: Timeline) -> str:
    """Completion time of the newest bootstrap of an index on the active timeline, "" when there is none."""
    return _newest_build({instant.requested: str(instant.completion) for instant in metadata.completed()})


def _builds_of_others(storage: Storage) -> frozenset[str]:
    """The instants that built the column stats and the secondary indexes which are there."""
    secondary = [name for name in read_index_definitions(storage) if name.startswith(SECONDARY_PREFIX)]
    return frozenset(partition_build(storage, name) for name in (COLUMN_STATS.name, *secondary))


def _built(metadata: Timeline, of_others: frozenset[str]) -> str:
    """Completion time of the newest bootstrap of the record index on the active or the archived timeline, or
    "". ``of_others``: the instants that bootstrapped other indexes.
    """
    active = {instant.requested: str(instant.completion) for instant in metadata.completed()}
    archived: Mapping[str, str] = {}
    if metadata.archive is not None:
        archived = metadata.archive.completion_times(BOOTSTRAP_INSTANT_PREFIX, BOOTSTRAP_INSTANT_PREFIX + ":")
    builds = {**archived, **active}
    return _newest_build({instant: time for instant, time in builds.items() if instant not in of_others})


def _newest_build(completions: Mapping[str, str]) -> str:
    builds = (time for requested, time in completions.items() if is_bootstrap_instant(requested))
    return max(builds, default="")


def _is_kept_behind(data: Timeline, built: str, restore: Instant) -> bool:
    """Whether the data table still has an instant that completed when the index was built or later, and
    before the restore began: then the index was built before the newest commit that the restore kept.
    """
    if any(built <= str(instant.completion) < restore.requested for instant in data.completed()):
        return True
    archived = data.archive.completed_between(built, restore.requested) if data.archive is not None else []
    return any(built <= time < restore.requested for _, time in archived)


def _took_nothing_back(storage: Storage, data: Timeline, restore: Instant) -> bool:
    if data.pending(Action.RESTORE):
        return False
    path = instant_path(restore)
    return not decode_restored_instants(storage.read(path), path)
