"""What a part shows before it knows, and after it forgot: nothing or what still holds, no false zero."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import generate_latest

from testing.clock import ManualClock
from tests.unit.table_files import write_config
from tests.unit.typed_status import IDLE, typed_status
from tidemark.cli.run.run_metrics import RunMetrics
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.domain.slice_stats import TableSlices
from tidemark.commit_coordinator.status.document import StatusSource
from tidemark.commit_coordinator.status.metrics import CoordinatorMetrics
from tidemark.commit_coordinator.status.sampled_stats import SampledStats
from tidemark.commit_coordinator.verification.verdict import VerificationResult
from tidemark.config import load_config
from tidemark.epoch_protocol.entries import Counts
from tidemark.index_assigner import assigner_metrics
from tidemark.index_assigner.assigner_metrics import AssignerMetrics
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_writer.writer_metrics import WriterMetrics

TAKEN_OVER = CoordinatorView(term=0, dead_letters=2, committed=Counts(input=90, inserts=70, dead_letters=5))
DIFFERS = VerificationResult(
    {"agrees": False, "differences": {"key-twice": {"count": 3, "examples": ["k"]}}}, 2.0, 0
)
UNDECIDED = VerificationResult({"error": "verify.timeout"}, 9.0, 0)


def shown(metrics: Metrics) -> dict[str, float]:
    """Values of the samples, by name and labels but the table."""
    found = {}
    for line in generate_latest(metrics.registry).decode().splitlines():
        if not line.startswith("#") and "_process_" not in line:
            name, value = line.rsplit(" ", 1)
            found[re.sub(r'\{table="orders"\}|table="orders",|,table="orders"', "", name)] = float(value)
    return found


class Shown:
    """A coordinator's page while its board and its verification change."""

    def __init__(self, folder: Path) -> None:
        self.board = ViewBoard()
        self.verification = SimpleNamespace(last=None, decided=None, undecided=0)
        status = SimpleNamespace(
            board=self.board,
            members=SimpleNamespace(members=lambda _: [], leases=lambda _: {}),
            placement=SimpleNamespace(
                stats=lambda: {"file_groups": 0.0, "bytes": 0.0}, snapshot=lambda: TableSlices()
            ),
            verification=self.verification,
            stopped_lanes=tuple,
        )
        self.sampled = SimpleNamespace(lags=None, table=None, dead_letters=None, oldest_transaction_s=0.0)
        self._metrics = CoordinatorMetrics(load_config(write_config(folder)), ManualClock(), lambda: 5)
        self._metrics.watch(cast(StatusSource, status), cast(SampledStats, self.sampled))

    def page(self) -> dict[str, float]:
        return {
            name.removeprefix("tidemark_coordinator_"): value
            for name, value in shown(self._metrics.metrics).items()
        }


def test_a_coordinator_says_nothing_of_the_table_before_it_has_taken_it_over(tmp_path: Path) -> None:
    coordinator = Shown(tmp_path)
    before = coordinator.page()
    assert [
        name
        for name in before
        if not name.startswith(("info", "epoch_seconds", "service_seconds", "refused_calls"))
    ] == []
    coordinator.board.show(TAKEN_OVER)
    after = coordinator.page()
    assert (after["term_offset"], after['committed_records_total{tag="insert"}']) == (0, 70)
    assert after["dead_letter_records_total"] == 7


def test_the_counter_of_dead_letters_does_not_fall_when_lanes_go_back(tmp_path: Path) -> None:
    coordinator = Shown(tmp_path)
    counts = []
    for committed, uncommitted in ((5, 0), (5, 4), (5, 0), (5, 4), (9, 0)):
        committed_counts = Counts(input=90, dead_letters=committed)
        view = replace(
            TAKEN_OVER, committed=committed_counts, uncommitted=Counts(input=9, dead_letters=uncommitted)
        )
        coordinator.board.show(view)
        counts.append(coordinator.page()["dead_letter_records_total"])
    assert counts == [7, 7, 7, 7, 11]


def test_dead_letters_that_are_deleted_next_are_shown_once_kafka_was_asked(tmp_path: Path) -> None:
    """The alert TidemarkDeadLettersExpire reads the second one."""
    coordinator = Shown(tmp_path)
    coordinator.board.show(TAKEN_OVER)

    def letters() -> list[float | None]:
        page = coordinator.page()
        return [page.get(f"dead_letter_{what}_offsets") for what in ("kept", "expiring", "deleted")]

    assert letters() == [None] * 3
    coordinator.sampled.dead_letters = LetterRetention(70, 7, 3)
    assert letters() == [70, 7, 3]
    coordinator.sampled.dead_letters = LetterRetention(63, 0, 10)
    assert letters() == [63, 0, 10]


def test_the_last_verdict_stands_while_none_comes(tmp_path: Path) -> None:
    coordinator = Shown(tmp_path)
    coordinator.board.show(TAKEN_OVER)

    def verified(**now: Any) -> dict[str, float]:
        vars(coordinator.verification).update(now)
        page = coordinator.page().items()
        return {name.removeprefix("verify_"): value for name, value in page if name.startswith("verify_")}

    assert verified() == {}
    after_restart = {"agrees": 0, "differences": 3}
    assert verified(decided=DIFFERS) == after_restart
    assert verified(last=UNDECIDED, undecided=2) == {**after_restart, "seconds": 9, "undecided_attempts": 2}


def test_a_writer_is_silent_since_its_start_not_since_1970() -> None:
    clock = ManualClock()
    metrics = WriterMetrics("orders", clock)
    began_s = clock.now_ms() / 1000
    assert shown(metrics.metrics)["tidemark_writer_coordinator_answer_seconds"] == began_s > 0
    clock.advance(30.0)
    metrics.asked()
    assert shown(metrics.metrics)["tidemark_writer_coordinator_answer_seconds"] == began_s + 30


def test_run_keeps_what_it_showed_while_a_new_coordinator_takes_over(tmp_path: Path) -> None:
    metrics = RunMetrics(load_config(write_config(tmp_path)), {}, {}, lambda _: None)

    def told(term: int, epoch: int) -> dict[str, float]:
        committed = dict.fromkeys(("input", "inserts", "updates", "deletes"), epoch * 10)
        document = {
            **IDLE,
            "coordinator": {**IDLE["coordinator"], "term": term},
            "last_commit": {"epoch": epoch},
            "records": {**IDLE["records"], "committed": committed, "dead_letters": epoch},
        }
        metrics._show(typed_status(document))
        return shown(metrics._metrics)

    first = told(4, 7)
    again = told(-1, 0)
    for name, value in (("committed_epoch", 7), ("dead_letter_records", 7), ("coordinator_up", 1)):
        assert first[f"tidemark_run_{name}"] == again[f"tidemark_run_{name}"] == value
    assert told(9, 8)["tidemark_run_committed_epoch"] == 8


def test_an_assigner_shows_its_memory_where_the_system_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = AssignerMetrics(load_config(write_config(tmp_path)))
    for size, expected in ((7, {"tidemark_assigner_anonymous_memory_bytes": 7.0}), (None, {})):
        monkeypatch.setattr(assigner_metrics, "anonymous_bytes", lambda size=size: size)
        page = shown(made.metrics)
        assert {name: value for name, value in page.items() if "memory" in name} == expected
