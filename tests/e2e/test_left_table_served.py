"""`tidemark run` on a table that nobody served for many commits: epochs go on while table services bring it
back, in bounded memory. At the end nothing of before is left but the archive: no log file, and no instant on
a timeline. (The merges by themselves: tests/integration/test_left_table.py.)
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from confluent_kafka import Producer

from testing.clock import ManualClock
from tests.chaos.memory_watch import MemoryWatch
from tests.e2e.running_table import TIDEMARK, RunningTable
from tests.left_table import COMMITS, KEYS, PEAK_MAX, left
from tests.unit.commit_coordinator.table_services.story import SCHEMA, Story

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
CONFIG: Final = """\
table:
  name: left
  path: ./table
  type: merge_on_read
  record_key: [id]
  partition: [region]
  ordering: ts
  schema: left.avsc
  index: {shards: 2, lanes: 2}
input: {topics: [left-in], partitions: 2, start: earliest}
kafka: {bootstrap.servers: embedded}
state: {path: ./state, memory: 64MiB, disk: 1GiB}
epoch: {interval: 500ms}
services: {coordinator: "127.0.0.1:0", metrics: "127.0.0.1:0", web: "off"}
table_services:
  run: separate
  task_memory: 32MiB
  compact_index: {log_files: 20, min_interval: 1s}
  compact_data: {log_files: 20, min_interval: 1s}
  clean: {retain: 10s, interval: 5s}
  archive: {min: 20, max: 30, batch: 5}
"""
# Behind 20 000 commits the compaction of the index alone took ten minutes at the lowest priority.
BACK_S: Final = 600.0 + COMMITS / 8
EVERY_S: Final = 0.1
BATCH: Final = 20
_log = logging.getLogger(__name__)


class LeftTable(RunningTable):
    """The story's table, in the folder of a configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config, self.table = folder, folder / "left.yaml", folder / "table"
        (folder / "left.avsc").write_text(SCHEMA.avro_json)
        self.config.write_text(CONFIG)
        self._command = TIDEMARK
        self._process = None

    def families(self) -> dict[str, list[int]]:
        """The processes of each role: the service first, then what it started."""
        found = {}
        for role, (pid, *_) in self.run_file()["pids"].items():
            with suppress(psutil.NoSuchProcess):
                found[role] = [pid, *(each.pid for each in psutil.Process(pid).children(recursive=True))]
        return found

    def flushed(self) -> int:
        """Commits what was sent; returns the epoch."""
        return int(self.cli("flush", "--timeout", "240s")["epoch"])


class Feeder:
    """A thread that upserts keys of the table and new ones, in turn, until it is stopped."""

    def __init__(self, story: Story, kafka: str) -> None:
        self._story, self._stopped = story, threading.Event()
        self._producer = Producer({"bootstrap.servers": kafka, "enable.idempotence": True, "log_level": 2})
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._turn, self.failures = 0, list[Any]()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when all that was sent is acknowledged."""
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(120.0) == 0
        assert self.failures == []

    def give_up(self) -> None:
        """Ends the thread, whatever became of the broker."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(EVERY_S):
            keys = [self._turn * BATCH + n for n in range(BATCH)]
            self._turn += 1
            # Half of them are rows of before, in turn.
            for row in self._story.changed([n if n % 2 else n % KEYS for n in keys]).to_pylist():
                self._producer.produce(
                    "left-in",
                    json.dumps(row).encode(),
                    row["id"],
                    on_delivery=lambda error, _: self.failures.append(error) if error else None,
                )
            self._producer.poll(0)


def left_over(table: Path, last: str) -> Iterator[str]:
    """What is there of commits until ``last``: log files, and instants on both timelines."""
    metadata = table / ".hoodie" / "metadata"
    for folder in (table / "eu", table / "us", metadata / "record_index", metadata / "files"):
        for name in (path.name for path in folder.glob(".*.log.*")):
            if name.split("_")[1].split(".")[0] <= last:
                yield f"{folder.name}/{name}"
    for timeline in (table / ".hoodie" / "timeline", metadata / ".hoodie" / "timeline"):
        yield from (path.name for path in timeline.glob("[0-9]*") if path.name[: len(last)] <= last)


def test_a_table_that_was_left_is_brought_back_while_epochs_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its last commit was a minute ago.
    clock = ManualClock(int(time.time() * 1_000) - (COMMITS + 60) * 1_000)
    with monkeypatch.context() as patched:
        story = left(tmp_path / "table", patched, clock)
    last = max(path.name[:17] for path in (tmp_path / "table" / ".hoodie" / "timeline").glob("[0-9]*"))
    before = len(list(left_over(tmp_path / "table", last)))
    assert before > 8 * COMMITS
    running = LeftTable(tmp_path)
    running.start(spark=False)
    watch = MemoryWatch(running.families)
    # On a slow machine as many are fed for longer: what is left is to be the most.
    story.noise = 16
    feeder = Feeder(story, running.run_file()["kafka"])
    try:
        watch.start()
        feeder.start()
        began, began_s = running.flushed(), time.monotonic()
        running.until(lambda: not any(left_over(running.table, last)), BACK_S, lambda: shown(running, last))
        took_s = time.monotonic() - began_s
        feeder.stop()
        epochs = running.flushed() - began
        watch.stop()
        _log.info("%d commits: %d files, %d epochs in %.0f s", COMMITS, before, epochs, took_s)
        _log.info("peaks in MiB: %s", watch.peak_mib)
        assert epochs > 5
        assert watch.failures == []
        assert watch.peak_mib["services' merge"] < PEAK_MAX >> 20
        columns = SCHEMA.arrow.names
        rows = {row["id"]: [row[name] for name in columns] for row in running.rows()}
        assert rows == {row["id"]: [row[name] for name in columns] for row in story.rows()}
        assert running.cli("verify", "--full")["agrees"]
        assert running.stop() == 0
    finally:
        feeder.give_up()
        watch.stop()
        running.abandon()


def shown(running: LeftTable, last: str) -> str:
    found = list(left_over(running.table, last))
    services = [
        {name: kind.get(name) for name in ("kind", "last", "failures", "held_back")}
        for kind in running.cli("services", "list").get("kinds", ())
    ]
    return f"{len(found)} of before, first {found[:5]}; {services}"
