"""What a table keeps of its input topics, and what follows from how Kafka shows them now. Pure.

Positions are offsets in a topic, so they hold for one log only: the topic with the id that Kafka gave it when
it was made (KIP-516). The record is kept with the table (`INPUT_TOPICS_PATH`), written by the coordinator,
read by those who read the input. Rules, per topic:

* More partitions: the new ones are read, from their start. Nothing else changes.
* Another id: the topic was deleted and made again, or Kafka was restored or mirrored. Which of the two nobody
  can tell from the topic, so its lanes stop until it is accepted: `accepted`.
* No such topic: its lanes stop. It is never made again by Tidemark.
* A broker that tells no ids (before Kafka 2.8): fewer partitions than recorded stand for another id.
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

    ``id``: Kafka's id of it, "" not known. ``partitions_before``: how many it had when it was first read, or
    accepted: fewer than ``partitions`` when it grew since. ``incarnation``: raised when another log of the
    name is accepted from its start. ``removed``: it left the configuration, as an operator confirmed.
    """

    partitions: int
    partitions_before: int
    id: str = ""
    incarnation: int = 1
    removed: bool = False

    @property
    def has_grown(self) -> bool:
        """Whether it has more partitions than when it was first read or accepted."""
        return self.partitions > self.partitions_before


class EmptyRange(NamedTuple):
    """No committed record lies in [first, next) of an input partition: markers of transactional producers and
    aborted records use offsets, too, and no position moves past them before the next record comes.
    """

    topic: str
    partition: int
    first: int
    next: int


class InputTopics(msgspec.Struct, frozen=True):
    """The stored document."""

    topics: dict[str, InputTopic] = {}


@dataclass(frozen=True)
class SeenTopic:
    """A topic as Kafka shows it. ``id`` "": Kafka does not tell."""

    partitions: int
    id: str = ""


def encode_input_topics(record: InputTopics) -> bytes:
    """The document."""
    return msgspec.json.format(msgspec.json.encode(record, order="sorted"), indent=2)


def first_read(seen: SeenTopic, partitions_before: int = 0, incarnation: int = 1) -> InputTopic:
    """The record of a topic that has none yet. ``partitions_before``: an older record's count, 0: none."""
    return InputTopic(seen.partitions, partitions_before or seen.partitions, seen.id, incarnation)


def look(topic: InputTopic, seen: SeenTopic | None) -> tuple[InputTopic, StopReason | None]:
    """The record after a look at Kafka, and why the topic's lanes have to rest (None: they need not)."""
    if seen is None:
        return topic, StopReason.TOPIC_MISSING
    if _is_another_log(topic, seen):
        return topic, StopReason.TOPIC_RECREATED
    partitions = max(topic.partitions, seen.partitions)
    return msgspec.structs.replace(topic, partitions=partitions, id=seen.id or topic.id, removed=False), None


def accepted(topic: InputTopic, seen: SeenTopic, keep_positions: bool) -> InputTopic:
    """The record once an operator accepted the topic as it is now.

    ``keep_positions``: it is the same log under another id (a restored or mirrored Kafka), so its lanes go on
    where they stand. Else another id means another log, which is read from its start. The same id: only that
    it grew is taken note of.
    """
    same = keep_positions or not _is_another_log(topic, seen)
    incarnation = topic.incarnation if same else topic.incarnation + 1
    partitions = max(topic.partitions, seen.partitions) if same else seen.partitions
    return InputTopic(partitions, partitions, seen.id, incarnation)


def lanes_of(name: str, topic: InputTopic) -> list[str]:
    """The shuffle lanes of the topic, by partition."""
    return [shuffle_lane(name, partition, topic.incarnation) for partition in range(topic.partitions)]


def stale_logs(
    topics: Mapping[str, InputTopic], logs: Iterable[str], ids: Mapping[str, str]
) -> frozenset[str]:
    """Those of the logs (`lanes.split_lane`) that are not what the record names: no positions hold for them.

    ``ids``: by topic as Kafka tells them; a topic that does not exist is not in it.
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
