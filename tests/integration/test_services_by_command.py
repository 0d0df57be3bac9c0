"""`tidemark services` against a coordinator of the product that runs table services of a small table: each
kind does its work when it is told to, and `tidemark verify` agrees. Kafka is in memory; merges run in child
processes, as under `tidemark services serve`.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testing.ids import SeededIds
from tests.own_ports import own_ports
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tests.unit.table_files import new_table, orders, write_config
from tidemark.cli.main import main
from tidemark.commit_coordinator.bootstrap import CoordinatorService
from tidemark.commit_coordinator.building.parts import Ports
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.config import load_config
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.security.client import client_security
from tidemark.stream_writer.services_worker import beside_epochs, open_services, services_loop
from tidemark.stream_writer.table_services.process_engine import ProcessEngine

COMMITS = 14
# So that hardly anything is due by itself.
SETTINGS = """
table_services:
  enabled: true
  clock_skew: 100ms
  compact_index: {min_interval: 1h, max_age: 1h, log_ratio: 100, log_files: 1000}
  compact_data: {log_files: 1000, log_ratio: 100, log_age: 1h, min_interval: 1h}
  clean: {retain: 1ms, interval: 1h}
  archive: {min: 10, max: 1000, batch: 1}
  rollback: {interval: 1h}
"""


class Served:
    """A table with log files, its coordinator, and a worker that merges."""

    def __init__(self, folder: Path) -> None:
        [port] = own_ports(1)
        self.file = write_config(folder, coordinator=f"127.0.0.1:{port}")
        self.file.write_text(self.file.read_text() + SETTINGS)
        writer = new_table(folder / "table")
        for at in range(COMMITS):
            writer.commit(orders(*((f"k{n}", f"2026-01-0{1 + n % 2}", at) for n in range(6))))
        self._config = config = load_config(self.file)
        failpoints, clock = FailpointRegistry(CoordinatorFailpoint), SystemClock()
        storage = LocalStorage(folder / "table")
        self._service = CoordinatorService(
            config, Ports(MemoryCluster().client, storage, clock, SeededIds(1), failpoints)
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._service.run, args=(self._stop,))
        self._thread.start()
        assert self._service.ready.wait(240.0)
        self._engine = ProcessEngine(1)
        self._client = open_services(config, SystemIds(), client_security(config, clock))
        loop = services_loop(config, self._client, self._engine, folder / "scratch")
        self._worker = beside_epochs(loop, self._engine.cancel)
        self._worker.__enter__()

    def close(self) -> None:
        self._worker.__exit__(None, None, None)
        self._client.close()
        self._stop.set()
        self._thread.join(240.0)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path)
    yield made
    made.close()


def told(served: Served, capsys: pytest.CaptureFixture[str], *command: str) -> Any:
    """The document that a command prints."""
    assert main([*command, "--json", "-c", str(served.file)]) == 0
    return json.loads(capsys.readouterr().out)


def test_each_kind_does_its_work_when_it_is_told_to(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(kind: str) -> list[tuple[str, str | None, int]]:
        runs = told(served, capsys, "services", "run", kind, "--wait", "--timeout", "240s")["runs"]
        return [
            (each["kind"], each["ended"] and each["ended"]["outcome"], (each["ended"] or {}).get("groups", 0))
            for each in runs
        ]

    listed = told(served, capsys, "services", "list")
    assert listed["enabled"]
    told(served, capsys, "services", "pause", "--reason", "by hand")
    # Its first one begins by itself, as the metadata table has no base files yet, and may have ended.
    run("compact-index")
    assert run("compact-data") == [("compact-data", "done", 2)]
    assert [(kind, outcome) for kind, outcome, _ in run("compact-index")] == [("compact-index", "done")]
    cleans = run("clean")
    assert [(kind, outcome) for kind, outcome, _ in cleans] == [
        ("clean-data", "done"),
        ("clean-index", "done"),
    ]
    assert cleans[0][2] == 2 * COMMITS, "two file groups: a base file each, and log files"
    assert run("archive")[0][:2] == ("archive", "done")
    assert run("rollback") == [("rollback", None, 0)]
    listed = told(served, capsys, "services", "list")
    assert (listed["paused"], listed["reason"]) == (True, "by hand")
    done = {kind["kind"]: kind["last"]["outcome"] for kind in listed["kinds"] if kind["last"]}
    assert set(done.values()) == {"done"}
    assert {"compact-data", "compact-index", "clean-data", "clean-index", "archive"} == set(done)
    verified = told(served, capsys, "verify", "--full")
    assert (verified["agrees"], verified["rows"], verified["to_be_deleted"]) == (True, 6, 0)
    described = told(served, capsys, "table", "describe")
    assert (described["base_files"], described["log_files"]) == (2, 0)
    status = told(served, capsys, "status")["table_services"]
    assert status["run_by"] == "Tidemark"
    assert status["table"]["timeline_files"] < 3 * COMMITS
