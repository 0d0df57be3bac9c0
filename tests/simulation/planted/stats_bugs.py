"""Bugs in keeping column stats that only a whole world shows. Those in the ranges of one epoch are in
`tests/simulation/test_simpler_column_stats.py`.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.planted.mutant import Ground, planted
from tidemark.commit_coordinator.calls import attempt_handoff
from tidemark.commit_coordinator.commit import attempt_effects, commit_effects
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    column_stats_definition,
    read_index_definitions,
)
from tidemark.hudi_format.metadata_table import own_stats
from tidemark.stream_writer import epoch_tasks
from tidemark.stream_writer import service as writer_service


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
    ground.replace(commit_effects, "refuse_other_indexes", lambda *args: None)


def _do_not_compare_definitions(ground: Ground) -> None:
    """Whoever asks whether the stats are ours finds the columns that they were made of."""

    def as_made(storage: Any) -> dict[str, Any]:
        own = own_stats.own_stats_columns(storage)
        made_of = {} if own is None else {COLUMN_STATS: column_stats_definition(own)}
        return {**read_index_definitions(storage), **made_of}

    ground.replace(own_stats, "read_index_definitions", as_made)
