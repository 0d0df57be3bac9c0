"""Divides the work of an epoch into Spark tasks.

Data partitions and index partitions are spread over the tasks by their record counts. There are at most two
tasks for each of Spark's slots, so that a slot that is done early takes another one; for a small epoch there
is one, because starting a task costs more than an uneven spread. A topic-partition always goes to one task as
a whole. All rows of a file group are in one data partition, so no two tasks write the same file.

Where the table keeps column stats or secondary indexes, tasks for them follow, one for each file group of
those partitions of the metadata table that gets records. They begin when all tasks of the epoch's job
succeeded: a log file there has the records of all files of the epoch that belong to its group. The driver's
process works them off, for which it needs less time than Spark for an empty job, or a second job where there
are very many records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from tidemark.commit.v1 import commit_pb2
from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.epoch_protocol.kept_indexes import KeptSecondary
from tidemark.hudi_format.metadata_table.partitions.column_stats import StatsChanges
from tidemark.hudi_format.table_config import MergeMode, TableConfig
from tidemark.ledger_client.named_batches import NamedRange
from tidemark.stream_writer.task_outcome import TaskSucceeded

PlanTasks = Callable[[commit_pb2.BeginResponse, int], list[bytes]]
"""Divides an epoch into Spark tasks: it is given the epoch's ranges, and how many tasks run at once, and
returns the bytes of each task.
"""

RUNNER: Final = "tidemark.stream_writer.tasks:run_task"
_TASKS_PER_SLOT: Final = 2
_SMALL_TASK_RECORDS: Final = 20_000


class TableFacts(msgspec.Struct, frozen=True):
    """Facts about the table that do not change while a writer runs. ``kafka`` is the section `kafka:` with
    the addresses of real brokers. ``secondary_disk``: bytes of rows that the worker processes of an
    executor keep for secondary indexes.
    """

    base_uri: str
    name: str
    merge_on_read: bool
    merge_mode: MergeMode
    ordering_field: str | None
    kafka: dict[str, str]
    data_topic: str
    index_topic: str
    timezone: str
    secondary_disk: int = 0


class PartitionWork(msgspec.Struct, frozen=True):
    """One topic-partition, and the ranges of it that the epoch covers."""

    topic: Topic
    partition: int
    ranges: list[NamedRange]

    @property
    def records(self) -> int:
        """How many rows the ranges have."""
        return sum(named.produced.records for named in self.ranges)


class EpochTask(msgspec.Struct, frozen=True, tag="epoch"):
    """One Spark task. ``staging_dir`` is the token of the attempt: once the attempt is closed, no file can be
    made with it. ``stats_columns``: of which columns the table keeps stats, none without any. ``secondary``:
    the secondary indexes that it keeps. ``is_partitioned``: whether its record index is divided by data
    partition.
    """

    table: TableFacts
    epoch: int
    attempt: int
    instant: str
    as_of: str
    schema: str
    staging_dir: str
    num_shards: int
    work: list[PartitionWork]
    stats_columns: list[str] = []
    secondary: list[KeptSecondary] = []
    is_partitioned: bool = False


class StatsTask(msgspec.Struct, frozen=True, tag="stats"):
    """A task that writes the log file of one file group of the column stats; ``records``: key -> value of all
    records that the epoch has for it. ``token``: as ``staging_dir``.
    """

    base_uri: str
    instant: str
    token: str
    group: int
    records: dict[str, bytes]


class SecondaryTask(msgspec.Struct, frozen=True, tag="secondary"):
    """A task that writes the log file of one file group of a secondary index; ``parts``: the entries that the
    tasks of the epoch's job have for it (`secondary_task`). ``token``: as ``staging_dir``.
    """

    base_uri: str
    instant: str
    token: str
    index: str
    group: int
    parts: list[bytes]


class ChangedPartition(msgspec.Struct, frozen=True):
    """A data partition whose entries change in a partitioned record index; ``parts``: the entries that the
    tasks of the epoch's job have for it (`partition_task`).
    """

    path: str
    parts: list[bytes]


class PartitionsTask(msgspec.Struct, frozen=True, tag="partitions"):
    """A task that writes the log files of some data partitions in a partitioned record index. ``begun``: how
    many file groups a partition gets that has none. ``token``: as ``staging_dir``.
    """

    base_uri: str
    instant: str
    token: str
    begun: int
    partitions: list[ChangedPartition]


IndexTask: TypeAlias = StatsTask | SecondaryTask | PartitionsTask
"""A task that writes log files of an index from what all tasks of the epoch's job found."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(EpochTask | IndexTask)


def decode_task(data: bytes) -> EpochTask | IndexTask:
    """Decodes a task. Raises msgspec.ValidationError for bytes that are not a task of this version."""
    task: EpochTask | IndexTask = _decoder.decode(data)
    return task


def table_facts(
    config: TableConfig,
    base_uri: str,
    kafka: Mapping[str, str],
    data_topic: str,
    index_topic: str,
    secondary_disk: int = 0,
) -> TableFacts:
    """The facts of the table, from its own properties (`hoodie.properties`) and not from the configuration
    file.
    """
    return TableFacts(
        base_uri=base_uri,
        name=config.name,
        merge_on_read=config.is_merge_on_read,
        merge_mode=config.merge_mode,
        ordering_field=config.ordering_field,
        kafka=dict(kafka),
        data_topic=data_topic,
        index_topic=index_topic,
        timezone=config.timeline_timezone,
        secondary_disk=secondary_disk,
    )


def task_planner(table: TableFacts) -> PlanTasks:
    """A `PlanTasks` for the table."""

    def plan(begun: commit_pb2.BeginResponse, slots: int) -> list[bytes]:
        work = [*_work(Topic.DATA, begun.data), *_work(Topic.INDEX, begun.index)]
        return [
            _encoder.encode(
                EpochTask(
                    table=table,
                    epoch=begun.epoch,
                    attempt=begun.attempt,
                    instant=begun.instant,
                    as_of=begun.as_of,
                    schema=begun.schema_avro,
                    staging_dir=begun.staging_dir,
                    num_shards=begun.num_shards,
                    work=share,
                    stats_columns=list(begun.column_stats.columns),
                    secondary=[
                        KeptSecondary(index.name, index.column, index.groups) for index in begun.secondary
                    ],
                    is_partitioned=begun.HasField("partitioned"),
                )
            )
            for share in spread(work, task_count(work, slots))
        ]

    return plan


def index_tasks(
    begun: commit_pb2.BeginResponse, first: Sequence[bytes], outcomes: Sequence[TaskSucceeded]
) -> list[bytes]:
    """The tasks of column stats, secondary indexes and a partitioned record index. ``first``: those of the
    job, ``outcomes``: what came of all of them.

    Records and their groups follow from the epoch's rows and the table's slices alone, so each run of the
    writer writes the same.
    """
    records = {key: value for outcome in outcomes for key, value in outcome.stats.items()}
    parts, partitions = entries_by_group(outcomes), entries_by_partition(outcomes)
    if not records and not parts and not partitions:
        return []
    task = decode_task(first[0])
    assert isinstance(task, EpochTask)
    uri, token = task.table.base_uri, task.staging_dir
    by_group = StatsChanges(records).by_group(begun.column_stats.groups) if records else {}
    tasks: list[IndexTask] = [
        StatsTask(uri, task.instant, token, group, dict(changes.records))
        for group, changes in by_group.items()
    ]
    tasks += [
        SecondaryTask(uri, task.instant, token, index, group, parts[index, group])
        for index, group in sorted(parts)
    ]
    tasks += [
        PartitionsTask(uri, task.instant, token, begun.partitioned.begun, share)
        for share in _shares(partitions, len(first))
    ]
    return [_encoder.encode(later) for later in tasks]


def entries_by_group(outcomes: Iterable[TaskSucceeded]) -> dict[tuple[str, int], list[bytes]]:
    """(secondary index, file group) -> the entries that tasks have for it."""
    parts: dict[tuple[str, int], list[bytes]] = {}
    for outcome in outcomes:
        for entries in outcome.entries:
            parts.setdefault((entries.index, entries.group), []).append(entries.changes)
    return parts


def entries_by_partition(outcomes: Iterable[TaskSucceeded]) -> list[ChangedPartition]:
    """The data partitions of a partitioned record index that change, from the largest to the smallest."""
    parts: dict[str, list[bytes]] = {}
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        for entries in outcome.partition_entries:
            parts.setdefault(entries.path, []).append(entries.changes)
            counts[entries.path] += entries.count
    largest_first = sorted(parts, key=lambda path: (-counts[path], path))
    return [ChangedPartition(path, parts[path]) for path in largest_first]


def _shares(partitions: Sequence[ChangedPartition], shares_max: int) -> list[list[ChangedPartition]]:
    """The partitions in at most so many shares, none of them empty."""
    return [list(partitions[start::shares_max]) for start in range(min(shares_max, len(partitions)))]


def touched_groups(outcomes: Sequence[TaskSucceeded]) -> dict[str, int]:
    """Of each secondary index that the tasks of the epoch's job were told of, how many groups got entries."""
    touched = Counter(index for index, _ in entries_by_group(outcomes))
    return {index: touched[index] for outcome in outcomes for index in outcome.secondary_groups}


def task_count(work: Sequence[PartitionWork], slots: int) -> int:
    """The greatest number of tasks that share the work."""
    is_small = sum(partition.records for partition in work) <= _SMALL_TASK_RECORDS * slots
    return slots if is_small else _TASKS_PER_SLOT * slots


def spread(work: Iterable[PartitionWork], shares_max: int) -> list[list[PartitionWork]]:
    """At most ``shares_max`` shares with about equal record counts, none of them empty.

    The partitions are taken from the largest to the smallest, and each goes to the share that has the fewest
    records so far. Example: 5, 4, 3, 2 in two shares gives [5, 2] and [4, 3].
    """
    ordered = sorted(work, key=lambda partition: partition.records, reverse=True)
    shares: list[list[PartitionWork]] = [[] for _ in range(min(shares_max, len(ordered)))]
    loads = [0] * len(shares)
    for partition in ordered:
        lightest = loads.index(min(loads))
        shares[lightest].append(partition)
        # One more, so that partitions without records are spread, too.
        loads[lightest] += partition.records + 1
    return shares


def _work(topic: Topic, partitions: Iterable[commit_pb2.PartitionRanges]) -> list[PartitionWork]:
    return [
        PartitionWork(
            topic,
            partition.partition,
            [
                NamedRange(
                    nonce=named.nonce,
                    order=named.order,
                    produced=Produced(
                        topic=topic,
                        partition=partition.partition,
                        first=named.first,
                        last=named.last,
                        batches=named.batches,
                        records=named.records,
                        checksum=named.checksum,
                    ),
                )
                for named in partition.ranges
            ],
        )
        for partition in partitions
    ]
