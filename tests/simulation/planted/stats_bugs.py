"""Bugs in keeping column stats that only a whole world shows. Those in the ranges of one epoch are in
`tests/simulation/test_simpler_column_stats.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from tests.simulation.planted.mutant import Ground, planted
from tidemark.commit_coordinator.calls import attempt_handoff
from tidemark.commit_coordinator.commit import attempt_effects, commit_effects
from tidemark.commit_coordinator.table_services import cleans
from tidemark.commit_coordinator.table_services.cleans import CleanData
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    STATS_META_COLUMNS,
    column_stats_definition,
    read_index_definitions,
    stats_columns,
)
from tidemark.hudi_format.metadata_table import own_stats
from tidemark.hudi_format.metadata_table.index_life import folder_properties
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.records import cleaned_stats
from tidemark.stream_writer import epoch_tasks
from tidemark.stream_writer import service as writer_service
from tidemark.stream_writer.table_services import merges


@planted("G5")
def stats_of_the_first_attempt_alone(ground: Ground) -> None:
    """4, Write: each attempt writes the column stats of its own files, whose names have its instant. Here the
    second job is left out where an earlier attempt ran it, and a report without its log files is taken: the
    files of the epoch have no records, and nobody tells.
    """
    real = epoch_tasks.index_tasks

    def index_tasks(begun: Any, *args: Any) -> list[bytes]:
        return real(begun, *args) if begun.attempt == 1 else []

    ground.replace(writer_service, "index_tasks", index_tasks)
    ground.replace(attempt_handoff, "check_reported_indexes", lambda *args: None)


@planted("G5")
def stats_of_some_columns_stay(ground: Ground) -> None:
    """4, Plan: column stats of which another writer's commit has some columns alone are taken out. Here
    nobody looks at its records: readers leave its files out of filters on the other columns.
    """
    for module in (attempt_effects, commit_effects):
        ground.replace(module, "leave_stats_of_others", lambda *args: False)


@planted("G5")
def stats_of_more_columns_stay(ground: Ground) -> None:
    """docs/adr/0017-column-stats.md: column stats whose definition another writer changed are taken out. Here
    epochs go on with the columns that it added: readers leave the files of before out of filters on these.
    """
    _do_not_compare_definitions(ground)


@planted("G5")
def stats_of_the_plan_are_enough(ground: Ground) -> None:
    """The same: the decision compares the stats with those of the plan. Here it does not, so files that were
    written before another writer added a column have no record of it.
    """
    _do_not_compare_definitions(ground)
    ground.replace(commit_effects, "refuse_other_indexes", lambda *args, **named: None)


def _do_not_compare_definitions(ground: Ground) -> None:
    """Whoever asks whether the stats are ours finds the columns that they were made of."""

    def as_made(storage: Any) -> dict[str, Any]:
        own = own_stats.own_stats_columns(storage)
        made_of = {} if own is None else {COLUMN_STATS: column_stats_definition(own)}
        return {**read_index_definitions(storage), **made_of}

    ground.replace(own_stats, "read_index_definitions", as_made)


@planted("G5")
def stats_that_another_writer_builds_anew_stay(ground: Ground) -> None:
    """The same: stats are ours where their folder says so, and a folder that another writer makes does not.
    Here whatever the table lists is taken for ours, though the records of the files before came from footers.
    """

    def as_ours(storage: Any, name: str) -> dict[str, str]:
        columns = stats_columns(read_index_definitions(storage))
        own = [column for column in columns if column not in STATS_META_COLUMNS]
        return {**folder_properties(storage, name), own_stats._COLUMNS: ",".join(own)}

    ground.replace(own_stats, "folder_properties", as_ours)


@planted("G5")
def merge_of_stats_without_the_newest_log(ground: Ground) -> None:
    """4, Table services: a compaction of the metadata table merges all log files of its slice, and those that
    come later lie above its base file. Here one of the column stats leaves the newest log file out: the files
    of its commit have no records any more.
    """

    def without_newest(storage: Any, operation: Any, *more: Any) -> Any:
        if operation.partition == COLUMN_STATS:
            operation = msgspec.structs.replace(operation, log_files=operation.log_files[:-1])
        return merge_index_shard(storage, operation, *more)

    ground.replace(merges, "merge_index_shard", without_newest)


@planted("G5")
def clean_deletes_the_stats_of_the_whole_file_group(ground: Ground) -> None:
    """4, Table services: a clean deletes the records of the files that it deletes. Here it deletes those of
    all files of their file groups, also of the ones that readers read.
    """
    real, storages = CleanData._commit_metadata, list[Any]()

    def commit_metadata(self: CleanData, step: Any, *more: Any) -> None:
        storages[:] = [step.context.storage]
        real(self, step, *more)

    def stats_of_groups(plan: Any) -> Any:
        storage = storages[0]
        files = {path: _of_groups(storage, path, names) for path, names in plan.files.items()}
        return cleaned_stats(msgspec.structs.replace(plan, files=files))

    ground.replace(CleanData, "_commit_metadata", commit_metadata)
    ground.replace(cleans, "cleaned_stats", stats_of_groups)


def _of_groups(storage: Any, partition: str, names: Iterable[str]) -> tuple[str, ...]:
    """All files of the file groups of these."""
    groups = {name.removeprefix(".").partition("_")[0] for name in names}
    there = [name for name in storage.names(partition) if not name.startswith(".hoodie")]
    return tuple(name for name in there if name.removeprefix(".").partition("_")[0] in groups)
