"""Deletes committed records from Tidemark's topics, always one snapshot behind.

Every `EPOCHS_BETWEEN` epochs, after `SECONDS_BETWEEN` if epochs are slow, or after `ENTRIES_BETWEEN` entries
if no epoch is committed, the coordinator

1. stores the fold in the table's folder;
2. appends `SnapshotTaken`, with the positions up to which each topic is committed;
3. deletes up to the positions of the snapshot *before* this one.

So a topic holds the data of about two such periods. Example: with epochs of a minute, that is five minutes of
data and not two hours. It must be the snapshot before: a transaction that was open when positions were taken
may have written below them, and its timeout ends it long before the next snapshot. Batches of counting
transactions that no committed epoch covers are never deleted.

A table without input has entries all the same. Example: another engine writes each minute, so table services
append three decisions hundreds of times a day, and store two documents each time. Assigners that restart
claim their lanes. Counting entries bounds both, but for while an attempt is open, and a table where nothing
happens takes no snapshot.

`SnapshotTaken` is part of the fold, so a new coordinator continues where the last one was. Tables whose
coordinators live for a few epochs each are trimmed as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.stored_documents import STORE, store_document
from tidemark.epoch_protocol.entries import SnapshotTaken, Topic
from tidemark.epoch_protocol.state import CountedTagged, FoldState, LastSnapshot
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import REFUSED, KafkaError
from tidemark.stream_runtime.kafka.ports import Admin, TopicPartition

EPOCHS_BETWEEN: Final = 60
SECONDS_BETWEEN: Final = 120
ENTRIES_BETWEEN: Final = 1_000
_SECONDS_BETWEEN_MIN: Final = 60
_TRIES_EVERY_MS: Final = 10_000
_log = logging.getLogger("tidemark.coordinator")


@dataclass
class Trimmer:
    """Used by the coordinator's loop alone.

    ``topics``: role -> name of the batch topic. KEYED is missing if the assign stage reads the input itself:
    we do not delete from the input. Tombstones are deleted by Kafka's retention; a snapshot only names the
    offsets where they begin.
    """

    admin: Admin
    topics: dict[Topic, str]
    ledger: TopicPartition
    decisions: TopicPartition
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    """Partition -> next offset after the batches of this coordinator's commits."""
    _begun_ms: int = 0
    """The first call of `run_if_due`; a table without a snapshot waits `SECONDS_BETWEEN` from then."""
    _not_before_ms: int = 0
    """After a snapshot that Kafka did not take: each try lists a folder and encodes the fold."""
    refused: str = ""
    """Why Kafka would not delete records the last time; the next snapshot deletes them as well."""

    def committed(self, manifest: Sequence[CountedTagged]) -> None:
        """An epoch was committed: its data and index batches are not needed any more."""
        for counted in manifest:
            for part in counted.entry.produced:
                if part.topic in (Topic.DATA, Topic.INDEX) and part.topic in self.topics:
                    at = TopicPartition(self.topics[part.topic], part.partition)
                    self._committed[at] = max(self._committed.get(at, 0), part.last + 1)

    def run_if_due(self, context: Context) -> None:
        """Takes a snapshot and deletes up to the one before; only while no epoch is planned."""
        state, now_ms = context.fold().state, context.clock.now_ms()
        self._begun_ms = self._begun_ms or now_ms
        if state.planned is not None or now_ms < self._not_before_ms or not self._is_due(state, now_ms):
            return
        try:
            self._trim(context, now_ms)
        except (KafkaError, DeadlineExceededError):
            self._not_before_ms = now_ms + _TRIES_EVERY_MS
            raise

    def _trim(self, context: Context, now_ms: int) -> None:
        # The documents that are there now may be deleted below. None of them can be a successor's: it stores
        # documents only after its claim, and after that claim we could not append our snapshot.
        context.log.settle()
        documents = [info.path for info in context.storage.list(STORE)]
        previous = context.fold().state.last_snapshot
        path = self._take_snapshot(context, previous, now_ms)
        if previous is not None:
            self._delete(previous, context.fold().state.tagged)
            kept = {previous.path, path, *_of_services(context.fold().state)}
            for document in documents:
                if document not in kept:
                    context.storage.delete(document)

    def _take_snapshot(self, context: Context, previous: LastSnapshot | None, now_ms: int) -> str:
        fold = context.fold()
        ledger_next = fold.state.ledger_next
        batches = self._positions(previous.batches if previous is not None else {})
        for at, position in self._committed.items():
            batches[at] = max(batches.get(at, 0), position)
        if Topic.KEYED in self.topics:
            for lane, position in fold.state.committed.keyed_next.items():
                batches[TopicPartition(self.topics[Topic.KEYED], int(lane))] = position
        if Topic.TOMBSTONES in self.topics:
            batches |= self._tombstones_begin(fold.state.tombstones.lanes)
        path, sha256 = store_document(context.storage, fold.snapshot())
        entry = SnapshotTaken(context.term, path, sha256, ledger_next, now_ms, self._named(batches))
        # No decision may be applied between the copy and the entry: readers continue from the copy at the
        # entry.
        context.log.append(entry)
        return path

    def _tombstones_begin(self, lanes: Iterable[str]) -> dict[TopicPartition, int]:
        """Where the topic of tombstones begins now, by lane. Without an answer about one (each costs time)
        the former snapshot's offsets are kept for it and those behind it: that forgets fewer tombstones, and
        the other topics are trimmed all the same.
        """
        begin: dict[TopicPartition, int] = {}
        try:
            for lane in lanes:
                at = TopicPartition(self.topics[Topic.TOMBSTONES], int(lane))
                begin[at] = self.admin.start_offset(at)
        except KafkaError as error:
            _log.warning("some tombstones are not forgotten yet: %s", error)
        return begin

    def _delete(self, mark: LastSnapshot, uncommitted: Sequence[CountedTagged]) -> None:
        batches = self._positions(mark.batches)
        for counted in uncommitted:
            for part in counted.entry.produced:
                if part.topic not in self.topics:
                    continue
                at = TopicPartition(self.topics[part.topic], part.partition)
                if at in batches:
                    batches[at] = min(batches[at], part.first)
        batches = {at: to for at, to in batches.items() if at.topic != self.topics.get(Topic.TOMBSTONES)}
        self._delete_below({**batches, self.ledger: mark.ledger_next, self.decisions: mark.decision})

    def _delete_below(self, offsets: dict[TopicPartition, int]) -> None:
        """Deletes the records. Commits go on without the right to: topics grow, and ``refused`` says it."""
        try:
            self.admin.delete_records(offsets)
        except REFUSED as error:
            self.refused = str(error)
            _log.error("committed records are not deleted, the table's topics grow: %s", error)
        else:
            self.refused = ""

    def _positions(self, named: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
        return {
            TopicPartition(name, int(partition)): position
            for topic, name in self.topics.items()
            for partition, position in named.get(topic.value, {}).items()
        }

    def _named(self, batches: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
        named: dict[str, dict[str, int]] = {}
        roles = {name: topic for topic, name in self.topics.items()}
        for at, position in sorted(batches.items()):
            named.setdefault(roles[at.topic].value, {})[str(at.partition)] = position
        return named

    def _is_due(self, state: FoldState, now_ms: int) -> bool:
        """Whether a snapshot is due. None is without a new epoch or `ENTRIES_BETWEEN` new entries."""
        previous = state.last_snapshot
        epochs, entries = state.committed.epoch, state.decisions_next + state.ledger_next
        since_ms = self._begun_ms
        if previous is not None:
            epochs -= previous.epoch
            entries -= previous.decision + previous.ledger_next
            since_ms = previous.taken_ms
        waited_s = (now_ms - since_ms) / 1000
        if previous is not None and 0 <= waited_s < _SECONDS_BETWEEN_MIN:
            return False
        # If the clock was set back, the last snapshot lies in the future: that must not delay the next one.
        if entries >= ENTRIES_BETWEEN and not 0 <= waited_s < SECONDS_BETWEEN:
            return True
        return epochs >= (1 if waited_s >= SECONDS_BETWEEN else EPOCHS_BETWEEN)


def _of_services(state: FoldState) -> Iterator[str]:
    """The documents that open service actions need."""
    for held in state.services.values():
        yield held.planned.plan_path
        if held.decided is not None:
            yield held.decided.statuses_path
