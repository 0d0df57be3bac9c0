"""The installed command line, whole: feed, kill -9 each part on the way, flush, compare, stop, start."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.account_events import AccountEvents
from tests.e2e.running_table import ROLES, RunningTable
from tests.e2e.seen_from_outside import check_logs, check_metrics, check_trace, trace_of
from tests.otlp_receiver import Receiver, receiving

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TIDEMARK_SEED", "20131231"))


# Their table is one: they stay in one process, in any order.
ON_THE_SAME_TABLE = pytest.mark.xdist_group("several lives of a table")


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningTable]:
    running = RunningTable(tmp_path, getattr(request, "param", "merge_on_read"))
    yield running
    running.abandon()


class Lives:
    """One table and its stream through all that the tests of this module do to it."""

    def __init__(self, folder: Path) -> None:
        self.running = RunningTable(folder)
        self.events = AccountEvents(SEED + 2)

    def go_on(self) -> dict[str, Any]:
        """Starts it where it does not run; returns the epoch and instant of what was fed now."""
        if not self.running.is_running:
            self.running.start()
        self.running.feed(self.events.take(500))
        return self.running.cli("flush", "--timeout", "240s")


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    lives = Lives(tmp_path_factory.mktemp("lives"))
    yield lives
    lives.running.abandon()


def check_against_model(running: RunningTable, events: AccountEvents) -> None:
    """hudi-rs reads what the model holds; the index agrees; every broken record is a dead letter."""
    found = running.rows()
    assert len(found) == len({row["_hoodie_record_key"] for row in found}), "a key is there twice"
    columns = ("id", "region", "at", "balance")
    assert {row["id"]: {name: row[name] for name in columns} for row in found} == events.model.rows
    assert running.cli("verify")["agrees"]
    assert running.cli("dead-letter", "list")["count"] == events.model.broken


@pytest.mark.parametrize("running", ["copy_on_write"], indirect=True)
def test_every_part_may_be_killed_while_the_stream_goes_on(running: RunningTable):
    """What `run` does about it; test_chaos kills parts of a MERGE_ON_READ table in many more ways."""
    events = AccountEvents(SEED)
    running.start()
    running.feed(events.take(2_000))
    first = running.cli("flush", "--timeout", "240s")
    assert first["epoch"] >= 1
    killed = {}
    for role in ROLES:
        stream = events.take(1_500)
        feeding = threading.Thread(target=running.feed, args=(stream,))
        feeding.start()
        killed[role] = running.kill(role)
        # Whatever just died, what is committed is whole.
        assert running.cli("verify")["agrees"]
        feeding.join(400.0)
        assert not feeding.is_alive()
    running.feed(events.take(500))
    last = running.cli("flush", "--timeout", "240s")
    assert last["epoch"] > first["epoch"]
    check_against_model(running, events)
    now = running.run_file()["pids"]
    assert all(killed[role] not in now[role] for role in ROLES)
    assert running.stop() == 0
    assert not (running.folder / "state" / "run.json").exists()


def metric(running: RunningTable, name: str) -> float | None:
    """The value of a metric that has no labels of its own."""
    found = re.search(rf'^{name}{{table="accounts"}} (\S+)$', running.metrics(), re.MULTILINE)
    return float(found[1]) if found else None


def verified_epoch(status: dict[str, Any]) -> int | None:
    """Up to which epoch the coordinator has had the table verified."""
    verified = status["verification"]["verified"]
    return None if verified is None else int(verified["epoch"])


def test_start_again_goes_on_where_it_stopped(running: RunningTable):
    with receiving() as receiver:
        start_again(running, receiver)


def start_again(running: RunningTable, receiver: Receiver) -> None:
    events = AccountEvents(SEED + 1)
    telemetry = f"telemetry: {{log_format: json, otlp_endpoint: '{receiver.endpoint}'}}"
    running.config.write_text(f"{running.config.read_text()}verify: {{every_commits: 1}}\n{telemetry}\n")
    running.start()
    running.feed(events.take(1_000))
    # Not flushed: what is only in Kafka now must come after the restart.
    assert running.stop(signal.SIGTERM) == 0
    running.start()
    running.feed(events.take(1_000))
    done = running.cli("flush", "--timeout", "240s")
    check_against_model(running, events)
    running.until_shown(lambda status: verified_epoch(status) == done["epoch"])
    assert running.cli("status")["verification"]["last"]["agrees"]
    running.until(lambda: metric(running, "tidemark_run_verified_epoch") == done["epoch"], 120.0)
    assert metric(running, "tidemark_run_verify_agrees") == 1
    check_metrics(running)
    check_logs(running, done["epoch"], done["instant"])
    running.until(lambda: trace_of(receiver, done["epoch"]), 120.0)
    check_trace(trace_of(receiver, done["epoch"]))
    shown = running.cli("epoch", "show", str(done["epoch"]))
    assert shown["instant"] == done["instant"]
    key, row = next(iter(events.model.rows.items()))
    found = running.cli("lookup", key, "nobody")["found"]
    assert (found[0]["partition_path"], found[0]["tier"] in ("hot", "rocksdb", "mdt")) == (
        row["region"],
        True,
    )
    assert (found[1]["tier"], found[1]["file_id"]) == ("none", None)
    assert running.stop() == 0
    # Starts the embedded Kafka for the time of the command.
    assert running.cli("dead-letter", "list")["count"] == events.model.broken
    assert not (running.folder / "state" / "run.json").exists()


@ON_THE_SAME_TABLE
def test_paused_table_takes_nothing_in_until_it_is_resumed(lives: Lives):
    running, events = lives.running, lives.events
    before = lives.go_on()
    running.cli("pause", "--reason", "maintenance")
    running.until_shown(lambda status: status["paused"]["paused"])
    # One that runs hears of the pause with its next renewal, and may tag until then; a new one hears of it
    # before it reads anything.
    running.kill("assigner")
    running.feed(events.take(200))
    late = running.cli("flush", "--timeout", "4s", code=1)["error"]
    assert "maintenance" in late
    assert running.cli("status")["last_commit"]["instant"] == before["instant"]
    running.cli("resume")
    assert running.cli("flush", "--timeout", "240s")["epoch"] > before["epoch"]
    check_against_model(running, events)


@ON_THE_SAME_TABLE
def test_killed_run_takes_its_children_along_and_starts_again(lives: Lives):
    running, events = lives.running, lives.events
    lives.go_on()
    running.feed(events.take(1_000))
    running.stop(signal.SIGKILL)
    assert "no `tidemark run` is active" in running.cli("status", code=2)["error"]
    # The coordinator died somewhere; what it left open is finished or undone, and the lock is free.
    assert running.cli("recover")["lock_free"]
    assert running.cli("verify")["agrees"]
    lives.go_on()
    check_against_model(running, events)


@ON_THE_SAME_TABLE
def test_lost_topics_are_replaced_by_a_new_ledger(lives: Lives):
    running, events = lives.running, lives.events
    # What tombstones know is lost with their topic.
    events.nothing_late()
    last = lives.go_on()
    assert "stop it first" in running.cli("table", "adopt", "--new-ledger", code=1)["error"]
    assert running.stop() == 0
    # The input topic is still there: what it holds goes on where the table ends.
    kept = running.cli("table", "adopt", "--new-ledger")["new_ledger"]
    assert kept["epoch"] == last["epoch"]
    assert sorted(kept["positions"]) == ["accounts-in:0", "accounts-in:1"]
    lives.go_on()
    check_against_model(running, events)
    assert running.stop() == 0
    shutil.rmtree(running.folder / "state" / "kafka")
    lost = running.cli("table", "adopt", "--new-ledger")["new_ledger"]
    assert (lost["positions"], sorted(lost["begin_anew"])) == ({}, ["accounts-in:0", "accounts-in:1"])
    events.model.broken = 0
    lives.go_on()
    check_against_model(running, events)
