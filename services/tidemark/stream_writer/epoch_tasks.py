"""The work of one epoch as Spark tasks: what each has to read, and what it must know to write.

Data partitions and index partitions are spread over tasks by their record counts: at most two per slot, and
one per slot of a small epoch, where starting a task costs more than an uneven spread. A whole topic-partition
always goes to one task: a file group's rows travel through one data partition, so no two tasks ever write the
same file.
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
    # The workers import this module; the service would bring them gRPC.
    from tidemark.stream_writer.service import PlanTasks

RUNNER: Final = "tidemark.stream_writer.tasks:run_task"
_TASKS_PER_SLOT: Final = 2
_SMALL_TASK_RECORDS: Final = 20_000


class TableFacts(msgspec.Struct, frozen=True):
    """What stays the same while a writer runs. ``kafka``: the `kafka:` section with the real servers."""

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
    """One topic-partition and the ranges in it that the epoch covers."""

    topic: Topic
    partition: int
    ranges: list[NamedRange]

    @property
    def records(self) -> int:
        """Rows to read."""
        return sum(named.produced.records for named in self.ranges)


class EpochTask(msgspec.Struct, frozen=True):
    """One Spark task. ``staging_dir`` is the attempt's token: nothing can be made with it once the attempt is
    over.
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
    """Raises msgspec.ValidationError for what is no task of this version."""
    task: EpochTask = _decoder.decode(data)
    return task


def table_facts(
    config: TableConfig, base_uri: str, kafka: Mapping[str, str], data_topic: str, index_topic: str
) -> TableFacts:
    """From the table's own properties, not from the configuration file."""
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
                )
            )
            for share in spread(work, task_count(work, slots))
        ]

    return plan


def task_count(work: Sequence[PartitionWork], slots: int) -> int:
    """How many tasks share the work at most."""
    is_small = sum(each.records for each in work) <= _SMALL_TASK_RECORDS * slots
    return slots if is_small else _TASKS_PER_SLOT * slots


def spread(work: Iterable[PartitionWork], shares_max: int) -> list[list[PartitionWork]]:
    """At most ``shares_max`` shares of about equal record counts, largest first; none empty."""
    ordered = sorted(work, key=lambda each: each.records, reverse=True)
    shares: list[list[PartitionWork]] = [[] for _ in range(min(shares_max, len(ordered)))]
    loads = [0] * len(shares)
    for each in ordered:
        lightest = loads.index(min(loads))
        shares[lightest].append(each)
        loads[lightest] += each.records + 1
    return shares


def _work(topic: Topic, partitions: Iterable[commit_pb2.PartitionRanges]) -> list[PartitionWork]:
    return [
        PartitionWork(
            topic,
            each.partition,
            [
                NamedRange(
                    nonce=named.nonce,
                    order=named.order,
                    produced=Produced(
                        topic=topic,
                        partition=each.partition,
                        first=named.first,
                        last=named.last,
                        batches=named.batches,
                        records=named.records,
                        checksum=named.checksum,
                    ),
                )
                for named in each.ranges
            ],
        )
        for each in partitions
    ]
