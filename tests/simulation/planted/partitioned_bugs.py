"""Bugs in a record index that is divided by data partition: what begins and hides file groups, in which
lane a row is, and what a delete says.
"""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from tests.simulation.planted.mutant import Ground, planted
from tidemark.commit_coordinator.commit import attempt_effects, commit_metadata
from tidemark.epoch_protocol.batches import KEY, PARTITION
from tidemark.hudi_format.metadata_table import begun_groups, delta_commit, partitioned_index
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedLayout, commit_logs
from tidemark.hudi_format.metadata_table.partitions import files
from tidemark.hudi_format.metadata_table.partitions.files import ALL_PARTITIONS_KEY, FilesRecord
from tidemark.hudi_format.metadata_table.record_schema import RECORD_TYPE_ALL_PARTITIONS
from tidemark.hudi_format.partitioned_lanes import identity_lanes
from tidemark.hudi_format.record_index_hash import java_hash
from tidemark.index_assigner.index import cache_keys, partitioned, units
from tidemark.index_assigner.shuffle import row_identity
from tidemark.index_assigner.shuffle.keyed_rows import RecordKeyer
from tidemark.index_assigner.shuffle.row_identity import RowIdentity
from tidemark.stream_writer import group_task, partition_task
from tidemark.stream_writer.index_task import last_changes
from tidemark.stream_writer.publishing import prepare_file

_BEGUN: Final = 3
"""File groups of a partition, as the bug that needs them counts them."""


@planted("G5")
def begun_files_published_before_the_lock(ground: Ground) -> None:
    """Nobody sees a file of a group that an epoch begins before the lock is held at its commit. Here the task
    makes them like all others: until the epoch is committed Hudi finds no slice of the group, and no other
    engine can write into the partition.
    """
    real = partition_task.write_partitions

    def write_partitions(task: Any, attempt: Any) -> Any:
        made = real(task, attempt)
        for begun in made.begun:
            prepare_file(attempt, begun.log.path, begun.content)
        return made

    ground.replace(group_task, "write_partitions", write_partitions)


@planted("G5")
def begun_files_of_a_void_attempt_stay(ground: Ground) -> None:
    """What an attempt published of groups that it begins goes before the lock is given away. Here it goes
    with the rollback, which comes later: until then another engine cannot write into the partition.
    """
    ground.replace(attempt_effects, "take_back_voided", lambda *_: None)


@planted("G5")
def new_partition_not_listed(ground: Ground) -> None:
    """The commit that begins a partition lists it. Here the list of partitions does not get it: to Hudi the
    partition is new, so it begins groups of its own number over ours, and keys belong to other groups.
    """
    real_publish, real_log = delta_commit.publish_files_log, files._log_of_records

    def log_of_records(values: dict[str, bytes], instant: str) -> bytes:
        nothing = FilesRecord().encode(RECORD_TYPE_ALL_PARTITIONS)
        return real_log({**values, ALL_PARTITIONS_KEY: nothing}, instant)

    def publish_files_log(*args: Any) -> Any:
        with patch.object(files, "_log_of_records", log_of_records):
            return real_publish(*args)

    ground.replace(commit_metadata, "publish_files_log", publish_files_log)


@planted("G1", "G8")
def delete_without_partition_guessed(ground: Ground) -> None:
    """A delete that names no partition is a dead letter. Here it is one of the row that the shuffler saw last
    with this key: another row goes than was meant, or one that lives on where nobody guesses.
    """
    real, seen = RecordKeyer._assemble, dict[str, str]()

    def assemble(self: Any, ours: list[pa.Array], user: list[pa.Array], sound: Any) -> pa.RecordBatch:
        names = self.schema.names
        at_key, at_path = names.index(KEY), names.index(PARTITION)
        keys, paths = ours[at_key].to_pylist(), ours[at_path].to_pylist()
        for number, (key, path) in enumerate(zip(keys, paths, strict=True)):
            if path is None:
                paths[number] = seen.get(key, "d0")
            else:
                seen[key] = path
        guessed = [*ours]
        guessed[at_path] = pa.array(paths, pa.string())
        return real(self, guessed, user, sound)

    ground.replace(RowIdentity, "needs_partition", property(lambda _: False))
    ground.replace(RecordKeyer, "_assemble", assemble)


@planted("G2", "G5")
def late_task_writes_into_later_groups(ground: Ground) -> None:
    """A group that began after the attempt's instant is none to the attempt. Here a late task takes it for
    one that was there: its file has the smaller instant, so it becomes the group's first.
    """
    ground.replace(partition_task, "layout_before", lambda snapshot, _: partitioned_index.layout_of(snapshot))


@planted("G2", "G6")
def first_files_left_out(ground: Ground) -> None:
    """Each group of a partition that begins gets a first file. Here one without entries gets none: the
    partition has fewer groups than keys were divided by.
    """
    ground.replace(begun_groups, "initial_logs", lambda *_: [])


@planted("G2")
def changes_reduced_by_key_alone(ground: Ground) -> None:
    """Of each partition and key the last change of an epoch is written into the index. Here it is the last
    one of each key: an insert of the same key into another partition takes its place.
    """
    ground.replace(partition_task, "last_changes", lambda batches, **_: last_changes(batches))


@planted("G1")
def tombstones_by_key_alone(ground: Ground) -> None:
    """What an assigner holds in memory, tombstones among them, is by partition and key. Here it is by the
    key: a delete in one partition supersedes an older insert of the key into another.
    """

    def keys_alone(lane: int, keys: Any, ids: Any, _: Any) -> list[bytes]:
        return cache_keys.identity_keys(lane, keys, np.zeros_like(ids), [""])

    for module in (partitioned, units):
        ground.replace(module, "identity_keys", keys_alone)


@planted("G2")
def entries_by_lane(ground: Ground) -> None:
    """Before index entries are written they are divided by the hash of the key among the groups of their
    partition. Here they go to the group with their lane's number, as where lanes are shards.
    """

    class ByLane(PartitionedLayout):
        def shards_of(self, keys: Any, partition_ids: Any, partitions: Any) -> Any:
            assert len(partitions) == 1
            return identity_lanes(keys, partition_ids, partitions, self.shards[partitions[0]])

    def by_lane(changes: Any, layout: PartitionedLayout, instant: str) -> Any:
        return commit_logs(changes, ByLane(layout.shards), instant)

    ground.replace(begun_groups, "commit_logs", by_lane)


@planted("G1", "G2", "G3")
def lane_by_key_alone(ground: Ground) -> None:
    """Lanes are by partition and key. Here the shuffle goes by the key alone, and the assigner by both."""

    def lanes(keys: Any, ids: Any, paths: Any, count: int) -> Any:
        return identity_lanes(keys, np.zeros_like(ids), [""] if len(keys) else paths, count)

    ground.replace(row_identity, "identity_lanes", lanes)


@planted("G1", "G2", "G3")
def lane_by_shard(ground: Ground) -> None:
    """The number of a partition's shards takes no part in the lane. Here the lane is that of the key's shard:
    while the partition has no file groups the number is unknown and one stands for it, later it is that of
    the groups which somebody began, so the rows of a key go to two lanes.
    """
    seen: dict[str, int] = {}

    def lanes(keys: Any, ids: Any, paths: Any, count: int) -> Any:
        shards = np.array([seen.get(path, 1) for path in paths] or [1])
        seen.update(dict.fromkeys(paths, _BEGUN))
        of_key = np.abs(java_hash(keys).astype(np.int64)) % (shards[ids] if len(ids) else 1)
        of_path = np.abs(java_hash(pa.array(paths, pa.string())).astype(np.int64))
        return ((of_key + (of_path[ids] if len(ids) else 0)) % count).astype(np.int32)

    ground.replace(row_identity, "identity_lanes", lanes)
