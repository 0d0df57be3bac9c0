"""One table through several lives of `tidemark run`: paused, killed as a whole, its topics lost.

The first life has Spark, since a `run` that is killed takes Spark's JVM along. What the later ones are about
is the coordinator's, and they do without.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.account_events import AccountEvents, check_against_model
from tests.e2e.running_table import RunningTable

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow]
SEED = int(os.environ.get("TIDEMARK_SEED", "20131231"))


class Lives:
    """One table and its stream through all that the tests of this module do to it."""

    def __init__(self, folder: Path) -> None:
        self.running = RunningTable(folder)
        self._lived = False
        self.events = AccountEvents(SEED + 2)

    def go_on(self) -> dict[str, Any]:
        """Starts it where it does not run; returns the epoch and instant of what was fed now."""
        if not self.running.is_running:
            self.running.start(spark=not self._lived)
            self._lived = True
        self.running.feed(self.events.take(500))
        return self.running.cli("flush", "--timeout", "240s")


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    lives = Lives(tmp_path_factory.mktemp("lives"))
    yield lives
    lives.running.abandon()


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


def test_lost_topics_are_replaced_by_a_new_ledger(lives: Lives):
    running, events = lives.running, lives.events
    # What tombstones know is lost with their topic.
    events.nothing_late()
    last = lives.go_on()
    assert "stop it first" in running.cli("table", "adopt", "--new-ledger", "--yes", code=1)["error"]
    assert running.stop() == 0
    # The input topic is still there: what it holds goes on where the table ends.
    kept = running.cli("table", "adopt", "--new-ledger", "--yes")["new_ledger"]
    assert kept["epoch"] == last["epoch"]
    assert sorted(kept["positions"]) == ["accounts-in:0", "accounts-in:1"]
    lives.go_on()
    check_against_model(running, events)
    assert running.stop() == 0
    shutil.rmtree(running.folder / "state" / "kafka")
    lost = running.cli("table", "adopt", "--new-ledger", "--yes")["new_ledger"]
    assert (lost["positions"], sorted(lost["begin_anew"])) == ({}, ["accounts-in:0", "accounts-in:1"])
    events.model.broken = 0
    lives.go_on()
    check_against_model(running, events)
    assert running.stop() == 0
