"""Checks that a report has the changes of all indexes that the plan asks for.

Readers leave out a file that lacks the record of one column and has another column's, so its rows would be
lost; a file that has none is only read more often. Rows without an entry in a secondary index are lost to
queries by its column. A writer that does not know an index, or left out some of it, is refused.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.errors import EntriesLeftOutError, StatsLeftOutError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS

_REMEDY = "run the same Tidemark version everywhere"


def check_reported_indexes(planned: EpochPlanned, report: Report) -> None:
    """Raises StatsLeftOutError for a report that lacks column stats, EntriesLeftOutError for one that lacks
    entries of a secondary index.
    """
    _check_stats(planned, report)
    _check_secondary(planned, report)


def _check_stats(planned: EpochPlanned, report: Report) -> None:
    """There is a record for each of the plan's columns in each file with rows, but for those that the report
    says have none; in as many groups at most as the plan has.
    """
    stats, logs = planned.column_stats, report.logs_of(COLUMN_STATS.name)
    columns, groups = (0, 0) if stats is None else (len(stats.columns), stats.groups)
    files = sum(1 for stat in report.data if stat.num_writes) - report.files_without_stats
    records = sum(log.upserts for log in logs)
    if records != columns * files or any(log.shard >= groups for log in logs):
        raise StatsLeftOutError(
            f"the report of epoch {planned.epoch} has {records} records of column stats in the groups "
            f"{sorted(log.shard for log in logs)}; {columns} columns of {files} files in {groups} groups "
            f"were asked for: {_REMEDY}"
        )


def _check_secondary(planned: EpochPlanned, report: Report) -> None:
    """The writer was told of each secondary index of the plan, and made as many log files as it had groups
    with entries.
    """
    asked = {index.name: index.groups for index in planned.secondary}
    if report.secondary_groups.keys() != asked.keys():
        raise EntriesLeftOutError(
            f"the report of epoch {planned.epoch} is of the secondary indexes "
            f"{sorted(report.secondary_groups)}; {sorted(asked)} were asked for: {_REMEDY}"
        )
    for name, groups in asked.items():
        written = sorted(log.shard for log in report.logs_of(name))
        touched = report.secondary_groups[name]
        if (
            len(set(written)) != touched
            or len(written) != touched
            or any(group >= groups for group in written)
        ):
            raise EntriesLeftOutError(
                f"the report of epoch {planned.epoch} has log files of {name} in the groups {written}; "
                f"{touched} of {groups} groups have entries: {_REMEDY}"
            )
