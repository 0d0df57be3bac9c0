"""One soak: a broker, `tidemark run`, a steady stream, gauges; what is wrong at the end.

Kafka's settings are those of an operator whose disk is small: what may be deleted (input, dead letters,
tombstones) goes after `retention_s`, and segments are small, so that minutes show what days would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tests.chaos.cluster import TABLE
from tests.chaos.end_checks import check_rows, check_transactions, check_verify
from tests.input_model import DELETE_FIELD, SCHEMA
from tests.soak.bounds import exceeded, grown, missing, too_few, unsettled
from tests.soak.curves import write_curves
from tests.soak.feeder import Feeder
from tests.soak.gauges import Disk, Gauges, Roles
from tests.soak.heaps import Heaps
from tests.soak.latency import Latencies
from tests.soak.stream import SoakStream
from tests.soak.table_gauge import TableGauge
from tidemark.cli.run.console_log import BYTES_MAX, KEPT
from tidemark.commit_coordinator.domain.backpressure import BOUND
from tidemark.config import load_config
from tidemark.config.run_file import read_run_file
from tidemark.config.table_services_model import DataCompactionConfig, IndexCompactionConfig
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.model import TopicSpec
from tidemark.stream_runtime.kafka.ports import Admin
from tidemark.stream_runtime.platform import child
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import find_java

INPUT: Final = "soak-input"
PARTITIONS: Final = 4
_READY_S: Final = 300.0
_FLUSH_S: Final = 600
_STOP_S: Final = 180.0
# With a commit a second, the instants of ten minutes are `table_services.archive.max`.
_DEFAULT_WINDOW_S: Final = 600
LOGS: Final = "disk: logs"
FIXED_LIMITS: Final = {
    "slices: log files of data": BOUND * DataCompactionConfig().log_files,
    "slices: log files of the index": BOUND * IndexCompactionConfig().log_files,
    LOGS: 3 * (KEPT + 1) * BYTES_MAX,
}
"""Figures with a limit of their own. What backpressure holds, whatever the rest of the machine does, is three
times the trigger of a compaction. Logs of three services grow until they are rotated, which takes hours.
"""
_BROKER: Final = {
    "log.segment.bytes": str(4 << 20),
    "transaction.state.log.segment.bytes": str(1 << 20),
    "offsets.topic.segment.bytes": str(1 << 20),
    "log.retention.check.interval.ms": "2000",
    "log.segment.delete.delay.ms": "1000",
    "log.cleaner.backoff.ms": "2000",
}

Say = Callable[[str], None]


@dataclass(frozen=True)
class Settings:
    """`limits` None: the rule of growth; else fixed limits by the beginning of a figure's name.

    `retain_s`: Tidemark's table services run, and keep files so long; None: they are off. `curves`: where the
    figures are written as data and picture. `tick_s`: how often records are sent.
    """

    folder: Path
    minutes: int = 15
    rate: float = 5_000.0
    keys: int = 20_000
    seed: int = 1
    retention_s: int = 120
    limits: Mapping[str, float] | None = None
    retain_s: int | None = None
    curves: Path | None = None
    tick_s: float = 0.05

    @property
    def settled(self) -> int | None:
        """The minute (counted from 0) from which nothing may grow any more: twice the retention, the table's
        or Kafka's, or a third of the run if that is longer. None without table services.
        """
        if self.retain_s is None:
            return None
        retained_s = max(self.retain_s, self.retention_s)
        return max(-(-2 * retained_s // 60), -(-self.minutes // 3))


@dataclass
class Outcome:
    """`problems`: empty when everything held. `figures`: the greatest value of each minute."""

    problems: list[str] = field(default_factory=list)
    figures: dict[str, list[float | None]] = field(default_factory=dict)
    commits: int = 0
    sent: int = 0
    malformed: int = 0


class Soak:
    """`run` is called once."""

    def __init__(self, settings: Settings, say: Say) -> None:
        self._settings, self._say = settings, say
        self._folder = settings.folder
        self._config = settings.folder / "orders.yaml"
        self._table = settings.folder / "warehouse" / TABLE
        self._state = settings.folder / "state"
        self._temporary = settings.folder / "tmp"
        self._stream = SoakStream(settings.seed, settings.keys, PARTITIONS)
        self._pids: dict[str, list[int]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._began_s = 0.0

    def run(self) -> Outcome:
        self._temporary.mkdir(parents=True)
        java = find_java()
        heaps = Heaps(java.home)
        if not heaps.can_be_measured:
            self._say(
                f"{java.home} has no jcmd: no heap is measured, and the memory of JVMs has garbage in it"
            )
        jars = ensure_jars(KAFKA.name, java)
        kafka = EmbeddedKafka(self._folder / "kafka", jars, java.home, settings=_BROKER)
        with kafka:
            self._write_config(kafka.bootstrap_servers)
            self._create_input()
            try:
                self._start()
                return self._soak(kafka, heaps)
            finally:
                self._end()

    # -- a run

    def _soak(self, kafka: EmbeddedKafka, heaps: Heaps) -> Outcome:
        settings, outcome = self._settings, Outcome()
        feeder = Feeder(kafka.bootstrap_servers, INPUT, self._stream, settings.rate, settings.tick_s)
        gauges = Gauges(
            lambda: {**self._pids, "kafka": list(kafka.pids.values())},
            self._disks(),
            kafka.bootstrap_servers,
            TABLE,
            heaps,
        )
        latencies = Latencies(self._table, time.time())
        table = TableGauge(self._table)
        began_s = self._began_s = time.monotonic()
        feeder.start()
        gauges.start()
        if settings.retain_s is not None:
            table.start()
        try:
            self._minutes(feeder, gauges, latencies, began_s, outcome)
        finally:
            feeder.stop()
            gauges.stop()
            table.stop()
        outcome.figures = gauges.figures(settings.minutes)
        if settings.retain_s is not None:
            outcome.figures |= table.figures(settings.minutes) | latencies.figures(settings.minutes)
            outcome.problems += table.failures
        if settings.curves is not None:
            write_curves(settings.curves, outcome.figures, settings.settled)
        outcome.sent, outcome.malformed = self._stream.sent, self._stream.malformed.total()
        outcome.problems += [*feeder.failures, *gauges.failures]
        if not outcome.problems:
            outcome.problems += missing(outcome.figures, self._wanted())
            outcome.problems += self._bounds(outcome)
        outcome.problems += self._at_rest(kafka.bootstrap_servers, latencies)
        outcome.commits = latencies.commits
        return outcome

    def _minutes(
        self, feeder: Feeder, gauges: Gauges, latencies: Latencies, began_s: float, outcome: Outcome
    ) -> None:
        told, sent_before = 0, 0
        while told < self._settings.minutes:
            time.sleep(1.0)
            latencies.add(feeder.samples())
            latencies.look()
            outcome.problems += self._ended()
            if outcome.problems or feeder.failures or gauges.failures:
                return
            # A little later, so that the minute's last records are committed.
            if time.monotonic() - began_s >= (told + 1) * 60 + 5:
                sent = self._stream.sent
                self._tell(told, sent - sent_before, gauges, latencies)
                told, sent_before = told + 1, sent

    def _tell(self, minute: int, sent: int, gauges: Gauges, latencies: Latencies) -> None:
        waited, now = latencies.of_minute(minute), gauges.of_minute(minute)
        latency = f"p50 {waited.p50_s:.2f} s, p99 {waited.p99_s:.2f} s" if waited else "nothing committed"
        memory = ", ".join(
            f"{name.removeprefix('memory: ')} {value / (1 << 20):.0f}"
            for name, value in sorted(now.items())
            if name.startswith("memory: ")
        )
        disk = sum(value for name, value in now.items() if name.startswith("disk: ")) / (1 << 20)
        descriptors = sum(value for name, value in now.items() if name.startswith("descriptors: "))
        kept = sum(value for name, value in now.items() if name.startswith("topic: "))
        self._say(
            f"minute {minute + 1}: {sent} records; {latency}; MiB: {memory}; disk {disk:.0f} MiB; "
            f"{descriptors:.0f} descriptors; {kept:.0f} messages in our topics; {latencies.commits} commits"
        )

    # -- what has to hold

    def _bounds(self, outcome: Outcome) -> Iterator[str]:
        if self._settings.limits is None:
            yield from too_few(outcome.sent, self._settings.rate, self._settings.minutes)
            settled = self._settings.settled
            growing = {name: values for name, values in outcome.figures.items() if name != LOGS}
            yield from grown(growing) if settled is None else unsettled(growing, settled)
            fixed = {name: outcome.figures[name] for name in FIXED_LIMITS if name in outcome.figures}
            yield from exceeded(fixed, FIXED_LIMITS)
        else:
            # How many records a second a slow machine gets through is not asked here.
            yield from exceeded(outcome.figures, self._settings.limits)

    def _disks(self) -> dict[str, Disk]:
        return {
            "state": Disk(self._state, self._state / "logs"),
            "logs": Disk(self._state / "logs"),
            "kafka": Disk(self._folder / "kafka"),
            "all but the table": Disk(self._folder, self._folder / "warehouse"),
        }

    def _wanted(self) -> Iterator[str]:
        """Figures that every run has."""
        for kind in (*self._pids, "kafka"):
            yield f"memory: {kind}"
            yield f"descriptors: {kind}"
        yield from (f"disk: {name}" for name in self._disks())
        names = TopicNames(TABLE)
        yield from (f"topic: {name}" for name in (names.keyed, names.data, names.ledger))

    def _ended(self) -> Iterator[str]:
        """Nobody kills anything here: a process that ends is a failure."""
        assert self._process is not None
        if (code := self._process.poll()) is not None:
            yield f"`tidemark run` ended with code {code}: {self._said()}"
            return
        now = self._roles()
        for role, pids in self._pids.items():
            if now.get(role) != pids:
                yield f"{role} ended and was started again: {self._said()}"

    def _at_rest(self, bootstrap: str, latencies: Latencies) -> Iterator[str]:
        """The input ended: everything is committed, right, and nothing is left over."""
        done = self._command("flush", "--timeout", f"{_FLUSH_S}s", timeout_s=_FLUSH_S + 60)
        if done.returncode:
            yield f"flush: {done.stderr or done.stdout}"
            return
        latencies.look()
        status = json.loads(self._command("status").stdout)
        malformed = self._stream.malformed
        if (counted := status["records"]["dead_letters"]) != malformed.total():
            yield f"{counted} dead letters, {malformed.total()} malformed records were sent"
        letters = json.loads(self._command("dead-letter", "list", "--limit", "1").stdout)
        if self._keeps_all() and letters["by_reason"] != dict(malformed):
            yield f"dead letters by reason: {letters['by_reason']}, sent were {dict(malformed)}"
        yield from check_verify(self._config)
        yield from check_rows(self._table, self._stream.model.rows)
        yield from check_transactions(bootstrap)

    def _keeps_all(self) -> bool:
        """Whether Kafka has deleted no dead letter yet."""
        return time.monotonic() - self._began_s < self._settings.retention_s

    # -- processes

    def _start(self) -> None:
        self._process = child.spawn(
            [sys.executable, "-m", "tidemark.cli.entry", "run", "-c", str(self._config)],
            self._folder / "run.log",
            # Temporary files lie where they are measured.
            environment={**os.environ, "TMPDIR": str(self._temporary)},
        )
        end_s = time.monotonic() + _READY_S
        while not self._serves():
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"`tidemark run` does not serve: {self._said()}")
            time.sleep(0.5)
        self._with_admin(lambda admin: admin.configure_topic(TopicNames(TABLE).tombstones, self._retention()))
        self._pids = dict(self._roles())

    def _serves(self) -> bool:
        done = self._command("status")
        if done.returncode:
            return False
        services = json.loads(done.stdout)["services"]
        lanes = [sum(len(each["lanes"]) for each in services[stage]) for stage in ("shuffle", "assign")]
        return lanes == [PARTITIONS, PARTITIONS] and len(self._roles()) == 4

    def _roles(self) -> Roles:
        found = read_run_file(self._state)
        if found is None:
            return {}
        return {**{role: list(pids) for role, pids in found.pids.items()}, "run": [found.run]}

    def _end(self) -> None:
        if self._process is not None:
            child.end(self._process, SystemClock(), _STOP_S)

    def _said(self) -> str:
        log = self._folder / "run.log"
        return log.read_text(errors="replace")[-3_000:] if log.exists() else ""

    def _command(self, *arguments: str, timeout_s: float = 300.0) -> Any:
        return subprocess.run(
            [sys.executable, "-m", "tidemark.cli.entry", *arguments, "-c", str(self._config), "--json"],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    # -- what it starts with

    def _write_config(self, bootstrap: str) -> None:
        (self._folder / "orders.avsc").write_text(json.dumps(SCHEMA))
        document = {
            "table": {
                "name": TABLE,
                "path": str(self._table),
                "type": "merge_on_read",
                "record_key": ["id"],
                "partition": ["region"],
                "ordering": "ts",
                "schema": "orders.avsc",
                "index": {"shards": PARTITIONS, "lanes": PARTITIONS},
            },
            "input": {"topics": [INPUT], "delete_field": DELETE_FIELD},
            "kafka": {"bootstrap.servers": bootstrap},
            "state": {"path": str(self._state), "memory": "64MiB", "disk": "512MiB"},
            "epoch": {"interval": "1s"},
            "limits": {"dead_letter_retention": f"{self._settings.retention_s}s"},
            "services": {"coordinator": "127.0.0.1:0", "metrics": "127.0.0.1:0", "web": "off"},
            "spark": {"spark.master": "local[2]", "spark.driver.memory": "512m"},
            "table_services": self._table_services(),
        }
        self._config.write_text(yaml.safe_dump(document))

    def _table_services(self) -> dict[str, Any]:
        """Timelines are as short as the retention: one commit a second."""
        retain_s = self._settings.retain_s
        if retain_s is None:
            return {"enabled": False}
        short = retain_s < _DEFAULT_WINDOW_S
        archive = {"min": max(retain_s // 2, 10), "max": retain_s, "batch": max(retain_s // 6, 1)}
        return {
            "enabled": True,
            "clean": {"retain": f"{retain_s}s", "interval": f"{min(retain_s // 2, 300)}s"},
            "index_retain": f"{retain_s}s",
            **({"archive": archive} if short else {}),
        }

    def _create_input(self) -> None:
        topic = TopicSpec(INPUT, PARTITIONS, config=self._retention())
        self._with_admin(lambda admin: admin.create_topics([topic]))

    def _retention(self) -> dict[str, str]:
        """Of the topics that time deletes from. `run` makes those of tombstones and dead letters, and each
        start gives them the configured retention, whoever made them; that of tombstones is hours.
        """
        keep_ms = self._settings.retention_s * 1_000
        # Kafka deletes whole segments: one that is not full would keep what is older.
        return {"retention.ms": str(keep_ms), "segment.ms": str(keep_ms // 4)}

    def _with_admin(self, act: Callable[[Admin], None]) -> None:
        admin = ConfluentKafkaClient.from_config(load_config(self._config)).admin()
        try:
            act(admin)
        finally:
            admin.close()
