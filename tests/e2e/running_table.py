"""`tidemark run` as a user starts it: a process of its own, asked by the installed command line.

Only what a test waits for is asked by the command line's own client, in this process (`shows`): a new process
for every look would be half of what a small machine does meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
from confluent_kafka import Producer
from hudi import HudiReadOptions, HudiTableBuilder

from tests.e2e import run_without_spark
from tidemark.config import load_config
from tidemark.config.run_file import resolve_addresses
from tidemark.console.admin_client import AdminClient
from tidemark.errors import TidemarkError

TIDEMARK = Path(sys.executable).with_name("tidemark")
SCHEMA = {
    "type": "record",
    "name": "account",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "region", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "balance", "type": ["null", "double"], "default": None},
    ],
}
CONFIG = """\
table:
  name: accounts
  path: ./warehouse/accounts
  type: {table_type}
  record_key: [id]
  partition: [region]
  ordering: at
  schema: accounts.avsc
  index: {{shards: 4, lanes: 2}}
input: {{topics: [accounts-in], partitions: 2, delete_field: gone}}
kafka: {{bootstrap.servers: embedded}}
state: {{path: ./state, memory: 128MiB, disk: 1GiB}}
epoch: {{interval: 500ms}}
services: {{coordinator: "127.0.0.1:0", metrics: "127.0.0.1:0"}}
spark: {{spark.master: "local[2]", spark.driver.memory: 512m}}
"""
ROLES = ("kafka", "coordinator", "assigner", "writer")


class RunningTable:
    """A folder with a configuration, and at most one `tidemark run` of it, by `command`."""

    # Here, since tables of other configurations are made without this `__init__`.
    _command: Path = TIDEMARK

    # Whether `run` starts a broker, and ends it.
    starts_kafka = True

    def __init__(self, folder: Path, table_type: str = "merge_on_read", command: Path = TIDEMARK) -> None:
        self.folder = folder
        self._command = command
        self.config = folder / "accounts.yaml"
        self.table = folder / "warehouse" / "accounts"
        (folder / "accounts.avsc").write_text(json.dumps(SCHEMA))
        self.config.write_text(CONFIG.format(table_type=table_type))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor ended by itself."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = 300.0, *, spark: bool = True) -> None:
        """Returns when the coordinator answers and both stages have their lanes. Without `spark` the writer
        has no JVM (`run_without_spark`).
        """
        command = self._command if spark else run_without_spark.command_in(self.folder)
        with (self.folder / "run.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(command), "run", "-c", str(self.config)],
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
            )
        self.until(self._is_complete, timeout_s)

    def until(
        self, holds: Callable[[], Any], timeout_s: float, why_not: Callable[[], str] | None = None
    ) -> None:
        """Polls; a failure says `why_not`, and what the services said."""
        end = time.monotonic() + timeout_s
        while not holds():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{why_not() if why_not else ''}\n{self.said()}")
            time.sleep(0.2)

    def shows(self, holds: Callable[[dict[str, Any]], Any]) -> bool:
        """Whether the document of `tidemark status` is so now; not while nobody answers."""
        try:
            with AdminClient(resolve_addresses(load_config(self.config))) as client:
                return bool(holds(client.status(5.0)))
        except TidemarkError:
            return False

    def until_shown(self, holds: Callable[[dict[str, Any]], Any], timeout_s: float = 180.0) -> None:
        """Returns when `tidemark status` shows it."""
        self.until(lambda: self.shows(holds), timeout_s)

    def said(self) -> str:
        """What `run` wrote, and the end of each service's log."""
        logs = sorted((self.folder / "state" / "logs").glob("*.log"))
        parts = [f"--- {log.name}\n{log.read_text()[-1_500:]}" for log in logs]
        run = self.folder / "run.log"
        return "\n".join([run.read_text()[-3_000:] if run.exists() else "it never ran", *parts])

    def run_file(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "state" / "run.json").read_text()))

    def cli(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The JSON document of a command that ends with `code`."""
        done = subprocess.run(
            [str(self._command), *arguments, "-c", str(self.config), "--json"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            cwd=self.folder,
        )
        assert done.returncode == code, (done.stderr, self.said())
        return dict(json.loads(done.stdout)) if done.stdout else {"error": done.stderr}

    def feed(self, records: Iterable[tuple[str | None, Mapping[str, Any] | bytes | None]]) -> int:
        """Sends (Kafka key, value) in order, idempotently; returns how many."""
        producer = Producer(
            {
                "bootstrap.servers": self.run_file()["kafka"],
                "enable.idempotence": True,
                "message.timeout.ms": 300_000,
                "log_level": 2,
            }
        )
        failures: list[Any] = []
        count = 0
        for key, value in records:
            content = json.dumps(value).encode() if isinstance(value, Mapping) else value
            producer.produce(
                "accounts-in", content, key, on_delivery=lambda e, _: failures.append(e) if e else None
            )
            producer.poll(0)
            count += 1
        assert producer.flush(300.0) == 0
        assert failures == []
        return count

    def kill(self, role: str) -> int:
        """SIGKILL to the one process of a role; returns when another runs in its place, and the children of
        the first (Spark's JVM and workers) are gone.
        """
        victim = int(self.run_file()["pids"][role][0])
        family = psutil.Process(victim).children(recursive=True)
        os.kill(victim, signal.SIGKILL)
        self.until(lambda: self.run_file()["pids"].get(role, []) not in ([], [victim]), 240.0)
        _, alive = psutil.wait_procs(family, timeout=60.0)
        assert alive == [], [each.cmdline() for each in alive]
        return victim

    def rows(self) -> list[dict[str, Any]]:
        """All live rows as hudi-rs reads them, meta columns included."""
        batches = HudiTableBuilder.from_base_uri(str(self.table)).build().read(HudiReadOptions())
        return list(pa.Table.from_batches([pa.record_batch(batch) for batch in batches]).to_pylist())

    def metrics(self) -> str:
        """What `services.metrics` serves now."""
        with urllib.request.urlopen(f"http://{self.run_file()['metrics']}/metrics", timeout=60) as answer:
            return str(answer.read().decode())

    def stop(self, number: int = signal.SIGINT, timeout_s: float = 180.0) -> int:
        """Ends `run` by a signal; returns its exit code. Asserts that nothing of it is left."""
        assert self._process is not None
        found = self.run_file()
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.send_signal(number)
        code = self._process.wait(timeout_s)
        _, alive = psutil.wait_procs(family, timeout=60.0)
        assert alive == [], [each.cmdline() for each in alive]
        own = ("kafka", "coordinator", "metrics") if self.starts_kafka else ("coordinator", "metrics")
        for address in (found[name] for name in own):
            assert not listens(address), address
        self._process = None
        return code

    def abandon(self) -> None:
        """Ends what a failed test left."""
        if self._process is None or self._process.poll() is not None:
            return
        family = psutil.Process(self._process.pid).children(recursive=True)
        self._process.kill()
        self._process.wait(30.0)
        for each in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()

    def _is_complete(self) -> bool:
        return self.shows(
            lambda status: all(
                sum(len(each["lanes"]) for each in status["services"][stage]) == 2
                for stage in ("shuffle", "assign")
            )
        )


def listens(address: str) -> bool:
    """Whether somebody accepts connections there."""
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0
