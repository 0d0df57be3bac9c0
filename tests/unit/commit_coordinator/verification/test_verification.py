"""Verification beside the epochs: when it runs, what it says, and that it ends with the coordinator."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from testing.clock import ManualClock
from tests.unit.table_files import new_table, orders, write_config
from tests.unit.table_verification.damage import DAYS, Damage
from tests.unit.table_verification.test_verify_beside_a_cleaner import cleaned_meanwhile
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.verification import child
from tidemark.commit_coordinator.verification.process import VerifyProcess
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.commit_coordinator.verification.verdict import VerdictFile, VerificationResult
from tidemark.config import load_config
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.stream_runtime.clock import SystemClock

PLANNED = EpochPlanned(0, 1, 1, 0, 10, "T11", "0", "", 100)
REPORT = Report((), ())
AGREES: dict[str, Any] = {"agrees": True, "as_of": "20260101000000000", "commits": {"last_epoch": 7}}
DIFFERS: dict[str, Any] = {
    "agrees": False,
    "as_of": "20260101000000001",
    "differences": {"row-without-entry": {"count": 3, "examples": ["k4: in p f"]}},
}


def shown(verification: PeriodicVerification) -> dict[str, Any] | None:
    """As `tidemark status --json` has it."""
    state = verification.state()
    return None if state is None else dict(msgspec.to_builtins(state))


class Scripted:
    """Answers in turn, each when it is let go."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.full: list[bool] = []
        self.go = threading.Semaphore(0)

    def __call__(self, stopped: threading.Event, full: bool = False) -> dict[str, Any]:
        self.asked += 1
        self.full.append(full)
        while not self.go.acquire(timeout=0.02):
            if stopped.is_set():
                return {"error": "stopped"}
        return self.answers.pop(0)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def last(verification: PeriodicVerification) -> dict[str, Any]:
    document = shown(verification)
    return {} if document is None or document["last"] is None else dict(document["last"])


def test_switched_off_it_never_runs_and_says_nothing() -> None:
    asked = Scripted()
    verification = PeriodicVerification(0, asked, SystemClock())
    for _ in range(5):
        verification.committed(PLANNED, REPORT)
    assert (shown(verification), verification.warnings(), asked.asked) == (None, [], 0)
    verification.stop()


def test_every_so_many_commits_with_rows_it_runs_and_commits_go_on_meanwhile() -> None:
    asked = Scripted(AGREES, AGREES)
    verification = PeriodicVerification(3, asked, SystemClock())
    for report in (REPORT, None, REPORT, None):
        verification.committed(PLANNED, report)
    assert shown(verification) == {
        "every_commits": 3, "commits_since": 2, "running": False, "verified": None, "last": None,
    }  # fmt: skip
    verification.committed(PLANNED, REPORT)
    until(lambda: asked.asked == 1)
    for _ in range(4):
        verification.committed(PLANNED, REPORT)
    assert (shown(verification) or {})["running"]
    asked.go.release()
    until(lambda: asked.asked == 2)
    assert last(verification)["agrees"] is True
    assert (shown(verification) or {})["verified"] == {"as_of": AGREES["as_of"], "epoch": 7}
    verification.stop()
    assert asked.asked == 2


def test_differences_raise_an_alarm_until_a_verification_agrees(caplog: pytest.LogCaptureFixture) -> None:
    asked = Scripted(AGREES, DIFFERS, {"error": "no such table"}, AGREES)
    asked.go.release(4)
    verification = PeriodicVerification(1, asked, SystemClock())

    def verified(agrees: bool | None) -> list[str]:
        ended = last(verification).get("ended_ms"), asked.asked
        verification.committed(PLANNED, REPORT)
        until(lambda: asked.asked > ended[1] and last(verification).get("agrees", "none yet") is agrees)
        return [each.text for each in verification.warnings()]

    with caplog.at_level(logging.INFO, "tidemark.coordinator"):
        assert verified(True) == []
        (alarm,) = verified(False)
        assert "as of 20260101000000001 found 3 differences" in alarm
        assert "3 row-without-entry, as k4: in p f" in alarm
        assert "`tidemark verify --full`" in alarm
        assert (shown(verification) or {})["verified"]["epoch"] == 7, "what agreed before still did"
        assert verified(None) == ["the table could not be verified: no such table", alarm]
        assert (verification.undecided, verification.decided and verification.decided.agrees) == (1, False)
        assert verified(True) == []
        assert verification.undecided == 0
    levels = [record.levelno for record in caplog.records]
    assert levels == [logging.INFO, logging.ERROR, logging.WARNING, logging.INFO]
    verification.stop()


def test_the_last_verdict_outlives_the_process_and_undecided_ones(tmp_path: Path) -> None:
    file = VerdictFile(tmp_path / "verify" / "verdict.json", "file:/t")
    asked = Scripted(AGREES, DIFFERS, {"error": "no such table"})
    asked.go.release(3)
    first = PeriodicVerification(1, asked, SystemClock(), kept=file)
    assert first.decided is None
    for count in (1, 2, 3):
        assert first.ask(True).done.wait(60.0), count
    first.stop()
    alarms = first.warnings()[1:]
    assert "found 3 differences" in alarms[0].text
    second = PeriodicVerification(1, Scripted(), SystemClock(), kept=file)
    assert (second.decided, second.last, second.warnings()) == (first.decided, None, alarms)
    assert shown(second) == {
        "every_commits": 1, "commits_since": 0, "running": False, "verified": None, "last": None,
    }  # fmt: skip
    second.stop()
    assert VerdictFile(tmp_path / "verify" / "verdict.json", "file:/other").load() is None
    for damaged in (b'{"table": 1', b'{"table": "\xff"}', b""):
        (tmp_path / "verify" / "verdict.json").write_bytes(damaged)
        assert file.load() is None


def test_a_coordinator_begins_with_the_verdict_in_its_state_folder(tmp_path: Path) -> None:
    config, clock = load_config(write_config(tmp_path)), SystemClock()
    assert PeriodicVerification.of(config, clock).decided is None
    VerdictFile(config.state.path / "verify" / "verdict.json", config.table.path).save(
        VerificationResult(DIFFERS, 2.0, 9)
    )
    assert PeriodicVerification.of(config, clock).decided == VerificationResult(DIFFERS, 2.0, 9)


def test_a_verdict_that_cannot_be_kept_holds_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "verify").write_text("a file where the folder should be")
    file = VerdictFile(tmp_path / "verify" / "verdict.json", "file:/t")
    asked = Scripted(DIFFERS)
    asked.go.release()
    verification = PeriodicVerification(1, asked, SystemClock(), kept=file)
    assert verification.ask(True).done.wait(60.0)
    assert "found 3 differences" in verification.warnings()[0].text
    verification.stop()
    assert file.load() is None


def test_a_process_answers_as_the_command_does(tmp_path: Path) -> None:
    table, stopped = tmp_path / "table", threading.Event()
    new_table(table).commit(orders(("k1", DAYS[0], 10)))
    process = VerifyProcess(str(table), tmp_path / "verify", SystemClock(), 600.0)
    answer = process.run(stopped)
    assert (answer["agrees"], answer["rows"], answer["since"]) == (True, 1, None), answer
    Damage(table).index("k1", None)
    answer = process.run(stopped)
    assert answer["differences"]["row-without-entry"]["count"] == 1
    assert "reading everything" in (tmp_path / "verify" / "verify.log").read_text()
    nowhere = VerifyProcess(str(tmp_path / "nowhere"), tmp_path / "verify", SystemClock(), 600.0)
    assert "is no Hudi table" in nowhere.run(stopped)["error"]


def test_the_process_waits_between_readings_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An archive action removes files for half a minute, which readings without pauses all fall into."""
    storage = cleaned_meanwhile(tmp_path / "table", 1)
    monkeypatch.setattr(child, "open_storage", lambda _: storage)
    monkeypatch.setattr(os, "nice", lambda _: 0)
    clock = ManualClock(0)
    child.main(clock, [str(tmp_path / "table"), "--answer", str(tmp_path / "answer.json")])
    assert clock.now_ms() == 1_000
    assert json.loads((tmp_path / "answer.json").read_text())["differences"]


def test_a_process_that_takes_too_long_or_is_not_wanted_is_ended(tmp_path: Path) -> None:
    stopped = threading.Event()
    left_over = tmp_path / "verify" / "scratch" / "tidemark-verify-x" / "shard-0-0.arrow"
    left_over.parent.mkdir(parents=True)
    left_over.write_bytes(b"of a run that was killed")
    late = VerifyProcess(str(tmp_path), tmp_path / "verify", SystemClock(), 0.0)
    assert "verify.timeout, 0 s" in late.run(stopped)["error"]
    assert not left_over.parent.exists()
    stopped.set()
    unwanted = VerifyProcess(str(tmp_path), tmp_path / "verify", SystemClock(), 600.0)
    assert "the coordinator stops" in unwanted.run(stopped)["error"]
