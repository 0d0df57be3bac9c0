"""What a table remembers of its input topics, and what follows when Kafka shows them differently. Pure.

A position is an offset in one log: the topic with the id that Kafka gave it when it was created (KIP-516).
The coordinator keeps a record per topic with the table (`INPUT_TOPICS_PATH`); readers of the input read it.
Rules for each topic:

* It has more partitions than recorded: the new ones are read from their start, and nothing else changes.
* It has another id: the topic was deleted and created again, or Kafka was restored or mirrored. The topic
  does not show which, so its lanes stop until an operator accepts it (`accepted`).
* It does not exist: its lanes stop. Tidemark never creates it again.
* The broker tells no ids (before Kafka 2.8): fewer partitions than recorded count as another id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from tidemark.epoch_protocol.lanes import parse_input_log, shuffle_lane
from tidemark.epoch_protocol.stopped_lanes import StopReason

INPUT_TOPICS_PATH: Final = ".hoodie/.aux/tidemark/input-topics.json"


class InputTopic(msgspec.Struct, frozen=True):
    """One input topic as the table reads it.

    ``id``: its id in Kafka, "" when not known. ``partitions_before``: how many partitions it had when it was
    first read or last accepted; ``partitions`` is greater when it grew since. ``incarnation``: raised when an
    operator accepts another log of this name, to be read from its start. ``removed``: an operator confirmed
    that the topic left the configuration.
    """

    partitions: int
    partitions_before: int
    id: str = ""
    incarnation: int = 1
    removed: bool = False

    @property
    def has_grown(self) -> bool:
        """Whether the topic has more partitions than when it was first read or last accepted."""
        return self.partitions > self.partitions_before


class EmptyRange(NamedTuple):
    """A range [first, next) of an input partition without any committed record.

    Transaction markers and aborted records use offsets, too, and no consumer position moves past them before
    the next record arrives.
    """

    topic: str
    partition: int
    first: int
    next: int


class InputTopics(msgspec.Struct, frozen=True):
    """The stored document: topic name -> record."""

    topics: dict[str, InputTopic] = {}


@dataclass(frozen=True)
class SeenTopic:
    """A topic as Kafka shows it now. ``id`` is "" when Kafka does not tell it."""

    partitions: int
    id: str = ""


def encode_input_topics(record: InputTopics) -> bytes:
    """The stored document as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=2)


def first_read(seen: SeenTopic, partitions_before: int = 0, incarnation: int = 1) -> InputTopic:
    """The first record of a topic. ``partitions_before``: the count of an older record; 0 when none
    exists.
    """
    return InputTopic(seen.partitions, partitions_before or seen.partitions, seen.id, incarnation)


def look(topic: InputTopic, seen: SeenTopic | None) -> tuple[InputTopic, StopReason | None]:
    """Compares a topic with what Kafka shows now (``seen``, None: no such topic).

    Returns the record from now on, and why the topic's lanes must stop (None: they go on).
    """
    if seen is None:
        return topic, StopReason.TOPIC_MISSING
    if _is_another_log(topic, seen):
        return topic, StopReason.TOPIC_RECREATED
    partitions = max(topic.partitions, seen.partitions)
    return msgspec.structs.replace(topic, partitions=partitions, id=seen.id or topic.id, removed=False), None


def accepted(topic: InputTopic, seen: SeenTopic, keep_positions: bool) -> InputTopic:
    """The record after an operator has accepted the topic as it is now.

    ``keep_positions``: it is the same log under another id (a restored or mirrored Kafka), so its lanes
    continue at their positions. Without it another id means another log, which is read from its start. When
    the id did not change, only the number of partitions is updated.
    """
    same = keep_positions or not _is_another_log(topic, seen)
    incarnation = topic.incarnation if same else topic.incarnation + 1
    partitions = max(topic.partitions, seen.partitions) if same else seen.partitions
    return InputTopic(partitions, partitions, seen.id, incarnation)


def lanes_of(name: str, topic: InputTopic) -> list[str]:
    """The shuffle lanes of the topic, in the order of its partitions."""
    return [shuffle_lane(name, partition, topic.incarnation) for partition in range(topic.partitions)]


def stale_logs(
    topics: Mapping[str, InputTopic], logs: Iterable[str], ids: Mapping[str, str]
) -> frozenset[str]:
    """The logs (as `lanes.split_lane` names them) that differ from the record, so that no position is valid.

    ``ids``: topic -> id as Kafka tells it; a topic that does not exist is missing.
    """
    return frozenset(log for log in logs if _is_stale(topics, log, ids))


def _is_stale(topics: Mapping[str, InputTopic], log: str, ids: Mapping[str, str]) -> bool:
    name, incarnation = parse_input_log(log)
    topic = topics.get(name)
    if topic is None:
        return False
    if name not in ids or topic.incarnation != incarnation:
        return True
    return bool(topic.id and ids[name]) and topic.id != ids[name]


def _is_another_log(topic: InputTopic, seen: SeenTopic) -> bool:
    if topic.id and seen.id:
        return topic.id != seen.id
    return seen.partitions < topic.partitions
