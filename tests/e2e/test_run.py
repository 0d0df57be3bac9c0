"""The installed command line, whole: feed, kill -9 each part on the way, flush, compare, stop, start."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.account_events import AccountEvents, check_against_model
from tests.e2e.running_table import ROLES, RunningTable
from tests.e2e.seen_from_outside import check_logs, check_metrics, check_trace, trace_of
from tests.otlp_receiver import Receiver, receiving

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TIDEMARK_SEED", "20131231"))


@pytest.fixture
def running(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RunningTable]:
    running = RunningTable(tmp_path, getattr(request, "param", "merge_on_read"))
    yield running
    running.abandon()


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
    # A coordinator that was killed may not answer yet when the others are back.
    running.until_shown(lambda status: True)
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
    # Who wrote until then does not matter to what comes after: without Spark it takes less.
    running.start(spark=False)
    running.feed(events.take(1_000))
    # Not flushed: what is only in Kafka now must come after the restart.
    assert running.stop() == 0
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
    assert (found[0]["partition_path"], found[0]["tier"] in ("hot", "rocksdb", "run", "mdt")) == (
        row["region"],
        True,
    )
    assert (found[1]["tier"], found[1]["file_id"]) == ("none", None)
    assert running.stop(signal.SIGTERM) == 0
    # Starts the embedded Kafka for the time of the command.
    assert running.cli("dead-letter", "list")["count"] == events.model.broken
    assert not (running.folder / "state" / "run.json").exists()
