"""Deletes what is committed from the topics, always one snapshot behind.

Every `EPOCHS_BETWEEN` epochs, or `SECONDS_BETWEEN` after the last time where epochs are slow, the fold is
stored with the table and named in the decisions; then everything up to the positions of the snapshot *before*
is deleted. So a topic holds what came in about twice that time, however many records an epoch has: with
epochs of a minute, five minutes of data and not two hours. The distance matters: a transaction that was open
when the positions were taken may have written below them, and ends (by its timeout) long before the next
snapshot. Batches that counting transactions name and no committed epoch covers stay in any case.

The snapshot before, its positions and its epoch are in the decisions, and so in the fold. A coordinator goes
on where the one before it was: tables whose coordinators live for a few epochs each are trimmed as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.stored_documents import STORE, store_document
from tidemark.epoch_protocol.entries import SnapshotTaken, Topic
from tidemark.epoch_protocol.state import CountedTagged, LastSnapshot
from tidemark.stream_runtime.kafka.ports import Admin, TopicPartition

EPOCHS_BETWEEN: Final = 60
SECONDS_BETWEEN: Final = 120
_SECONDS_BETWEEN_MIN: Final = 60


@dataclass
class Trimmer:
    """Used by the coordinator's loop. ``topics``: Kafka name per batch topic role; KEYED is missing where the
    assign stage reads the input itself, which is not ours to delete from. Tombstones end by time: a snapshot
    only says where they begin.
    """

    admin: Admin
    topics: dict[Topic, str]
    ledger: TopicPartition
    decisions: TopicPartition
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    """What commits of this coordinator covered."""
    _begun_ms: int = 0
    """When it first looked: from then on a table that never had a snapshot waits for one."""

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
        previous = state.last_snapshot
        self._begun_ms = self._begun_ms or now_ms
        if state.planned is not None or not self._is_due(previous, state.committed.epoch, now_ms):
            return
        # What lies there now is of the past, and stays so: a successor's documents come after its claim, and
        # with that claim the snapshot below could not be appended any more.
        context.log.settle()
        documents = [info.path for info in context.storage.list(STORE)]
        previous = context.fold().state.last_snapshot
        path = self._take_snapshot(context, previous, now_ms)
        if previous is not None:
            self._delete(previous, context.fold().state.tagged)
            for document in documents:
                if document not in (previous.path, path):
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
            for lane in fold.state.tombstones.lanes:
                at = TopicPartition(self.topics[Topic.TOMBSTONES], int(lane))
                batches[at] = self.admin.start_offset(at)
        path, sha256 = store_document(context.storage, fold.snapshot())
        entry = SnapshotTaken(context.term, path, sha256, ledger_next, now_ms, self._named(batches))
        # Nothing may be applied between the copy and the entry: readers go on from the copy at the entry.
        context.log.append(entry)
        return path

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
        self.admin.delete_records({**batches, self.ledger: mark.ledger_next, self.decisions: mark.decision})

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

    def _is_due(self, previous: LastSnapshot | None, epoch: int, now_ms: int) -> bool:
        """``epoch``: the last committed one. Where none was committed since, there is nothing to delete."""
        epochs = epoch - (previous.epoch if previous is not None else 0)
        since_ms = previous.taken_ms if previous is not None else self._begun_ms
        # A clock that was set back makes no snapshot recent for ever.
        waited_s = max(now_ms - since_ms, 0) / 1000
        if previous is not None and now_ms >= since_ms and waited_s < _SECONDS_BETWEEN_MIN:
            return False
        return epochs >= (1 if waited_s >= SECONDS_BETWEEN else EPOCHS_BETWEEN)
