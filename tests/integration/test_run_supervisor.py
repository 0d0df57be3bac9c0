"""`Supervisor` with dummy services on a real broker: run.json, restarts, refusal, the order of the end."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.table_files import write_config
from tidemark.cli.commands.admin import add_run
from tidemark.cli.run.supervised_process import ServiceStoppedError
from tidemark.cli.run.supervisor import SERVICES, Supervisor
from tidemark.config import Address, load_config
from tidemark.config.run_file import RunFile, read_run_file, run_file_path, why_silent
from tidemark.console.errors import CliError
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = pytest.mark.kafka
NOWHERE = Address("127.0.0.1", 1)

DUMMY = """
import signal, sys, time
role, diary = sys.argv[1:3]
def end(*_):
    open(diary, "a").write(f"{role} ended\\n")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
open(diary, "a").write(f"{role} started\\n")
time.sleep(900)
"""


class Rig:
    """A supervisor on a thread of its own, as `tidemark run` has it on its main thread."""

    def __init__(self, folder: Path, kafka: str, source: str = DUMMY) -> None:
        self.config = load_config(write_config(folder, kafka, "127.0.0.1:0"))
        self.diary = folder / "diary"
        self.said: list[str] = []
        self.stop = threading.Event()
        self.error: Exception | None = None

        def command(role: str, _: Path) -> list[str]:
            return [sys.executable, "-c", source, role, str(self.diary)]

        self.supervisor = Supervisor(self.config, SystemClock(), SystemIds(), self.said.append, command)
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self.supervisor.run(self.stop)
        except Exception as error:
            self.error = error

    def started(self) -> RunFile:
        self.until(lambda: all(self.pids(role) for role in SERVICES) and self.count("started") >= 3)
        found = self.run_file()
        assert found is not None
        return found

    def run_file(self) -> RunFile | None:
        return read_run_file(self.config.state.path)

    def pids(self, role: str) -> list[int]:
        found = self.run_file()
        return found.pids.get(role, []) if found else []

    def count(self, word: str) -> int:
        return self.diary.read_text().count(word) if self.diary.exists() else 0

    def until(self, holds: Callable[[], bool], timeout_s: float = 240.0) -> None:
        end = time.monotonic() + timeout_s
        while not holds():
            assert time.monotonic() < end, (self.said, self.error)
            time.sleep(0.02)

    def __enter__(self) -> Rig:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.thread.join(240.0)
        assert not self.thread.is_alive()


def test_run_file_follows_the_processes_and_goes_with_the_run(tmp_path: Path, kafka: EmbeddedKafka):
    with Rig(tmp_path, kafka.bootstrap_servers) as rig:
        found = rig.started()
        assert found.kafka == kafka.bootstrap_servers
        assert found.run == os.getpid()
        assert found.coordinator.port > 0
        assert f"a page to look at: http://{found.web}" in rig.said
        victim = found.pids["assigner"][0]
        os.kill(victim, signal.SIGKILL)
        rig.until(lambda: rig.pids("assigner") not in ([], [victim]))
        assert rig.pids("writer") == found.pids["writer"]
    assert rig.error is None
    assert not run_file_path(rig.config.state.path).exists()


def test_services_end_in_order_and_none_is_left(tmp_path: Path, kafka: EmbeddedKafka):
    with Rig(tmp_path, kafka.bootstrap_servers) as rig:
        pids = [pid for of_role in rig.started().pids.values() for pid in of_role]
    assert rig.diary.read_text().splitlines()[3:] == ["assigner ended", "writer ended", "coordinator ended"]
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def ending(role: str, code: int, words: str) -> str:
    """Dummies of which one ends at once with a code and its last words."""
    return DUMMY.replace(
        "time.sleep(900)",
        f"role == {role!r} and (sys.stderr.write('tidemark {role}: {words}\\n'), sys.exit({code}))\n"
        "time.sleep(900)",
    )


@pytest.mark.parametrize(
    ("role", "code", "words"), [("writer", 2, "spark.x is set by us"), ("coordinator", 4, "two stories")]
)
def test_service_that_the_run_is_nothing_without_ends_it_with_its_message(
    tmp_path: Path, kafka: EmbeddedKafka, role: str, code: int, words: str
):
    with Rig(tmp_path, kafka.bootstrap_servers, ending(role, code, words)) as rig:
        rig.until(lambda: not rig.thread.is_alive())
        assert isinstance(rig.error, ServiceStoppedError)
        assert (str(rig.error), rig.error.exit_code) == (f"{role}: {words}", code)
    assert not run_file_path(rig.config.state.path).exists()
    # Whoever asks afterwards learns why.
    assert why_silent(rig.config.state.path) == f"; the last one stopped: {role}: {words}"


def test_service_that_no_restart_helps_is_stopped_and_the_others_go_on(tmp_path: Path, kafka: EmbeddedKafka):
    with Rig(tmp_path, kafka.bootstrap_servers, ending("assigner", 4, "input was deleted")) as rig:
        rig.until(lambda: "assigner" in (rig.run_file() or RunFile("", NOWHERE, NOWHERE, 1)).stopped)
        found = rig.run_file()
        assert found is not None
        assert found.stopped == {"assigner": "has stopped and is not started again: input was deleted"}
        assert (len(found.pids["coordinator"]), len(found.pids["writer"]), found.pids["assigner"]) == (
            1,
            1,
            [],
        )
        assert any("`tidemark status` answers" in line for line in rig.said)
        document: dict[str, Any] = {"warnings": []}
        add_run(document, found)
        assert document["warnings"] == [f"tidemark run: assigner {found.stopped['assigner']}"]
        time.sleep(1.0)
        assert rig.diary.read_text().count("assigner started") == 3
    assert rig.error is None
    assert rig.supervisor.stopped.keys() == {"assigner"}


def test_second_run_on_the_same_state_is_refused_and_harms_nothing(tmp_path: Path, kafka: EmbeddedKafka):
    with Rig(tmp_path, kafka.bootstrap_servers) as rig:
        before = rig.started()
        second = Supervisor(rig.config, SystemClock(), SystemIds(), rig.said.append)
        with pytest.raises(CliError, match="is in use by process"):
            second.run(threading.Event())
        assert rig.run_file() == before


def test_metrics_are_served_where_the_run_file_says(tmp_path: Path, kafka: EmbeddedKafka):
    with Rig(tmp_path, kafka.bootstrap_servers) as rig:
        at = rig.started().metrics
        with urllib.request.urlopen(f"http://{at}/metrics", timeout=120) as answer:
            page = answer.read().decode()
    assert 'tidemark_run_info{table="orders"} 1.0' in page
    assert 'tidemark_run_coordinator_up{table="orders"} 0.0' in page
    assert 'tidemark_run_service_up{role="writer",table="orders"} 0.0' in page


def test_unreachable_kafka_ends_the_run_before_any_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidemark.stream_runtime.kafka.confluent.admin._TIMEOUT_S", 2.0)
    with Rig(tmp_path, "127.0.0.1:1") as rig:
        rig.until(lambda: not rig.thread.is_alive())
    assert "metadata of the cluster" in str(rig.error)
    assert not rig.diary.exists()
