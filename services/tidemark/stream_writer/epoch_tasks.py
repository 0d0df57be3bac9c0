"""Divides the work of an epoch into Spark tasks.

Data partitions and index partitions are spread over the tasks by their record counts. There are at most two
tasks for each of Spark's slots, so that a slot that is done early takes another one; for a small epoch there
is one, because starting a task costs more than an uneven spread. A topic-partition always goes to one task as
a whole. All rows of a file group are in one data partition, so no two tasks write the same file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tidemark.commit.v1 import commit_pb2
from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.hudi_format.table_config import MergeMode, TableConfig
from tidemark.ledger_client.named_batches import NamedRange

if TYPE_CHECKING:
    # Spark's workers import this module, and `service` imports gRPC, which they do not need.
    from tidemark.stream_writer.service import PlanTasks

RUNNER: Final = "tidemark.stream_writer.tasks:run_task"
_TASKS_PER_SLOT: Final = 2
_SMALL_TASK_RECORDS: Final = 20_000


class TableFacts(msgspec.Struct, frozen=True):
    """Facts about the table that do not change while a writer runs. ``kafka`` is the section `kafka:` with
    the addresses of real brokers.
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


class PartitionWork(msgspec.Struct, frozen=True):
    """One topic-partition, and the ranges of it that the epoch covers."""

    topic: Topic
    partition: int
    ranges: list[NamedRange]

    @property
    def records(self) -> int:
        """How many rows the ranges have."""
        return sum(named.produced.records for named in self.ranges)


class EpochTask(msgspec.Struct, frozen=True):
    """One Spark task. ``staging_dir`` is the token of the attempt: once the attempt is closed, no file can be
    made with it.
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


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(EpochTask)


def decode_task(data: bytes) -> EpochTask:
    """Decodes a task. Raises msgspec.ValidationError for bytes that are not a task of this version."""
    task: EpochTask = _decoder.decode(data)
    return task


def table_facts(
    config: TableConfig, base_uri: str, kafka: Mapping[str, str], data_topic: str, index_topic: str
) -> TableFacts:
    """The facts of the table, from its own properties (`hoodie.properties`) and not from the configuration
    file.
    """
    return TableFacts(
        base_uri=base_uri,
        name=config.name,
        merge_on_read=config.is_merge_on_read,
        merge_mode=config.merge_mode,
        ordering_field=config.ordering_fields[0] if config.ordering_fields else None,
        kafka=dict(kafka),
        data_topic=data_topic,
        index_topic=index_topic,
        timezone=config.timeline_timezone,
    )


def task_planner(table: TableFacts) -> PlanTasks:
    """A `PlanTasks` (`service`) for the table."""

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
                )
            )
            for share in spread(work, task_count(work, slots))
        ]

    return plan


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
