"""Which data and index partitions of the open attempt are not written yet, by the files in the table's
folder.

The writer reports once, when all its tasks are done. Until then markers and files show how far each partition
is: the task of a data partition lists its files among the markers before it makes the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.commit_coordinator.calls.attempt_handoff import OpenAttemptView
from tidemark.commit_coordinator.calls.service import Facts
from tidemark.epoch_protocol.entries import Topic
from tidemark.epoch_protocol.lanes import shards_of_lane
from tidemark.hudi_format.commit.markers import announced_files
from tidemark.hudi_format.metadata_table.partitions.record_index import record_index_log_path
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.storage.base import Storage
from tidemark.ledger_client.topics import TopicNames

_NAMED_MAX: Final = 20


def unreported(
    view: OpenAttemptView | None, writer: str, storage: Storage, topics: TopicNames, facts: Facts
) -> list[str]:
    """Texts for `tidemark status`; empty when no attempt waits for its report.

    ``writer``: the id of the writer that asked last, "" for none.
    """
    if view is None:
        return []
    if not writer:
        return ["a writer: none has asked for work yet"]
    instant = view.planned.instant or ""
    behind = [
        *(_data(storage, instant, topics.data, partition) for partition in _partitions(view, Topic.DATA)),
        # A partitioned index is written by tasks that follow, in groups that only the rows tell.
        *(
            _index(storage, instant, topics.index, lane, _shards(lane, facts))
            for lane in (_partitions(view, Topic.INDEX) if view.planned.partitioned is None else [])
        ),
    ]
    named = [text for text in behind if text is not None]
    if not named:
        return [f"writer {writer}: all files are there, its report is not"]
    left = [f"and {len(named) - _NAMED_MAX} more"] if len(named) > _NAMED_MAX else []
    return [f"writer {writer}", *named[:_NAMED_MAX], *left]


def _partitions(view: OpenAttemptView, topic: Topic) -> list[int]:
    partitions = {
        part.partition
        for counted in view.manifest
        for part in counted.entry.produced
        if part.topic is topic and part.records > 0
    }
    return sorted(partitions)


def _shards(lane: int, facts: Facts) -> Iterable[ShardId]:
    return map(ShardId, shards_of_lane(lane, facts.lanes, facts.num_shards))


def _data(storage: Storage, instant: str, topic: str, partition: int) -> str | None:
    files = announced_files(storage, instant, partition)
    if files is None:
        return f"{topic}[{partition}]: no file yet"
    there = sum(storage.exists(path) for path in files)
    return None if there == len(files) else f"{topic}[{partition}]: {there} of {len(files)} files"


def _index(storage: Storage, instant: str, topic: str, lane: int, shards: Iterable[ShardId]) -> str | None:
    """Only the batches say which shards a partition touches. So one file of any shard means that it has
    begun.
    """
    begun = any(storage.exists(record_index_log_path(instant, shard)) for shard in shards)
    return None if begun else f"{topic}[{lane}]: no file yet"
