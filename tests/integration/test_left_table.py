"""A table that nobody served for many commits is brought back. Merges in processes of their own take a
bounded memory, though the log files have many times what a merge may hold, and a native writer goes on
committing meanwhile. What is superseded is cleaned then, and both timelines are archived. Of the index a
merge holds little here. (With `tidemark run` and its epochs: tests/e2e/test_left_table_served.py.)
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

import pytest

from tests.left_table import AVRO, COMMITS, KEYS, PEAK_MAX, TASK_MEMORY, left
from tests.service_actions import ServedTable
from tests.unit.commit_coordinator.table_services.story import SCHEMA, Story
from tidemark.commit_coordinator.calls.service_handoff import ServiceReport
from tidemark.config.table_services_model import (
    ArchiveConfig,
    CleanConfig,
    DataCompactionConfig,
    IndexCompactionConfig,
    TableServicesConfig,
)
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.operations import MergeOutcome, decode_plan, encode_outcomes
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline
from tidemark.stream_writer.table_services.bins import BinReport, MergeFailed, decode_report
from tidemark.stream_writer.table_services.process_engine import ProcessEngine
from tidemark.stream_writer.table_services.services_loop import (
    BegunService,
    MergeSettings,
    PlannedService,
    ServicesLoop,
)

_log = logging.getLogger(__name__)
# For one kind of merge: behind 15 000 commits it took 175 s (docs/table-services.md).
MERGED_S: Final = 900.0 + COMMITS / 5
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
    story = left(tmp_path / "table", monkeypatch)
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
