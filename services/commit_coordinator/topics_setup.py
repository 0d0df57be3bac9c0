"""Creates a table's topics and keeps watch over their partition counts.

Lanes, positions and file groups' paths rest on partition counts: they are recorded with the table when the
ledger begins, and any other count later is refused with what to do.
"""

from __future__ import annotations

import json
from typing import Final

from commit_coordinator.errors import CoordinatorError
from commit_coordinator.staging import ROOT
from hudi_format.errors import AlreadyExistsError, FileMissingError
from hudi_format.storage.base import Storage, join_path
from stream_runtime.config import InputPartitioning, TableConfigFile
from stream_runtime.errors import ErrorKind
from stream_runtime.kafka.ports import Admin, TopicSpec
from stream_runtime.kafka.topics import TopicNames, input_topic_specs, topic_specs

RECORD: Final = join_path(ROOT, "topics.json")
LANE_SOURCE: Final = join_path(ROOT, "lane-source.json")


class TopicsChangedError(CoordinatorError):
    """A topic has another number of partitions than when the ledger began."""

    kind = ErrorKind.INVALID


def ensure_topics(config: TableConfigFile, admin: Admin) -> dict[str, int]:
    """Creates what is missing, input topics too; returns partitions per topic.

    Of what was made here the count is known: a broker asked right after may not know the topic yet.
    """
    counts: dict[str, int] = {}
    for spec in input_topic_specs(config):
        counts[spec.name] = _ensure(admin, spec)
    for spec in topic_specs(config):
        counts[spec.name] = _ensure(admin, spec)
        if counts[spec.name] != spec.partitions:
            raise TopicsChangedError(_text(spec.name, counts[spec.name], spec.partitions))
    return counts


def _ensure(admin: Admin, spec: TopicSpec) -> int:
    found = admin.partitions(spec.name)
    if found is not None:
        return found
    admin.create_topics([spec])
    return spec.partitions


def check_recorded(storage: Storage, found: dict[str, int]) -> None:
    """Records the counts at the first start; raises TopicsChangedError when one has changed since.

    An input topic that is new to the configuration is added to the record.
    """
    try:
        recorded: dict[str, int] = json.loads(storage.read(RECORD))
    except FileMissingError:
        recorded = {}
    for topic, partitions in recorded.items():
        if topic in found and found[topic] != partitions:
            raise TopicsChangedError(_text(topic, found[topic], partitions))
    merged = json.dumps({**recorded, **found}, sort_keys=True, indent=2).encode()
    if recorded == {**recorded, **found}:
        return
    try:
        storage.create(RECORD, merged)
    except AlreadyExistsError:
        storage.replace(RECORD, merged)


def check_lane_source(config: TableConfigFile, storage: Storage) -> None:
    """Records at the first start which topic the assign stage reads; raises TopicsChangedError for another.

    Positions of the assign stage's lanes are offsets in that topic: read from another one they would skip
    records, or take some twice.
    """
    sharded = config.input.partitioning is InputPartitioning.SHARD
    topic = config.input.topics[0] if sharded else TopicNames(config.table.name).keyed
    content = json.dumps({"topic": topic}).encode()
    try:
        storage.create(LANE_SOURCE, content)
    except AlreadyExistsError:
        recorded = json.loads(storage.read(LANE_SOURCE))["topic"]
        if recorded != topic:
            raise TopicsChangedError(
                f"{config.file}: with input.partitioning: {config.input.partitioning.value} records are "
                f"tagged from topic {topic}, but this table's positions are offsets in {recorded}: go back "
                "to the former input section, or start anew at the committed positions "
                "(`tidemark table adopt --new-ledger`)"
            ) from None


def _text(topic: str, found: int, expected: int) -> str:
    return (
        f"topic {topic} has {found} partitions, {expected} were recorded for this table: Tidemark's "
        f"positions rest on that number. Recreate the topic with {expected} partitions, or start anew with "
        "new topics (`tidemark table adopt --new-ledger`)"
    )
