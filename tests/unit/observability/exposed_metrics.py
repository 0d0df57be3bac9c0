"""Every metric that Tidemark exposes, from the classes that make them, each fed once with all there is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client.core import Metric

from testing.clock import ManualClock
from tests.unit.table_files import write_config
from tests.unit.typed_status import typed_verification
from tidemark.cli.run.run_metrics import RunMetrics
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.domain.slice_stats import SliceStats, TableSlices
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.metrics import STEPS, CoordinatorMetrics
from tidemark.commit_coordinator.status.sampled_stats import Lags, SampledStats, TableStats
from tidemark.commit_coordinator.verification.verdict import VerificationResult
from tidemark.config import load_config
from tidemark.epoch_protocol.entries import EpochPlanned, Stage
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceKind,
    ServiceOutcome,
    ServicePlanned,
)
from tidemark.epoch_protocol.stopped_lanes import StoppedLane, StopReason
from tidemark.hudi_format.metadata_table.partitions.record_index import record_index_log
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.assigner_metrics import AssignerMetrics
from tidemark.index_assigner.slots.lease import StageReport
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_writer.coordinator_client import PlannedEpoch
from tidemark.stream_writer.observer import WrittenEpoch
from tidemark.stream_writer.task_outcome import TaskFailed, TaskSucceeded
from tidemark.stream_writer.writer_metrics import WriterMetrics
from tidemark.table_status.services import OwnServices, ServiceKindState

STAT = {
    "path": "p/f_1-0-1_3.parquet",
    "numInserts": 4,
    "numUpdateWrites": 3,
    "numDeletes": 2,
    "fileSizeInBytes": 1_000,
}
STOPPED = StoppedLane(Stage.SHUFFLE, "in:1", "in", 1, 7, StopReason.UNREADABLE, "broken", 0)
VERDICT = VerificationResult({"agrees": True, "differences": {}}, 2.0, 0)
VERIFIED = {
    "every_commits": 5,
    "running": False,
    "last": {"seconds": 2.0, "agrees": True, "differences": {}, "error": None},
    "verified": {"epoch": 4, "as_of": "20130101000000000"},
}


def coordinator(folder: Path) -> Metrics:
    """With a committed epoch, lags and a verification."""
    clock = ManualClock()
    board = ViewBoard()
    services = OwnServices(enabled=True, backpressure="none", kinds=[ServiceKindState(kind="archive")])
    view = CoordinatorView(
        awaited_index="secondary_index_by_city",
        term=5,
        epoch=3,
        completion="20130101000000000",
        planned_ms=clock.now_ms() - 2_000,
        services=services,
    )
    board.show(view)
    member = SimpleNamespace()
    status = SimpleNamespace(
        board=board,
        members=SimpleNamespace(
            members=lambda stage: [member], leases=lambda stage: {"0": (None, 0), "1": (None, None)}
        ),
        placement=SimpleNamespace(
            stats=lambda: {"file_groups": 5.0, "bytes": 9.0, "target_bytes": 1.0},
            snapshot=lambda: TableSlices((SliceStats("p", "f", 10, 2, 5, 0),)),
        ),
        stopped_lanes=lambda: [STOPPED],
        verification=SimpleNamespace(last=VERDICT, decided=VERDICT, undecided=0),
    )
    stages = ("shuffle", "assign", "commit")
    sampled = SimpleNamespace(
        lags=Lags(dict.fromkeys(stages, 7), dict.fromkeys(stages, 1.5)),
        table=TableStats({"data": 1, "metadata": 0}, {"0": 3}),
        oldest_transaction_s=0.0,
        dead_letters=LetterRetention(70, 7, 3),
    )
    made = CoordinatorMetrics(load_config(write_config(folder)), clock, lambda: 5)
    made.watch(cast(StatusSource, status), cast(SampledStats, sampled))
    planned = EpochPlanned(5, 3, 1, 0, 9, "20130101000000000", "0", "", clock.now_ms())
    made.committed(planned, Report((), (), dict.fromkeys(STEPS, 12.0)))
    for entry in (
        ServicePlanned(5, 1, ServiceKind.ARCHIVE, "20130101000000001", "p", "s", 0),
        ServiceCommitted(5, 1, "20130101000000001", "", ServiceOutcome.DONE, 2_000),
    ):
        made.services.observe(Applied(0, entry, Verdict.APPLIED))
    return made.metrics


def assigner(folder: Path) -> Metrics:
    """With a slot in both stages, and all limits set."""
    config = load_config(write_config(folder))
    made = AssignerMetrics(replace(config, limits=replace(config.limits, uncommitted_entries=100)))
    shuffle = {"shuffled_records": 9.0, "dead_letters_not-json": 2.0, "dropped_field/in/price": 2.0}
    assign = {"tagged_inserts": 4.0, "keys_hot": 3.0, "lag_lane_0": 6.0, "hot_bytes": 10.0}
    made.watch(
        {
            Stage.SHUFFLE: cast(Any, SimpleNamespace(reported=(0, StageReport(["in:0"], 0, shuffle)))),
            Stage.ASSIGN: cast(Any, SimpleNamespace(reported=(1, StageReport(["0"], 8, assign)))),
        }
    )
    made.tier_read("hot", 0.002)
    made.transaction(Stage.ASSIGN, "committed", 0.1)
    return made.metrics


def writer() -> Metrics:
    """After an epoch of two tasks, one of which failed."""
    made = WriterMetrics("t", ManualClock())
    timings = {"task_read": 5.0, "task_write": 10.0}
    done = TaskSucceeded(
        (json.dumps(STAT).encode(),),
        (record_index_log("20260101000000000", ShardId(0), 50, 4, 0),),
        timings,
        1,
        100,
    )
    made.asked()
    made.ended(
        WrittenEpoch(PlannedEpoch(3, 1, "i"), 0, 10, 90, 100, (done, TaskFailed("E", "m", "", 0)), False)
    )
    return made.metrics


def run(folder: Path) -> Metrics:
    """With all gauges, those of a verification among them."""
    made = RunMetrics(load_config(write_config(folder)), {}, {}, lambda _: None)
    made._verification.show(typed_verification(VERIFIED))
    return made._metrics


def all_metrics(folder: Path) -> list[Metric]:
    """The families as they are exposed: a counter's name with `_total`."""
    parts = (coordinator(folder), assigner(folder), writer(), run(folder))
    return [family for part in parts for family in part.registry.collect()]


def exposed_name(family: Metric) -> str:
    """As a query has to write it."""
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return family.name + suffix
