"""Creates a table's topics, and checks them against what was recorded when the table's ledger began.

- Tidemark's own topics keep their numbers of partitions: lanes, positions and batches rest on them. Another
  number is refused.
- Input topics may grow (`epoch_protocol.input_topics`).
- An input topic that leaves the configuration is refused, until `tidemark input remove-topic` says so.
- An input topic that does not exist is created only for a table that has read nothing yet. Otherwise a
  misspelt name would create an empty topic, and the right one would not be read any more.
"""

from __future__ import annotations

import difflib
import json
import logging
from dataclasses import dataclass
from typing import Final

import msgspec

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.commit_coordinator.input.watch import read_record, shard_growth_text
from tidemark.commit_coordinator.opening.topic_settings import keep_settings
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.input_topics import (
    InputTopic,
    InputTopics,
    SeenTopic,
    first_read,
    look,
)
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import AlreadyExistsError, CorruptFileError, FileMissingError
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.storage.documents import ROOT, read_document
from tidemark.ledger_client.topics import TopicNames, input_topic_specs, topic_specs
from tidemark.stream_runtime.kafka.ports import Admin, TopicSpec, TopicState

RECORD: Final = join_path(ROOT, "topics.json")
LANE_SOURCE: Final = join_path(ROOT, "lane-source.json")
_log = logging.getLogger("tidemark.coordinator")


class _LaneSource(msgspec.Struct, frozen=True):
    topic: str


class TopicsChangedError(CoordinatorError):
    """Topics or configuration do not fit what was recorded when the table's ledger began."""

    kind = ErrorKind.INVALID


@dataclass(frozen=True)
class OpenedInputs:
    """``topics``: those of the configuration. ``recorded``: the record, which also has removed topics."""

    topics: dict[str, InputTopic]
    recorded: InputTopics


def ensure_topics(config: TableConfigFile, admin: Admin) -> dict[str, int]:
    """Creates those of Tidemark's own topics that are missing, and gives the others the settings that the
    configuration asks for now (`keep_settings`). Returns topic -> number of partitions.

    For a topic that is created here the number is not asked again: a broker may not know the topic yet.
    Raises TopicsChangedError for a topic with another number of partitions than the configuration asks for.
    Raises TopicSettingsError.
    """
    counts: dict[str, int] = {}
    there: list[TopicSpec] = []
    for spec in topic_specs(config, admin.default_replication(), admin.default_segment_bytes()):
        existing = admin.partitions(spec.name)
        if existing is None:
            admin.create_topics([spec])
        counts[spec.name] = spec.partitions if existing is None else existing
        if counts[spec.name] != spec.partitions:
            raise TopicsChangedError(_lanes_text(config, spec, counts[spec.name]))
        if existing is not None:
            there.append(spec)
    keep_settings(config, there, admin)
    return counts


def keep_dead_letter_settings(config: TableConfigFile, admin: Admin) -> None:
    """Gives the topic of dead letters, which a new ledger keeps, the settings that the configuration has.

    Raises TopicSettingsError.
    """
    name = TopicNames(config.table.name).dead_letter
    specs = topic_specs(config, admin.default_replication(), admin.default_segment_bytes())
    if admin.partitions(name) is not None:
        keep_settings(config, [spec for spec in specs if spec.name == name], admin)


def open_inputs(
    config: TableConfigFile, storage: Storage, admin: Admin, begins_anew: bool = False
) -> OpenedInputs:
    """The input topics as the table has read them so far, or as it begins to read them.

    Creates missing input topics for a table that has read none yet; writes nothing into the table's folder.
    ``begins_anew``: a new ledger follows, and the configuration alone says what is read. Raises
    TopicsChangedError when a topic left the configuration, is new to it and does not exist, or does not fit
    `input.partitioning: shard`.
    """
    recorded = read_record(storage)
    former = dict(recorded.topics) or former_record(config, storage)
    gone = [name for name, topic in former.items() if name not in config.input.topics and not topic.removed]
    states = admin.topic_states(config.input.topics)
    unknown = [name for name in config.input.topics if name not in former and name not in states]
    if gone and (unknown or not begins_anew):
        raise TopicsChangedError(_gone_text(config, gone, unknown))
    if unknown and former:
        raise TopicsChangedError(_unknown_text(config, unknown, former))
    topics: dict[str, InputTopic] = {}
    for spec in input_topic_specs(config):
        if spec.name in former:
            topics[spec.name] = former[spec.name]
            if begins_anew and spec.name not in states:
                # The topic was lost with its Kafka. The record has its name, so it is not misspelt.
                _created(config, admin, spec)
            continue
        state = states.get(spec.name) or _created(config, admin, spec)
        topics[spec.name] = first_read(SeenTopic(state.partitions, state.id))
    if not begins_anew:
        _check_shard(config, topics, states)
    return OpenedInputs(topics, recorded)


def _created(config: TableConfigFile, admin: Admin, spec: TopicSpec) -> TopicState:
    _log.warning(
        "input topic %s does not exist on %s: it is created with %d partitions",
        spec.name,
        config.kafka.bootstrap_servers,
        spec.partitions,
    )
    admin.create_topics([spec])
    # A broker may not know the new topic yet. Then its id is taken at the next look.
    return admin.topic_states([spec.name]).get(spec.name, TopicState(spec.partitions, ""))


def former_record(config: TableConfigFile, storage: Storage) -> dict[str, InputTopic]:
    """The input topics by the record of earlier versions, which had only numbers of partitions, and no ids.

    The first look takes the ids.
    """
    own = {spec.name for spec in topic_specs(config)}
    return {
        name: InputTopic(partitions, partitions)
        for name, partitions in _recorded_counts(storage).items()
        if name not in own
    }


def _check_shard(
    config: TableConfigFile, topics: dict[str, InputTopic], states: dict[str, TopicState]
) -> None:
    if not config.input.is_sharded:
        return
    if len(topics) != 1:
        raise TopicsChangedError(
            f"{config.file}: input.partitioning: shard reads one topic, whose partitions are the lanes; "
            f"{len(topics)} are given: merge them, or use partitioning: any"
        )
    ((name, topic),), lanes = topics.items(), config.table.index.lanes
    state = states.get(name)
    if state is not None:
        topic, _ = look(topic, SeenTopic(state.partitions, state.id))
    if topic.has_grown:
        raise TopicsChangedError(shard_growth_text(name, topic))
    if topic.partitions != lanes:
        raise TopicsChangedError(
            f"topic {name} has {topic.partitions} partitions; input.partitioning: shard needs as many as "
            f"there are lanes, {lanes} (table.index.lanes)"
        )


def check_recorded(storage: Storage, counts: dict[str, int]) -> None:
    """Records the numbers of partitions of Tidemark's own topics at the first start.

    Raises TopicsChangedError when one has changed since. ``counts``: topic -> number of partitions now.
    """
    recorded = _recorded_counts(storage)
    for topic, partitions in recorded.items():
        if topic in counts and counts[topic] != partitions:
            raise TopicsChangedError(
                f"topic {topic} has {counts[topic]} partitions, {partitions} were recorded for this table: "
                "somebody changed it, or it is another table's. Do not recreate it: it may hold what is "
                "not committed. If its content is lost, start anew with new topics (`tidemark table adopt "
                "--new-ledger`)"
            )
    merged = json.dumps({**recorded, **counts}, sort_keys=True, indent=2).encode()
    if recorded == {**recorded, **counts}:
        return
    try:
        storage.create(RECORD, merged)
    except AlreadyExistsError:
        storage.replace(RECORD, merged)


def _recorded_counts(storage: Storage) -> dict[str, int]:
    try:
        return read_document(storage, RECORD, dict[str, int])
    except FileMissingError:
        return {}
    except CorruptFileError as error:
        raise TopicsChangedError(
            f"{error}. It has the number of partitions of each topic: "
            "delete it when the topics are as they were made; the next start writes it anew from them"
        ) from error


def check_lane_source(config: TableConfigFile, storage: Storage) -> None:
    """Records at the first start which topic the assign stage reads; raises TopicsChangedError for another.

    The positions of its lanes are offsets in that topic. Used in another one, they would skip records or read
    some twice.
    """
    sharded = config.input.is_sharded
    topic = config.input.topics[0] if sharded else TopicNames(config.table.name).keyed
    content = json.dumps({"topic": topic}).encode()
    try:
        storage.create(LANE_SOURCE, content)
    except AlreadyExistsError:
        recorded = _recorded_source(storage)
        if recorded != topic:
            raise TopicsChangedError(
                f"{config.file}: with input.partitioning: {config.input.partitioning.value} records are "
                f"tagged from topic {topic}, but this table's positions are offsets in {recorded}: go back "
                "to the former input section, or start anew at the committed positions "
                "(`tidemark table adopt --new-ledger`)"
            ) from None


def _recorded_source(storage: Storage) -> str:
    try:
        return read_document(storage, LANE_SOURCE, _LaneSource).topic
    except CorruptFileError as error:
        raise TopicsChangedError(
            f"{error}. It names the topic that positions hold for: "
            "delete it when input.partitioning is as it was; the next start writes it anew"
        ) from error


def _lanes_text(config: TableConfigFile, spec: TopicSpec, partitions: int) -> str:
    names, lanes = TopicNames(config.table.name), config.table.index.lanes
    if spec.name in (names.keyed, names.index, names.tombstones, names.data):
        way = (
            f"table.index.lanes is {lanes} in {config.file}, and topic {spec.name} has {partitions} "
            "partitions: the number of lanes cannot change under a ledger, whose positions are per lane."
        )
        if spec.name != names.data:
            way += f" Set table.index.lanes back to {partitions}."
        return (
            f"{way} For another number: `tidemark flush` with the former one, stop all services, then "
            "`tidemark table adopt --new-ledger`. Do not recreate the topic: it may hold what is not "
            "committed"
        )
    return (
        f"topic {spec.name} has {partitions} partitions and must have {spec.partitions}: it was made by "
        "something else. Give the table another table.name, or start anew with new topics (`tidemark table "
        "adopt --new-ledger`)"
    )


def _gone_text(config: TableConfigFile, gone: list[str], unknown: list[str]) -> str:
    names = ", ".join(gone)
    text = f"{config.file}: input.topics no longer has {names}, which this table reads"
    if unknown:
        text += f", and has {', '.join(unknown)}, which does not exist: is it misspelt?"
    return f"{text}. Put it back; or, if no more of it is to be read, say so: " + "; ".join(
        f"`tidemark input remove-topic {name}`" for name in gone
    )


def _unknown_text(config: TableConfigFile, unknown: list[str], former: dict[str, InputTopic]) -> str:
    near = [close for name in unknown for close in difflib.get_close_matches(name, former, n=1)]
    meant = f" (is {near[0]} meant?)" if near else ""
    return (
        f"{config.file}: input.topics has {', '.join(unknown)}, which does not exist on "
        f"{config.kafka.bootstrap_servers}{meant}. Correct the name, or create the topic: Tidemark creates "
        "input topics only for a table that has read nothing yet"
    )
