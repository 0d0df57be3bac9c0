"""Column stats of an epoch: ranges of each data file from the rows that a task writes into it, and the log
files of the metadata table that get them.

A base file has ranges of all its rows, a log file those of the rows in its data block: of a log file of
deletes alone they say that it has no values, and readers need not look at it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemark.hudi_format.column_ranges import column_ranges
from tidemark.hudi_format.metadata_table.partitions.column_stats import (
    COLUMN_STATS,
    StatsChanges,
    file_records,
)
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.port import Attempt
from tidemark.stream_writer.epoch_tasks import StatsTask
from tidemark.stream_writer.publishing import prepare_file
from tidemark.stream_writer.task_outcome import TaskSucceeded


class FileStats:
    """The records of the files that a task writes: some hundred bytes for each column and file, because
    long bounds are cut. None where the table keeps no column stats.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self.records: dict[str, bytes] = {}
        self.files_without = 0

    def add(self, partition_path: str, file_name: str, rows: pa.Table) -> None:
        """Adds the records of one file. `rows`: all rows in it, with their meta columns, or none of them."""
        if not self._columns:
            return
        ranges = column_ranges(rows, self._columns)
        self.files_without += not ranges
        self.records.update(file_records(partition_path, file_name, ranges))


def write_stats_group(task: StatsTask, attempt: Attempt) -> TaskSucceeded:
    """Makes the log file of one file group and has it prepared. Raises FencedOutError, CorruptFileError if an
    earlier run made another one visible.
    """
    changes, group = StatsChanges(task.records), ShardId(task.group)
    log, data = COLUMN_STATS.log_file(changes, task.instant, group)
    ticket = prepare_file(attempt, log.path, data)
    return TaskSucceeded(metadata_logs=(log.prepared(ticket),))
