"""A table that nobody served for many commits is brought back. Merges in processes of their own take a
bounded memory, though the log files have many times what a merge may hold, and a native writer goes on
committing meanwhile. What is superseded is cleaned then, and both timelines are archived.

The rows of one partition are in blocks as Hudi on Spark writes them (Avro), which merges hold with their
rows; those of the other are in ours (Parquet), which they read twice. Of the index a merge holds little here.

TIDEMARK_LEFT_COMMITS says how many commits (`make left-table`: 20 000).
"""

from __future__ import annotations

import io
import json
import logging
import os
import random
import struct
import threading
import time
from base64 import b64encode
from collections.abc import Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import fastavro
import pyarrow as pa
import pytest

from tests.interop import native_commit
from tests.interop.native_commit import NativeWriter, shard_logs
from tests.interop.native_plan import CommitPlan, locate
from tests.service_actions import ServedTable
from tests.unit.commit_coordinator.table_services.story import ORDERING, SCHEMA, Story
from tidemark.commit_coordinator.calls.service_handoff import ServiceReport
from tidemark.config.table_services_model import (
    ArchiveConfig,
    CleanConfig,
    DataCompactionConfig,
    IndexCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import delete_markers
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.log_file import BlockType, HeaderKey, frame_block
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit, complete_delta_commit
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.operations import MergeOutcome, decode_plan, encode_outcomes
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import (
    SCHEMA_KEY,
    CommitMetadata,
    encode_commit_metadata,
    group_stats,
)
from tidemark.stream_writer.table_services.bins import BinReport, MergeFailed, decode_report
from tidemark.stream_writer.table_services.process_engine import ProcessEngine
from tidemark.stream_writer.table_services.services_loop import (
    BegunService,
    MergeSettings,
    PlannedService,
    ServicesLoop,
)

_log = logging.getLogger(__name__)
COMMITS: Final = int(os.environ.get("TIDEMARK_LEFT_COMMITS", "120"))
KEYS: Final = 500
ROWS: Final = 60
"""Of each commit: about 30 in each partition."""
TOLD_EVERY: Final = 1_000
# For one kind of merge: behind 15 000 commits it took 175 s (docs/table-services.md).
MERGED_S: Final = 900.0 + COMMITS / 5
TASK_MEMORY: Final = 32 << 20
# An interpreter with Arrow takes 80 MiB before it merges anything.
PEAK_MAX: Final = (96 << 20) + 2 * TASK_MEMORY
CLEANED_AT_ONCE: Final = min(COMMITS // 4, 2_000)
"""Files that one clean deletes, so few that the cleans are many. Each adds a log file to `files`."""
ACTIONS_MAX: Final = 200 + COMMITS // 100
CONFIG: Final = TableServicesConfig(
    compact_index=IndexCompactionConfig(log_files=1, min_interval_ms=0),
    compact_data=DataCompactionConfig(log_files=1, min_interval_ms=0),
    clean=CleanConfig(retain_ms=1, max_files=CLEANED_AT_ONCE),
    archive=ArchiveConfig(min=2, max=2, batch=1),
    task_memory_bytes=TASK_MEMORY,
)
NOISE: Final = max((4 * TASK_MEMORY) // (COMMITS * ROWS), 16)
"""Bytes of each row that no codec makes smaller: in all commits four times the memory of a merge."""
AVRO: Final = "us"
"""The partition with blocks as Spark writes them."""


class LeftStory(Story):
    """Whose rows hardly get smaller."""

    def named(self, n: int) -> str:
        noise = random.Random(f"{n} {self.commits}").randbytes(NOISE)
        return f"{super().named(n)} {b64encode(noise).decode()}"


@cache
def parsed(avro: str) -> Any:
    return fastavro.parse_schema(json.loads(avro))


def log_bytes(
    schema: TableSchema,
    instant: str,
    rows: pa.Table,
    deletes: Deletes,
    partition_path: str,
    ordering: OrderingField | None,
) -> bytes:
    """As `data_log_bytes`; with an Avro block where Spark would write one."""
    if partition_path != AVRO or not rows.num_rows:
        return data_log_bytes(schema, instant, rows, deletes, partition_path, ordering)
    content = io.BytesIO()
    content.write(struct.pack(">ii", 3, rows.num_rows))
    for row in rows.to_pylist():
        record = io.BytesIO()
        fastavro.schemaless_writer(record, parsed(schema.avro_with_meta_json), row)
        content.write(struct.pack(">i", record.tell()) + record.getvalue())
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema.avro_with_meta_json}
    block = frame_block(BlockType.AVRO_DATA, headers, content.getvalue())
    if not len(deletes):
        return block
    return block + data_log_bytes(schema, instant, None, deletes, partition_path, ordering)


class Measured(ProcessEngine):
    """Keeps what the children say, and has commits made while they run."""

    def __init__(self, story: Story) -> None:
        super().__init__(slots=4)
        self.reports: list[BinReport] = []
        self._story = story
        self.commits_beside = 0

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        found: list[bytes] = []
        thread = threading.Thread(
            target=lambda: found.extend(super(Measured, self).run_bins(bins)), daemon=True
        )
        thread.start()
        end_s = time.monotonic() + MERGED_S
        while thread.is_alive():
            assert time.monotonic() < end_s, f"{len(bins)} merges, {self.commits_beside} commits beside them"
            self._story.commit((*range(5, 10), KEYS + self.commits_beside))
            self.commits_beside += 1
            time.sleep(0.05)
        thread.join()
        self.reports += map(decode_report, found)
        return found


class Handed:
    """The coordinator's calls, answered from a table that is served in this process."""

    def __init__(self, served: ServedTable, kind: ServiceKind) -> None:
        self._served, self._kind = served, kind
        self.report: ServiceReport | None = None
        self.failures: list[str] = []

    def next_service(self, wait_s: float) -> PlannedService | None:
        planned = self._served.state.services[self._kind].planned
        return PlannedService(planned.service, planned.kind, planned.instant)

    def begin_service(self, number: int) -> BegunService:
        planned = self._served.state.services[self._kind].planned
        plan = decode_plan(self._served.storage.read(planned.plan_path), planned.plan_path)
        return BegunService(plan, self._served.term.open_service(number), 0.5)

    def keep_service(self, number: int, done: int) -> None:
        """Nobody else asks."""

    def report_service(self, number: int, outcomes: Sequence[MergeOutcome]) -> None:
        tickets = tuple(each.ticket for each in outcomes if each.ticket is not None)
        self.report = ServiceReport(encode_outcomes(tuple(outcomes)), tickets)

    def report_service_failed(
        self, number: int, reason: str, done: int, failures: Sequence[MergeFailed]
    ) -> None:
        self.failures.append(reason)

    def give_service_back(self, number: int) -> None:
        """Nobody else asks."""


class QuickWriter(NativeWriter):
    """Commits that know where keys are, so that the thousandth costs as much as the first."""

    def __init__(self, story: Story) -> None:
        super().__init__(story.path, SCHEMA, story.clock)
        snapshot = MetadataTableSnapshot.load(self._storage)
        self._known = locate(snapshot, list(story.live))
        self._slices = {
            RecordLocation(each.partition_path, each.file_id): each for each in self.table.slices()
        }
        self._homes = {each.partition_path: each for each in sorted(self._slices, reverse=True)}
        self._instants.observe(snapshot.data_timeline.times() + snapshot.metadata_timeline.times())

    def commit(self, upserts: pa.Table, deletes: Sequence[tuple[str, int | None]] = ()) -> str:
        by, instant = Unfenced(self._storage), self._instants.next()
        requested = create_requested(by, instant, Action.DELTA_COMMIT)
        data = create_inflight(by, requested, encode_commit_metadata(CommitMetadata()))
        plan = CommitPlan(upserts, upserts.column("id").combine_chunks(), ORDERING, self._slices)
        keys, paths = (column.to_pylist() for column in upserts.columns[:2])
        for row, (key, path) in enumerate(zip(keys, paths, strict=True)):
            target = self._known.get(key) or self._homes[path]
            plan.group(target).rows.append(row)
            if key not in self._known:
                plan.index[key] = self._known[key] = target
        for key, value in deletes:
            plan.group(self._known.pop(key)).deletes.append((key, value or 0))
            plan.index[key] = None
        stats = [self._write_group(instant, plan, location) for location in plan.groups]
        index = self._write_index(instant, shard_logs(instant, plan, 2), stats)
        complete_delta_commit(by, begin_delta_commit(by, instant), self._instants.next(), index)
        metadata = CommitMetadata(
            write_stats=group_stats(stats), extra_metadata={SCHEMA_KEY: SCHEMA.avro_json}
        )
        complete(by, data, self._instants.next(), encode_commit_metadata(metadata))
        delete_markers(self._storage, instant)
        return instant


def left(tmp_path: Path) -> Story:
    """A table of so many commits. Keys come, change, go and come back, so that the index changes, too."""
    story = LeftStory(tmp_path / "table")
    story.commit(range(ROWS))
    story.writer = QuickWriter(story)
    began_s = time.monotonic()
    for number in range(COMMITS):
        if number % TOLD_EVERY == 0:
            _log.info("%d of %d commits after %.0f s", number, COMMITS, time.monotonic() - began_s)
        first = 7 * number
        gone = (first + KEYS // 2) % KEYS
        deletes = (gone,) if f"k{gone}" in story.live else ()
        story.commit([(first + n) % KEYS for n in range(ROWS)], deletes=deletes)
    return story


def check_that_the_rows_do_not_fit(story: Story) -> None:
    """What is to be merged has many times what a merge may hold. In the partition with Avro blocks that is so
    with each key's newest row alone, too: those rows have to go to disk.
    """
    planned = story.served.state.services[ServiceKind.COMPACT_DATA].planned
    operations = decode_plan(story.storage.read(planned.plan_path), planned.plan_path).operations
    assert min(each.log_bytes for each in operations) > 1.5 * TASK_MEMORY
    assert sum(each.log_bytes for each in operations) > 3.5 * TASK_MEMORY
    newest = sum(len(name) for region, _, name in story.live.values() if region == AVRO)
    held = MergeBounds(TASK_MEMORY, Path()).held_bytes
    assert newest > held / 2 or COMMITS > 120


def tidied(story: Story) -> dict[ServiceKind, int]:
    """What came meanwhile is merged, too, and then cleaned and archived as far as it goes: behind the newest
    index compaction but one, which savepoints of the writes behind it may need. Returns the actions that it
    took.
    """
    served = story.served
    for _ in range(2):
        story.pass_by(10.0)
        # New keys in every shard: archival keeps the compaction of a shard to which nothing is written.
        first = 1_000_000 + 16 * story.commits
        story.commit((1, 2, *range(first, first + 16)))
        served.list_files()
        assert served.act(ServiceKind.COMPACT_DATA), served.dropped
        assert served.act(ServiceKind.COMPACT_INDEX), served.dropped
    story.later()
    served.list_files()
    actions = {}
    for kind in (ServiceKind.CLEAN_DATA, ServiceKind.CLEAN_INDEX, ServiceKind.ARCHIVE):
        actions[kind] = sum(takewhile(bool, (served.act(kind) for _ in range(ACTIONS_MAX))))
        assert 0 < actions[kind] < ACTIONS_MAX, served.dropped
    return actions


def test_a_table_that_was_left_is_brought_back_with_flat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(native_commit, "data_log_bytes", log_bytes)
    story = left(tmp_path)
    story.served = ServedTable(story.path, SCHEMA, story.clock, CONFIG)
    for kind in (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA):
        began_s = time.monotonic()
        assert story.served.plan(kind), story.served.dropped
        if kind is ServiceKind.COMPACT_DATA:
            check_that_the_rows_do_not_fit(story)
        # The instants of other processes are above the plan's.
        story.clock.advance(10.0)
        handed, engine = Handed(story.served, kind), Measured(story)
        settings = MergeSettings(str(story.path), TASK_MEMORY, str(tmp_path))
        assert ServicesLoop(handed, engine, settings).run_once(0.0, threading.Event()), handed.failures
        assert engine.commits_beside > 0
        assert handed.report is not None
        assert story.served.decide(kind, handed.report), story.served.dropped
        assert story.served.sweep(kind)
        peak = max(report.peak_bytes for report in engine.reports)
        took_s = time.monotonic() - began_s
        _log.info("%d commits, %s: %.1f s, peak memory %d MiB", COMMITS, kind, took_s, peak >> 20)
        assert peak < PEAK_MAX
    # What was left is merged; what came meanwhile lies on top of it.
    assert story.log_files() <= 2 * engine.commits_beside
    story.check()
    actions = tidied(story)
    assert actions[ServiceKind.CLEAN_DATA] > 5
    assert actions[ServiceKind.ARCHIVE] < 20 + COMMITS // 100
    story.check()
    assert story.log_files() == 0
    # Each of those cleans is an instant of both timelines, with a log file in `files`, behind all writes. The
    # next compaction and archival take them.
    assert story.index_log_files() > 5
    tidied(story)
    story.check()
    assert story.log_files() == 0
    assert story.index_log_files() < 10
    assert len(story.table_files()) < 30
    for root in (DATA_ROOT, METADATA_TABLE_ROOT):
        assert len(load_timeline(story.storage, root).instants) < 12, root
