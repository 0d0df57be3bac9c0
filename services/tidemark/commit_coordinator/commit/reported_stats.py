"""Checks that a report has the column stats that the plan asks for.

Readers leave out a file that lacks the record of one column and has another column's, so its rows would be
lost; a file that has none is only read more often. A writer that knows no column stats, or left out a file or
a column, is refused.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.errors import StatsLeftOutError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS


def check_reported_stats(planned: EpochPlanned, report: Report) -> None:
    """Raises StatsLeftOutError unless there is a record for each of the plan's columns in each file with
    rows, but for those that the report says have none; in as many groups at most as the plan has.
    """
    stats, logs = planned.column_stats, report.logs_of(COLUMN_STATS.name)
    columns, groups = (0, 0) if stats is None else (len(stats.columns), stats.groups)
    files = sum(1 for stat in report.data if stat.num_writes) - report.files_without_stats
    records = sum(log.upserts for log in logs)
    if records != columns * files or any(log.shard >= groups for log in logs):
        raise StatsLeftOutError(
            f"the report of epoch {planned.epoch} has {records} records of column stats in the groups "
            f"{sorted(log.shard for log in logs)}; {columns} columns of {files} files in {groups} groups "
            "were asked for: run the same Tidemark version everywhere"
        )
