"""A table that nobody compacted for many commits is brought back: its merges take a bounded memory, however
many log files there are, and commits go on meanwhile.

TIDEMARK_LEFT_COMMITS says how many commits (`make left-table`: 20 000).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from tests.interop.native_commit import NativeWriter, shard_logs
from tests.interop.native_plan import CommitPlan, locate
from tests.service_actions import ServedTable
from tests.unit.commit_coordinator.table_services.story import ORDERING, SCHEMA, Story
from tidemark.commit_coordinator.calls.service_handoff import ServiceReport
from tidemark.config.table_services_model import (
    DataCompactionConfig,
    IndexCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.commit.markers import delete_markers
from tidemark.hudi_format.metadata_table.delta_commit import begin_delta_commit, complete_delta_commit
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_services.operations import MergeOutcome, decode_plan, encode_outcomes
from tidemark.hudi_format.timeline import Action
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
TOLD_EVERY: Final = 1_000
# For one kind of merge: behind 15 000 commits it took 175 s (docs/table-services.md).
MERGED_S: Final = 900.0 + COMMITS / 5
TASK_MEMORY: Final = 32 << 20
# An interpreter with Arrow takes 80 MiB before it merges anything.
PEAK_MAX: Final = (96 << 20) + 2 * TASK_MEMORY
CONFIG: Final = TableServicesConfig(
    compact_index=IndexCompactionConfig(log_files=1, min_interval_ms=0),
    compact_data=DataCompactionConfig(log_files=1, min_interval_ms=0),
    task_memory_bytes=TASK_MEMORY,
)


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
            self._story.commit((*range(5, 25), 200 + self.commits_beside))
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


def test_a_table_that_was_left_is_brought_back_with_flat_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    story = Story(tmp_path / "table")
    story.commit(range(60))
    story.writer = QuickWriter(story)
    began_s = time.monotonic()
    for number in range(COMMITS):
        if number % TOLD_EVERY == 0:
            _log.info("%d of %d commits after %.0f s", number, COMMITS, time.monotonic() - began_s)
        # Keys come and go, so that the index changes, too.
        gone = 100 + (number - 50) % 90
        deletes = (gone,) if f"k{gone}" in story.live else ()
        story.commit([*range(number % 7, 60), 100 + number % 90], deletes=deletes)
    story.served = ServedTable(story.path, SCHEMA, story.clock, CONFIG)
    for kind in (ServiceKind.COMPACT_INDEX, ServiceKind.COMPACT_DATA):
        began_s = time.monotonic()
        assert story.served.plan(kind), story.served.dropped
        # The instants of other processes are above the plan's.
        story.clock.advance(10.0)
        handed, engine = Handed(story.served, kind), Measured(story)
        settings = MergeSettings(str(story.path), TASK_MEMORY, 0.25, str(tmp_path))
        assert ServicesLoop(handed, engine, settings).run_once(0.0, threading.Event()), handed.failures
        assert engine.commits_beside > 0
        assert handed.report is not None
        assert story.served.decide(kind, handed.report), story.served.dropped
        assert story.served.sweep(kind)
        peak = max(report.peak_bytes for report in engine.reports)
        took_s = time.monotonic() - began_s
        _log.info("%d commits, %s: %.1f s, peak memory %d MiB", COMMITS, kind, took_s, peak >> 20)
        assert peak < PEAK_MAX
    story.check()
    # What was left is merged; what came meanwhile lies on top of it.
    assert story.log_files() <= 2 * engine.commits_beside + 8
