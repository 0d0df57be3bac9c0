"""Entries of a partitioned record index: what tasks leave of their lanes, and which files come of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pyarrow as pa

from testing.clock import ManualClock
from testing.memory_storage import InMemoryStorage
from tests.unit.stream_writer.test_stats_job import FACTS
from tidemark.commit.v1 import commit_pb2
from tidemark.epoch_protocol.batches import INDEX_COLUMNS, IndexOp
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import FileContent, Storage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.ledger_client.named_batches import NamedBatch
from tidemark.stream_writer.epoch_tasks import (
    EpochTask,
    PartitionsTask,
    decode_task,
    index_tasks,
    task_planner,
)
from tidemark.stream_writer.partition_task import packed_partitions, write_partitions
from tidemark.stream_writer.task_outcome import TaskSucceeded

INSTANT = "20260101000000000"
Change = tuple[str, str, str | None]
"""(partition path, key, file id); None: deleted"""
UNCHANGED = "unchanged"


def of_lane(*changes: Change) -> TaskSucceeded:
    """What a task leaves of a lane with these rows."""
    ops = {None: IndexOp.DELETE, UNCHANGED: IndexOp.UNCHANGED}
    records = [
        {
            "_tm_key": key,
            "_tm_shard": 0,
            "_tm_partition": path,
            "_tm_file_id": file_id or "gone",
            "_tm_exact": True,
            "_tm_op": int(ops.get(file_id, IndexOp.UPSERT)),
        }
        for path, key, file_id in changes
    ]
    [batch] = pa.Table.from_pylist(records, schema=INDEX_COLUMNS).combine_chunks().to_batches()
    return TaskSucceeded(partition_entries=packed_partitions([NamedBatch(0, 0, 0, batch)]))


def begun(lanes: int = 2) -> commit_pb2.BeginResponse:
    one = commit_pb2.BatchRange(nonce="n", first=0, last=0, batches=1, records=1, checksum=1)
    return commit_pb2.BeginResponse(
        instant=INSTANT,
        staging_dir="token",
        index=[commit_pb2.PartitionRanges(partition=lane, ranges=[one]) for lane in range(lanes)],
        partitioned=commit_pb2.KeptPartitioned(begun=3),
    )


def tasks_of(*outcomes: TaskSucceeded) -> list[PartitionsTask]:
    first = task_planner(FACTS)(begun(), 2)
    tasks = [decode_task(task) for task in index_tasks(begun(), first, outcomes)]
    return [task for task in tasks if isinstance(task, PartitionsTask)]


@dataclass
class Attempt:
    """Prepares nothing that is not asked for: `made` has it."""

    storage: Storage
    made: list[str]

    def prepare(self, path: str, data: FileContent) -> Ticket:
        self.made.append(path)
        self.storage.create(path, data)
        return Ticket(path, len(data))

    def put_pending(self, path: str, data: FileContent) -> None:
        raise AssertionError(path)


def new_table() -> Attempt:
    storage = InMemoryStorage()
    create_table(
        storage,
        TableDefinition(
            name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",), partition_fields=("day",)
        ),
    )
    times = InstantGenerator(ManualClock(1_750_000_000_000))
    bootstrap_metadata_table(storage, 0, times, kind=IndexKind.PARTITIONED)
    return Attempt(storage, [])


def test_tasks_are_told_that_the_index_is_partitioned() -> None:
    tasks = [decode_task(task) for task in task_planner(FACTS)(begun(), 2)]
    assert [isinstance(task, EpochTask) and task.is_partitioned for task in tasks] == [True, True]


def test_of_a_partition_and_key_the_last_change_stays_and_other_partitions_are_other_rows() -> None:
    lane = of_lane(
        ("eu", "a", "f1"), ("us", "a", "f9"), ("eu", "a", None), ("eu", "b", "f1"), ("eu", "c", UNCHANGED)
    )
    assert [(entries.path, entries.count) for entries in lane.partition_entries] == [("eu", 2), ("us", 1)]
    assert lane.records_kept == 3
    nothing = of_lane(("eu", "c", UNCHANGED))
    assert nothing.partition_entries == ()
    assert tasks_of(nothing) == []


def test_partitions_are_shared_among_as_many_tasks_as_the_job_had() -> None:
    lanes = [of_lane(("eu", "a", "f1"), ("us", "a", "f2")), of_lane(("eu", "b", "f1"), ("asia", "a", "f3"))]
    tasks = tasks_of(*lanes)
    assert [[changed.path for changed in task.partitions] for task in tasks] == [["eu", "us"], ["asia"]]
    assert len(tasks[0].partitions[0].parts) == 2
    assert {task.begun for task in tasks} == {3}


def test_keys_of_all_lanes_are_divided_among_the_groups_of_their_partition() -> None:
    keys = [f"k{number}" for number in range(40)]
    lanes = [of_lane(*(("a_b", key, "f1") for key in keys[start::2])) for start in (0, 1)]
    table = new_table()
    [task] = tasks_of(*lanes)
    made = write_partitions(task, table)
    assert (made.metadata_logs, table.made) == ((), []), "nobody sees a file of groups that are begun"
    shards = record_index_shard(keys, 3).tolist()
    expected = [
        *((f".record-index-a%5Fb-000{shard}-0_{INSTANT}.log.1_0-0-0", 0, 0) for shard in range(3)),
        *(
            (f".record-index-a%5Fb-000{shard}-0_{INSTANT}.log.1_{shard}-0-1", shards.count(shard), 0)
            for shard in range(3)
        ),
    ]
    assert [(file.log.name, file.log.upserts, file.log.deletes) for file in made.begun] == expected
    assert {len(file.content) for file in made.begun[:3]} == {80}
    again = write_partitions(msgspec.structs.replace(task, token="other"), table)
    assert again.begun == made.begun, "each run makes the same bytes"
