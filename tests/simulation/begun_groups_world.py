"""A table with a partitioned record index that two writers change in turn: attempts of ours, which are
committed, taken back or left by a coordinator that dies, and commits of another engine, which reads the
metadata table by Hudi's rules.

`look` reads the index by those rules and without the product: what it sees must be the rows that were
committed. Each step of an attempt of ours is an event of its own, so the other engine comes in between
wherever the table's lock lets it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

import numpy as np
import pyarrow as pa

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.memory_storage import InMemoryStorage
from tests.hudi_rules.slices import begins_with_uncommitted, groups_of, parse_data_file
from tests.hudi_rules.timeline import Timeline, parse_timeline
from tests.simulation.world.checkers import decode
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table import begun_groups
from tidemark.hudi_format.metadata_table.begun_groups import CommitLogs
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitioned_index import PartitionedEntries, PartitionedLayout
from tidemark.hudi_format.metadata_table.partitions.record_index import RecordIndexEntries
from tidemark.hudi_format.model import InstantGenerator, RecordLocation
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.timeline import Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

Row = tuple[str, str]
"""(partition path, key)"""
FOLDER: Final = ".hoodie/metadata/record_index"
PARTITIONS: Final = ("eu", "us/ca", "a_b")
KEYS: Final = tuple(f"k{number}" for number in range(8))


class Step(Enum):
    """What an attempt has done last."""

    PLANNED = "planned"
    DECIDED = "decided"
    PUBLISHED = "published"
    INDEX_BEGUN = "index begun"
    INDEX_DONE = "index done"
    DONE = "done"
    TAKEN_BACK = "taken back"


class Attempt:
    """One attempt of ours: (partition, key) -> file group of the row, None = deleted."""

    def __init__(self, instant: str, changes: Mapping[Row, str | None], logs: CommitLogs, seen: int) -> None:
        self.instant, self.changes, self.logs, self.seen = instant, changes, logs, seen
        self.before = self.after = PartitionedLayout({})
        self.step, self.completion = Step.PLANNED, ""


class World:
    """`violations` gets what must never be; the first one counts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ids, self.storage = SeededIds(seed), InMemoryStorage()
        self.by = Unfenced(self.storage)
        definition = TableDefinition(
            name="t", table_type=TableType.MERGE_ON_READ, record_key_fields=("id",), partition_fields=("p",)
        )
        create_table(self.storage, definition)
        self.times = InstantGenerator(ManualClock(1_750_000_000_000))
        bootstrap_metadata_table(self.storage, 0, self.times, kind=IndexKind.PARTITIONED)
        self.rows: dict[Row, str] = {}
        self.attempt: Attempt | None = None
        self.to_roll_back: list[str] = []
        self.is_locked = False
        self.commits = 0
        self.reached: set[str] = set()
        self.violations: list[str] = []

    def run(self, events: int = 30) -> list[str]:
        """Random events until a violation."""
        for _ in range(events):
            self.random.choice((self.ours, self.ours, self.ours, self.theirs))()
            if not self.is_locked:
                self.look()
            if self.violations:
                break
        return self.violations

    # -- ours

    def ours(self) -> None:
        """The next step of an attempt. A coordinator may die between any two: its successor holds the lock
        that it finds, has the bytes of what is decided, and does the last step again before the next one.
        """
        if self.to_roll_back:
            return self.roll_back()
        if self.attempt is None:
            return self.plan()
        attempt = self.attempt
        if attempt.step is not Step.PLANNED and self.random.random() < 0.2:
            self.reached.add(f"died when {attempt.step.value}")
            self._do(attempt, attempt.step)
        may_be_taken_back = attempt.step not in (Step.PLANNED, Step.INDEX_DONE)
        if may_be_taken_back and self.random.random() < 0.25:
            return self.take_back(attempt)
        steps = list(Step)
        self._do(attempt, steps[steps.index(attempt.step) + 1])
        return None

    def plan(self) -> None:
        changes = self._changes()
        before = self._layout()
        after = before.begun({path for path, _ in changes}, self.random.randint(1, 3))
        instant = self.times.next()
        create_inflight(self.by, create_requested(self.by, instant, Action.DELTA_COMMIT))
        logs = CommitLogs.of(_entries(changes), before, after, instant)
        self.attempt = Attempt(instant, changes, logs, self.commits)
        self.attempt.before, self.attempt.after = before, after
        for log, data in logs.present:
            publish_log(self.by, log, data)
        self.prepared(self.attempt)

    def prepared(self, attempt: Attempt) -> None:
        """The tasks are done."""

    def _do(self, attempt: Attempt, step: Step) -> None:
        if step is Step.DECIDED:
            self.is_locked = True
            if attempt.step is Step.PLANNED and not self._holds(attempt):
                self.take_back(attempt)
                return
        elif step is Step.PUBLISHED:
            self.by.publish(begun_groups.prepare_begun(self.by, attempt.logs.begun))
            self.reached.add("begun" if attempt.logs.begun else "nothing begun")
        elif step is Step.INDEX_BEGUN:
            begin_delta_commit(self.by, attempt.instant)
        elif step is Step.INDEX_DONE:
            self._complete_index(attempt)
        elif step is Step.DONE:
            self._complete(attempt.instant, attempt.changes)
            self.attempt, self.is_locked = None, False
        attempt.step = step

    def _holds(self, attempt: Attempt) -> bool:
        """Whether the attempt may be decided: nobody committed since it was planned."""
        try:
            begun_groups.check_not_begun(attempt.before, attempt.after, self._layout())
        except TimelineConflictError:
            self.reached.add("another writer began the partition")
            return False
        return attempt.seen == self.commits

    def _complete_index(self, attempt: Attempt) -> None:
        inflight = begin_delta_commit(self.by, attempt.instant)
        logs = [*attempt.logs.present, *attempt.logs.begun]
        stats = [*(log for log, _ in logs), publish_files_log(self.by, attempt.instant, [])]
        metadata = delta_commit_metadata(attempt.instant, stats)
        attempt.completion = attempt.completion or self.times.next()
        complete_delta_commit(self.by, inflight, attempt.completion, metadata)

    def take_back(self, attempt: Attempt) -> None:
        """The decision is undone, then the lock given away; the rollback comes later."""
        self.reached.add(f"taken back when {attempt.step.value}")
        begun_groups.take_back_begun(self.by, [log for log, _ in attempt.logs.begun])
        self.to_roll_back.append(attempt.instant)
        self.attempt, self.is_locked = None, False

    def roll_back(self) -> None:
        if not self.is_locked:
            rollback_pending(self.by, self.to_roll_back.pop(), self.times)

    # -- the other engine

    def theirs(self) -> None:
        """A whole commit of the other engine, by what its readers see."""
        if self.is_locked:
            self.reached.add("the other engine waited")
            return
        data, metadata = self._timelines()
        changes = self._changes()
        before = self._layout()
        for path in {path for path, _ in changes}:
            hidden = [name for name in self._hidden(data, metadata) if f"-{_escaped(path)}-" in name]
            if hidden:
                self.violations.append(f"a write of the other engine fails at {hidden[0]}")
                return
        instant = self.times.next()
        create_inflight(self.by, create_requested(self.by, instant, Action.DELTA_COMMIT))
        after = before.begun({path for path, _ in changes}, self.random.randint(1, 3))
        logs = CommitLogs.of(_entries(changes), before, after, instant)
        inflight = begin_delta_commit(self.by, instant)
        for log, content in [*logs.begun, *logs.present]:
            publish_log(self.by, log, content)
        stats = [log for log, _ in [*logs.begun, *logs.present]] + [publish_files_log(self.by, instant, [])]
        complete_delta_commit(self.by, inflight, self.times.next(), delta_commit_metadata(instant, stats))
        self._complete(instant, changes)

    def _complete(self, instant: str, changes: Mapping[Row, str | None]) -> None:
        inflight = create_inflight(self.by, create_requested(self.by, instant, Action.DELTA_COMMIT))
        complete(self.by, inflight, self.times.next(), encode_commit_metadata(CommitMetadata()))
        self.commits += 1
        for row, file_id in changes.items():
            if file_id is None:
                self.rows.pop(row, None)
            else:
                self.rows[row] = file_id

    def _changes(self) -> dict[Row, str | None]:
        path = self.random.choice(PARTITIONS)
        changes: dict[Row, str | None] = {}
        for key in self.random.sample(KEYS, self.random.randint(1, 5)):
            is_there = (path, key) in self.rows
            changes[path, key] = None if is_there and self.random.random() < 0.5 else f"{self.ids.uuid()}-0"
        return changes

    def _layout(self) -> PartitionedLayout:
        """By all files that are there: so Hudi counts groups, too."""
        found = (parse_data_file(name) for name in self.storage.names(FOLDER))
        return PartitionedLayout.of_file_ids([file.file_id for file in found if file is not None])

    # -- the checker

    def look(self) -> None:
        """Compares what Hudi's readers see of the index with the rows."""
        data, metadata = self._timelines()
        seen = dict(self._entries_seen(data, metadata))
        if seen != self.rows:
            lost, extra = self.rows.keys() - seen.keys(), seen.keys() - self.rows.keys()
            self.violations.append(f"the index lost {sorted(lost)} and has {sorted(extra)} beside the rows")

    def _timelines(self) -> tuple[Timeline, Timeline]:
        roots = (".hoodie/timeline", ".hoodie/metadata/.hoodie/timeline")
        data, metadata = (parse_timeline(self.storage.names(root)) for root in roots)
        return data, metadata

    def _hidden(self, data: Timeline, metadata: Timeline) -> list[str]:
        groups = groups_of({"": self.storage.names(FOLDER)})
        return [
            file_id
            for (_, file_id), names in groups.items()
            if begins_with_uncommitted(names, lambda instant: instant_counts(instant, data, metadata))
        ]

    def _entries_seen(self, data: Timeline, metadata: Timeline) -> Iterator[tuple[Row, str]]:
        hidden = self._hidden(data, metadata)
        for (_, file_id), names in groups_of({"": self.storage.names(FOLDER)}).items():
            if file_id in hidden:
                continue
            files = [file for name in names if (file := parse_data_file(name)) is not None]
            entries: dict[str, tuple[str, str]] = {}
            for file in sorted(files, key=lambda file: (file.instant, file.version, file.token)):
                if instant_counts(file.instant, data, metadata):
                    _fold(entries, self.storage.read(f"{FOLDER}/{file.name}"))
            for key, (path, place) in entries.items():
                yield (path, key), place


def instant_counts(instant: str, data: Timeline, metadata: Timeline) -> bool:
    found = metadata.instants.get(instant)
    return found is not None and found.completion is not None and data.counts(instant)


def _fold(entries: dict[str, tuple[str, str]], content: bytes) -> None:
    for block in decode.log_blocks(content):
        if block.kind == decode.HFILE:
            for key, value in decode.hfile_entries(block.content):
                entries[key] = decode.index_place(value, block.schema)
        elif block.kind == decode.DELETE:
            for each in decode.deletes(block.content):
                entries.pop(each.key, None)


def _escaped(path: str) -> str:
    return path.replace("/", "%2F").replace("_", "%5F")


def _entries(changes: Mapping[Row, str | None]) -> PartitionedEntries:
    paths = sorted({path for path, _ in changes})
    places = [RecordLocation(path, at) for (path, _), at in changes.items() if at is not None]
    numbers = iter(range(len(places)))
    ids = [-1 if at is None else next(numbers) for at in changes.values()]
    entries = RecordIndexEntries(
        pa.array([key for _, key in changes], pa.string()),
        np.array(ids, np.int32),
        places,
        np.zeros(len(ids), np.int64),
    )
    return PartitionedEntries(entries, np.array([paths.index(path) for path, _ in changes], np.int32), paths)
