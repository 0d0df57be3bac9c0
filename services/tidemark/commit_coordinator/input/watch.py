"""Watches the input topics while the table is served: growth, deletion, another topic of the same name.

Every few seconds the watch asks Kafka, lets `epoch_protocol.input_topics` decide, writes the record into the
table's folder, and says which lanes are read. It writes in the term, so a coordinator that was replaced
cannot replace a newer record by an old one.

With `input.partitioning: shard` the partitions are the assign stage's lanes, whose number never changes.
There growth stops the lanes, as another topic of the name does.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import grpc

from tidemark.commit_coordinator.errors import NotReadyError
from tidemark.commit_coordinator.input.starts import SilentLanes, record_input_starts
from tidemark.commit_coordinator.input.stopped_lanes import stands_still
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.input_topics import (
    INPUT_TOPICS_PATH,
    InputTopic,
    InputTopics,
    SeenTopic,
    accepted,
    encode_input_topics,
    lanes_of,
    look,
)
from tidemark.epoch_protocol.lanes import assign_lane
from tidemark.epoch_protocol.stopped_lanes import StoppedLane, StopReason
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.documents import read_document
from tidemark.stream_runtime.kafka.ports import Admin
from tidemark.stream_runtime.rpc.errors import StatusError
from tidemark.table_status.status import InputTopicState
from tidemark.table_status.warnings import StatusWarning, WarningKind

LOOK_EVERY_S: Final = 3.0
_log = logging.getLogger("tidemark.coordinator")


class TopicNotAcceptedError(StatusError):
    """The topic cannot be accepted as it is; the text says why."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    kind = ErrorKind.INVALID
    error_reason = "TOPIC_NOT_ACCEPTED"


class InputStoppedError(StatusError):
    """The lanes of an input topic are stopped; the text says why and what to do."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    kind = ErrorKind.INVALID
    error_reason = "INPUT_STOPPED"


class TopicStop(NamedTuple):
    """Why the lanes of a topic are not read; ``text`` also says what an operator can do."""

    reason: StopReason
    text: str


@dataclass(frozen=True)
class InputView:
    """The input topics at one moment: name -> record; ``stopped``: name -> why its lanes are not read."""

    topics: Mapping[str, InputTopic]
    stopped: Mapping[str, TopicStop]

    def lanes(self) -> list[str]:
        """The lanes of all topics that are read."""
        read = {name: topic for name, topic in self.topics.items() if name not in self.stopped}
        return [lane for name, topic in read.items() for lane in lanes_of(name, topic)]


class InputWatch:
    """Watches the topics; thread-safe. `look` looks once, `start` begins a thread that looks regularly."""

    def __init__(
        self,
        config: TableConfigFile,
        storage: Storage,
        admin: Admin,
        topics: Mapping[str, InputTopic],
        show: Callable[[InputView], None] = lambda _: None,
    ) -> None:
        """``topics``: the record of each configured topic. ``show``: called with each view, on any thread."""
        self._config, self._storage, self._admin = config, storage, admin
        self._sharded = config.input.is_sharded
        self._show = show
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._others: dict[str, InputTopic] = {}
        self._view = InputView(dict(topics), {})
        self._term: Term | None = None
        self._starts: Mapping[str, int] = {}
        self._silent = SilentLanes()
        self._written: bytes | None = None
        self._blind = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inputs", daemon=True)

    @property
    def view(self) -> InputView:
        """The input topics as of the last look."""
        with self._lock:
            return self._view

    @property
    def starts(self) -> Mapping[str, int]:
        """Where lanes without a counting transaction begin, as recorded."""
        with self._lock:
            return self._starts

    def took_over(self, term: Term, recorded: InputTopics) -> None:
        """Looks for the first time, and from now on writes the record under ``term``.

        ``recorded``: the former record; its topics that are no longer configured stay in it.
        """
        self._term = term
        configured = self._view.topics
        self._others = {name: topic for name, topic in recorded.topics.items() if name not in configured}
        self.look()

    def start(self) -> None:
        """Begins to look every `LOOK_EVERY_S` seconds."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread. Repeatable."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()

    def look(self) -> InputView:
        """Asks Kafka now. Raises NotReadyError before the takeover, KafkaError, and what the table's storage
        raises.
        """
        with self._looking:
            before = self.view
            states = self._admin.topic_states(before.topics)
            topics: dict[str, InputTopic] = {}
            stopped: dict[str, TopicStop] = {}
            for name, topic in before.topics.items():
                state = states.get(name)
                seen = SeenTopic(state.partitions, state.id) if state is not None else None
                topics[name], reason = look(topic, seen)
                if reason is not None:
                    stopped[name] = TopicStop(reason, stop_text(name, reason))
                elif self._sharded and topics[name].has_grown:
                    grown = shard_growth_text(name, topics[name])
                    stopped[name] = TopicStop(StopReason.TOPIC_GROWN, grown)
            return self._take(before, InputView(topics, stopped))

    def look_for_all(self) -> InputView:
        """Looks once, for a caller that waits until all input is committed.

        Raises InputStoppedError when lanes are stopped, because that wait would not end; and as `look`.
        """
        view = self.look()
        if view.stopped:
            why = "; ".join(stop.text for stop in view.stopped.values())
            raise InputStoppedError(f"not all input can be committed: {why}")
        return view

    def accept(self, name: str, keep_positions: bool) -> tuple[InputTopic, bool]:
        """Accepts the topic as it is now (`epoch_protocol.input_topics.accepted`). Returns the new record,
        and whether the topic is read from its start.

        Raises TopicNotAcceptedError, and as `look`.
        """
        with self._looking:
            before = self.view
            topic = before.topics.get(name)
            if topic is None:
                configured = ", ".join(before.topics)
                raise TopicNotAcceptedError(f"{name} is not in input.topics, which has: {configured}")
            state = self._admin.topic_states([name]).get(name)
            if state is None:
                raise TopicNotAcceptedError(f"there is no topic {name} on this Kafka: create it first")
            seen = SeenTopic(state.partitions, state.id)
            if keep_positions and seen.partitions < topic.partitions:
                raise TopicNotAcceptedError(
                    f"topic {name} has {seen.partitions} partitions now, and had {topic.partitions}: it is "
                    "another topic, so no position can be kept. Without --keep-positions it is read from its "
                    "start"
                )
            taken = accepted(topic, seen, keep_positions)
            self._check_shard(name, topic, taken)
            stopped = {other: why for other, why in before.stopped.items() if other != name}
            self._take(before, InputView({**before.topics, name: taken}, stopped))
            _log.warning("input topic %s is accepted: %s", name, taken)
            return taken, taken.incarnation != topic.incarnation

    def warnings(self) -> list[StatusWarning]:
        """The warnings about input topics, for `tidemark status`."""
        view = self.view
        warnings = [stands_still(stop.text) for stop in view.stopped.values()]
        if self._blind:
            text = f"new partitions of input topics, and topics made anew, are not noticed: {self._blind}"
            warnings.append(StatusWarning(WarningKind.TOPICS_UNWATCHED, text))
        if self._config.table.ordering is None:
            warnings += [
                StatusWarning(WarningKind.TOPIC_GREW, _grew(name, topic))
                for name, topic in view.topics.items()
                if topic.has_grown and name not in view.stopped
            ]
        return warnings

    def states(self) -> dict[str, InputTopicState]:
        """Topic -> its state, for `tidemark status`."""
        view = self.view
        return {
            name: InputTopicState(
                topic.partitions,
                topic.partitions_before,
                topic.id,
                topic.incarnation,
                view.stopped[name].text if name in view.stopped else None,
            )
            for name, topic in view.topics.items()
        }

    def _run(self) -> None:
        while not self._stopped.wait(LOOK_EVERY_S):
            self.try_to_look()

    def try_to_look(self) -> None:
        """Looks; notes and logs what keeps it from looking. The next look tries again: the thread that looks
        must outlive every error, since nobody else notices new partitions.
        """
        try:
            self.look()
        except Exception as error:
            passes = isinstance(error, OSError) or kind_of(error) is ErrorKind.RETRYABLE
            self._blind = "" if passes else str(error)
            _log.warning("the input topics could not be looked at, trying again: %s", error)
        else:
            self._blind = ""

    def _take(self, before: InputView, view: InputView) -> InputView:
        """Writes the record, then shows the view: so each lane that is read is in the record."""
        lanes = view.lanes()
        # Lanes that are new: partitions of a topic that grew, or of a log that was accepted. None was ever
        # read.
        fresh = frozenset(lanes).difference(
            lane for name, topic in before.topics.items() for lane in lanes_of(name, topic)
        )
        if self._term is None:
            raise NotReadyError("the coordinator is taking over: ask again")
        starts = self._starts
        self._silent.look()
        if self._silent.due(lane for lane in lanes if lane not in starts):
            starts = record_input_starts(
                self._config.input.start, self._term, self._admin, lanes, fresh, self._silent
            )
        content = encode_input_topics(InputTopics({**self._others, **view.topics}))
        if self._written != content:
            self._term.replace(INPUT_TOPICS_PATH, content)
            self._written = content
        with self._lock:
            self._starts, self._view = starts, view
        for name, topic in view.topics.items():
            _log_change(name, before, view, topic)
        self._show(view)
        return view

    def _check_shard(self, name: str, topic: InputTopic, taken: InputTopic) -> None:
        if not self._sharded:
            return
        if taken.partitions != self._config.table.index.lanes:
            raise TopicNotAcceptedError(shard_growth_text(name, taken))
        if taken.incarnation != topic.incarnation:
            raise TopicNotAcceptedError(
                f"with input.partitioning: shard the positions of the table are offsets in {name}, so "
                "another topic cannot be read from its start under this ledger: `tidemark table adopt "
                "--new-ledger` begins one; --keep-positions goes on where it stands, if it is the same "
                "topic restored"
            )


def stopped_by_topic(
    config: TableConfigFile, view: InputView, taken: Mapping[str, int], now_ms: int
) -> list[StoppedLane]:
    """The lanes of stopped topics. ``taken``: input lane -> next offset that is not in our topics yet."""
    sharded = config.input.is_sharded
    stage = Stage.ASSIGN if sharded else Stage.SHUFFLE
    stopped = []
    for name, stop in view.stopped.items():
        for partition, lane in enumerate(lanes_of(name, view.topics[name])):
            of_stage, next_offset = assign_lane(partition) if sharded else lane, taken.get(lane, 0)
            stopped.append(
                StoppedLane(stage, of_stage, name, partition, next_offset, stop.reason, stop.text, now_ms)
            )
    return stopped


def lanes_by_stage(config: TableConfigFile, view: InputView) -> dict[Stage, list[str]]:
    """Stage -> lanes to work on. With `input.partitioning: shard` a stopped topic stops all of them."""
    sharded = config.input.is_sharded
    tagging = [] if sharded and view.stopped else range(config.table.index.lanes)
    return {Stage.SHUFFLE: [] if sharded else view.lanes(), Stage.ASSIGN: [assign_lane(n) for n in tagging]}


def stop_text(name: str, reason: StopReason) -> str:
    """Why the topic's lanes are not read, and what an operator can do."""
    if reason is StopReason.TOPIC_MISSING:
        return (
            f"topic {name} does not exist any more: its lanes are not read. Tidemark does not create it "
            f"again by itself: create it, then run `tidemark input accept-topic {name}`; or take it out of "
            "input.topics"
        )
    return (
        f"topic {name} is not the one that was read so far (its topic id in Kafka changed): it was deleted "
        "and created again, or Kafka was restored or mirrored. Its lanes are not read. `tidemark input "
        f"accept-topic {name}` reads it from its start; with --keep-positions it goes on at its positions, "
        "which is right only if the offsets of its records are the same as before"
    )


def shard_growth_text(name: str, topic: InputTopic) -> str:
    """Why a topic that grew is not read with `input.partitioning: shard`, and what to do."""
    return (
        f"topic {name} grew from {topic.partitions_before} to {topic.partitions} partitions, and with "
        "input.partitioning: shard a partition is a lane, whose number is fixed (table.index.lanes): "
        f"nothing is read. Create a topic with {topic.partitions_before} partitions and name it in "
        "input.topics, or set input.partitioning: any; either way begin a new ledger (`tidemark table "
        "adopt --new-ledger`)"
    )


def read_record(storage: Storage) -> InputTopics:
    """The record in the table's folder; empty if there is none. Raises CorruptFileError."""
    try:
        return read_document(storage, INPUT_TOPICS_PATH, InputTopics)
    except FileMissingError:
        return InputTopics()


def _log_change(name: str, before: InputView, view: InputView, topic: InputTopic) -> None:
    former = before.topics.get(name)
    if (
        former is not None
        and topic.incarnation == former.incarnation
        and topic.partitions > former.partitions
    ):
        _log.warning(
            "input topic %s grew from %d to %d partitions: the new ones are read from their start",
            name,
            former.partitions,
            topic.partitions,
        )
    stop = view.stopped.get(name)
    if stop is not None and before.stopped.get(name) != stop:
        _log.error("%s", stop.text)
    elif stop is None and name in before.stopped:
        _log.info("input topic %s is read again", name)


def _grew(name: str, topic: InputTopic) -> str:
    return (
        f"input topic {name} grew from {topic.partitions_before} to {topic.partitions} partitions, "
        "and the table has no ordering field: producers put keys into other partitions since, so a "
        "late event in the former partition may be applied after a newer one. Check the keys that "
        f"changed around that time, then `tidemark input accept-topic {name}` ends this warning"
    )
