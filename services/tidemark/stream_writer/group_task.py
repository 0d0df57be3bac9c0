"""Works off the tasks that follow from all files of an epoch: each writes the log file of one file group of
an index of the metadata table, or those of some data partitions, in a Spark worker or in the driver.
"""

from __future__ import annotations

from tidemark.hudi_format.publication.locate import attempt_of
from tidemark.hudi_format.publication.port import Attempt
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.stream_writer.epoch_tasks import (
    EpochTask,
    IndexTask,
    PartitionsTask,
    StatsTask,
    decode_task,
)
from tidemark.stream_writer.partition_task import write_partitions
from tidemark.stream_writer.secondary_task import write_secondary_group
from tidemark.stream_writer.stats_task import write_stats_group
from tidemark.stream_writer.task_outcome import TaskSucceeded


def write_group(task: IndexTask, attempt: Attempt) -> TaskSucceeded:
    """Makes the log file and has it prepared. Raises FencedOutError, CorruptFileError if an earlier run made
    another one visible.
    """
    if isinstance(task, StatsTask):
        return write_stats_group(task, attempt)
    if isinstance(task, PartitionsTask):
        return write_partitions(task, attempt)
    return write_secondary_group(task, attempt)


def run_group_task(data: bytes) -> TaskSucceeded:
    """Works such a task off in the driver's process, which sees the table's folder. Raises as
    `write_group`.
    """
    task = decode_task(data)
    assert not isinstance(task, EpochTask)
    return write_group(task, attempt_of(open_storage(task.base_uri), task.token))
