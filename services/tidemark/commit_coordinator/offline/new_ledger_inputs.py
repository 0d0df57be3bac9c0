"""The input under a new ledger: which positions still hold, and where all other lanes begin.

No record that the former ledger would have read may be left out. So a lane is read from its start if its
topic no longer holds its position, or if the former ledger had not begun it. That is so with `input.start:
latest` as well, which is about topics that the table never read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from tidemark.commit_coordinator.input.starts import INPUT_EARLIEST, INPUT_STARTS
from tidemark.commit_coordinator.opening.topics_setup import OpenedInputs, open_inputs
from tidemark.config import InputStart, TableConfigFile
from tidemark.epoch_protocol.input_topics import InputTopic, SeenTopic, accepted, lanes_of
from tidemark.epoch_protocol.lanes import parse_shuffle_lane
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_document
from tidemark.stream_runtime.kafka.ports import Admin, Isolation, TopicPartition


def inputs_of_new_ledger(
    config: TableConfigFile, storage: Storage, admin: Admin
) -> tuple[OpenedInputs, frozenset[str]]:
    """The configured topics as they are now, and the names of those that were deleted and created again.

    No position holds for the latter. Raises TopicsChangedError for a topic that the table never read and that
    does not exist.
    """
    opened = open_inputs(config, storage, admin, begins_anew=True)
    states = admin.topic_states(opened.topics)
    topics, others = {}, set()
    for name, topic in opened.topics.items():
        state = states.get(name)
        if state is not None:
            taken = accepted(topic, SeenTopic(state.partitions, state.id), keep_positions=False)
            if taken.incarnation != topic.incarnation:
                others.add(name)
            topic = taken
        if config.input.is_sharded:
            # The lanes are the partitions' numbers, whatever log of the topic's name they are of.
            topic = msgspec.structs.replace(topic, incarnation=1)
        topics[name] = topic
    return OpenedInputs(topics, opened.recorded), frozenset(others)


def positions_held(
    config: TableConfigFile,
    admin: Admin,
    positions: Mapping[str, int],
    inputs: Mapping[str, InputTopic],
    other_topics: frozenset[str],
) -> tuple[dict[str, int], list[str]]:
    """Splits ``positions`` (lane -> next offset) into those that still hold, and lanes that are read anew.

    A position holds if its topic is the same log as before, and the partition still has that offset.
    """
    sharded = config.input.is_sharded
    held: dict[str, int] = {}
    anew: list[str] = []
    lanes = {lane for name, topic in inputs.items() for lane in lanes_of(name, topic)}
    for lane, position in sorted(positions.items()):
        input_lane = f"{config.input.topics[0]}:{lane}" if sharded else lane
        topic, partition = parse_shuffle_lane(input_lane)
        if topic not in inputs:
            continue
        is_same = topic not in other_topics and input_lane in lanes
        if is_same and _holds(admin, TopicPartition(topic, partition), position):
            held[lane] = position
        else:
            anew.append(lane)
    return held, anew


def deleted_before_begun(
    config: TableConfigFile,
    storage: Storage,
    admin: Admin,
    positions: Mapping[str, int],
    inputs: Mapping[str, InputTopic],
    other_topics: frozenset[str],
) -> list[str]:
    """Lanes that never counted and whose first records, as recorded for `input.start: earliest`, are deleted.

    They begin at what their partition has left. ``positions``: lane -> next offset of the former ledger.
    """
    found: list[str] = []
    lanes = {lane for name, topic in inputs.items() for lane in lanes_of(name, topic)}
    for input_lane, start in sorted(_recorded_starts(storage, INPUT_EARLIEST).items()):
        at = TopicPartition(*parse_shuffle_lane(input_lane))
        lane = str(at.partition) if config.input.is_sharded else input_lane
        is_same = input_lane in lanes and at.topic not in other_topics
        if is_same and not positions.get(lane) and not _holds(admin, at, start):
            found.append(lane)
    return found


def record_starts(
    config: TableConfigFile, storage: Storage, admin: Admin, inputs: OpenedInputs, held: Mapping[str, int]
) -> None:
    """Records, with `input.start: latest`, where lanes without a position begin, in topics read before.

    That is their recorded start if the topic still holds it, else the topic's start. Topics that are new to
    the table are left out: the coordinator records them when it starts.
    """
    if config.input.start is not InputStart.LATEST:
        storage.delete(INPUT_STARTS)
        return
    former = _recorded_starts(storage, INPUT_STARTS)
    starts: dict[str, int] = {}
    known = inputs.recorded.topics or inputs.topics if former else inputs.recorded.topics
    for name in inputs.topics.keys() & known.keys():
        for lane in lanes_of(name, inputs.topics[name]):
            at = TopicPartition(*parse_shuffle_lane(lane))
            if held.get(lane, 0) > 0:
                continue
            is_held = lane in former and _holds(admin, at, former[lane])
            starts[lane] = former[lane] if is_held else admin.start_offset(at)
    storage.replace(INPUT_STARTS, json.dumps(starts, sort_keys=True, indent=2).encode())


def _recorded_starts(storage: Storage, path: str) -> dict[str, int]:
    try:
        return read_document(storage, path, dict[str, int])
    except FileMissingError:
        return {}


def _holds(admin: Admin, at: TopicPartition, position: int) -> bool:
    if at.partition >= (admin.partitions(at.topic) or 0):
        return False
    return admin.start_offset(at) <= position <= admin.end_offset(at, Isolation.READ_COMMITTED)
