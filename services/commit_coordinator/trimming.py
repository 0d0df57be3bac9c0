"""Deletes what is committed from the topics, always one snapshot behind.

Every `EPOCHS_BETWEEN` epochs the fold is stored with the table and named in the decisions; then everything
up to the positions of the snapshot *before* is deleted. The distance matters: a transaction that was open
when the positions were taken may have written below them, and ends (by its timeout) long before the next
snapshot. Batches that counting transactions name and no committed epoch covers stay in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from commit_coordinator.context import Context
from commit_coordinator.staging import STORE, store_document
from epoch_protocol.entries import SnapshotTaken, Topic
from epoch_protocol.state import CountedTagged
from stream_runtime.kafka.ports import Admin, TopicPartition

EPOCHS_BETWEEN: Final = 60
_SECONDS_BETWEEN_MIN: Final = 60


@dataclass(frozen=True)
class _Mark:
    """Positions at one snapshot: nothing below them is needed once the next snapshot stands."""

    taken_ms: int
    snapshot_path: str
    ledger_next: int
    decisions_offset: int
    batches: dict[TopicPartition, int]


@dataclass
class Trimmer:
    """Used by the coordinator's loop. ``topics``: Kafka name per batch topic role; KEYED is missing where the
    assign stage reads the input itself, which is not ours to delete from.
    """

    admin: Admin
    topics: dict[Topic, str]
    ledger: TopicPartition
    decisions: TopicPartition
    _committed: dict[TopicPartition, int] = field(default_factory=dict)
    _last: _Mark | None = None
    _epochs: int = 0

    def committed(self, manifest: Sequence[CountedTagged]) -> None:
        """An epoch was committed: its data and index batches are not needed any more."""
        self._epochs += 1
        for counted in manifest:
            for part in counted.entry.produced:
                if part.topic in (Topic.DATA, Topic.INDEX):
                    at = TopicPartition(self.topics[part.topic], part.partition)
                    self._committed[at] = max(self._committed.get(at, 0), part.last + 1)

    def run_if_due(self, context: Context) -> None:
        """Takes a snapshot and deletes up to the one before; only while no epoch is planned."""
        now_ms = context.clock.now_ms()
        recent = self._last is not None and now_ms - self._last.taken_ms < _SECONDS_BETWEEN_MIN * 1000
        if self._epochs < EPOCHS_BETWEEN or recent or context.fold().state.planned is not None:
            return
        # What lies there now is of the past, and stays so: a successor's documents come after its claim, and
        # with that claim the snapshot below could not be appended any more.
        context.log.settle()
        documents = [info.path for info in context.storage.list(STORE)]
        previous, self._last, self._epochs = self._last, self._take_snapshot(context, now_ms), 0
        if previous is not None:
            self._delete(previous, context.fold().state.tagged)
            for path in documents:
                if path not in (previous.snapshot_path, self._last.snapshot_path):
                    context.storage.delete(path)

    def _take_snapshot(self, context: Context, now_ms: int) -> _Mark:
        fold = context.fold()
        ledger_next = fold.state.ledger_next
        path, sha256 = store_document(context.storage, fold.snapshot())
        entry = SnapshotTaken(context.term, path, sha256, ledger_next)
        # Nothing may be applied between the copy and the entry: readers go on from the copy at the entry.
        context.log.append(entry)
        batches = dict(self._committed)
        if Topic.KEYED in self.topics:
            for lane, position in fold.state.committed.keyed_next.items():
                batches[TopicPartition(self.topics[Topic.KEYED], int(lane))] = position
        return _Mark(now_ms, path, ledger_next, context.fold().state.decisions_next - 1, batches)

    def _delete(self, mark: _Mark, uncommitted: Sequence[CountedTagged]) -> None:
        batches = dict(mark.batches)
        for counted in uncommitted:
            for part in counted.entry.produced:
                if part.topic not in self.topics:
                    continue
                at = TopicPartition(self.topics[part.topic], part.partition)
                if at in batches:
                    batches[at] = min(batches[at], part.first)
        self.admin.delete_records(
            {**batches, self.ledger: mark.ledger_next, self.decisions: mark.decisions_offset}
        )
