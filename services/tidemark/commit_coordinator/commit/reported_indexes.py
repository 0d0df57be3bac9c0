"""Checks that a report has the changes of all indexes that the plan asks for.

Readers leave out a file that lacks the record of one column and has another column's, so its rows would be
lost; a file that has none is only read more often. Rows without an entry in a secondary index are lost to
queries by its column. A writer that does not know an index, or left out some of it, is refused.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.errors import EntriesLeftOutError, StatsLeftOutError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedLayout, initial_logs
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    parse_record_index_file_id,
)

_REMEDY = "run the same Tidemark version everywhere"


def check_reported_indexes(planned: EpochPlanned, report: Report) -> None:
    """Raises StatsLeftOutError for a report that lacks column stats, EntriesLeftOutError for one that lacks
    entries of a secondary index, or has those of a record index of the other kind.
    """
    _check_stats(planned, report)
    _check_secondary(planned, report)
    _check_partitioned(planned, report)


def _check_stats(planned: EpochPlanned, report: Report) -> None:
    """There is a record for each of the plan's columns in each file, but for those that the report says have
    none; in as many groups at most as the plan has.
    """
    stats, logs = planned.column_stats, report.logs_of(COLUMN_STATS.name)
    columns, groups = (0, 0) if stats is None else (len(stats.columns), stats.groups)
    files = len(report.data) - report.files_without_stats
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


def _check_partitioned(planned: EpochPlanned, report: Report) -> None:
    """Entries are in groups of a record index of the planned kind. A data partition that the epoch begins has
    as many groups as planned, each with its first file, and no file that is visible already.
    """
    is_partitioned = planned.partitioned is not None
    present = [parse_record_index_file_id(log.file_id) for log in report.logs_of(RECORD_INDEX.name)]
    begun = [parse_record_index_file_id(file.log.file_id) for file in report.begun]
    if any((group.partition_path is not None) is not is_partitioned for group in (*present, *begun)):
        raise EntriesLeftOutError(
            f"the report of epoch {planned.epoch} has entries of a record index of the other kind; the "
            f"table's is {'partitioned' if is_partitioned else 'global'}: {_REMEDY}"
        )
    if planned.partitioned is None:
        return
    paths = sorted({str(group.partition_path) for group in begun})
    wanted = PartitionedLayout({}).begun(paths, planned.partitioned.begun).groups()
    firsts = {log.name for log, _ in initial_logs(wanted, planned.instant or "")}
    made = {(group.partition_path, group.shard) for group in begun}
    is_both = {group.partition_path for group in present} & set(paths)
    if made != set(wanted) or not firsts <= {file.log.name for file in report.begun} or is_both:
        raise EntriesLeftOutError(
            f"the report of epoch {planned.epoch} begins the partitions {paths}; all "
            f"{planned.partitioned.begun} file groups of each were asked for, with their first files: "
            f"{_REMEDY}"
        )
