"""A whole pipeline as a user runs it: each service a process, by the command line, on a real Kafka.

Nothing of the services is imported here but the admin client; what a test knows of them comes from gRPC, from
the command line and from the files.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import psutil
import yaml

from tests.own_ports import own_ports
from tidemark.config import TableConfigFile, load_config
from tidemark.console.admin_client import AdminClient
from tidemark.errors import TidemarkError
from tidemark.ledger_client.dead_letters import DeadLetter, read_dead_letters
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.model import TopicSpec
from tidemark.stream_runtime.platform import child

STOP_ORDER: Final = ("services", "assigner", "writer", "coordinator")
READY_S: Final = 180.0
ANSWER_S: Final = 120.0
FLUSH_MS: Final = 240_000
_GRACE_S: Final = 120.0
_COMMAND_S: Final = 300.0
_LOG_TAIL: Final = 4_000
_SPARK_LESS_WRITER: Final = "tests.chaos.local_writer"
# One JVM of several on a small machine.
_SPARK: Final = {"spark.master": "local[2]", "spark.driver.memory": "512m"}

Config = dict[str, Any]
Message = tuple[bytes | None, bytes | None]
"""Kafka key and value."""


class Pipeline:
    """Services of one table. `assigner`, `assigner-2`, … name processes; what precedes "-" is the role.

    Owns its processes: leaving the context ends every one of them by its id.
    """

    def __init__(
        self,
        folder: Path,
        kafka: str,
        table: Mapping[str, Any],
        schema: Mapping[str, Any],
        *,
        input_partitions: int = 2,
        input_settings: Mapping[str, str] | None = None,
        spark: bool = True,
        **sections: Mapping[str, Any],
    ) -> None:
        """`table` completes its section (name and record_key at least), other sections are as in the YAML.

        The input topic is made here, so that records may be there before any service. Without `spark` the
        writer's own loop and tasks run in one process that needs no JVM: the files come out the same, and a
        test that is not about Spark saves the minute that Spark costs. `self.spark` may be changed between
        two writers.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._clock = SystemClock()
        (folder / "schema.avsc").write_text(json.dumps(schema))
        coordinator, metrics = own_ports(2)
        name = table["name"]
        self.document: Config = {
            "table": {"path": "./table", "schema": "schema.avsc", "index": {"shards": 4}, **table},
            "input": {"topics": [f"{name}-input"], **sections.pop("input", {})},
            "kafka": {"bootstrap.servers": kafka},
            "state": {"path": "./state"},
            "epoch": {"interval": "500ms"},
            "services": {"coordinator": f"127.0.0.1:{coordinator}", "metrics": f"127.0.0.1:{metrics}"},
            "spark": _SPARK,
            **sections,
        }
        self.file = self.write_config("table.yaml", {})
        self.config: TableConfigFile = load_config(self.file, {})
        self.table = Path(self.config.table.path)
        self.topic = self.config.input.topics[0]
        self._kafka = ConfluentKafkaClient.from_config(self.config, clock=self._clock)
        self._admin: AdminClient | None = None
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._partitions = input_partitions
        self.spark = spark
        self._producer = self._kafka.plain_producer()
        self._create_input(input_settings or {})

    # -- processes

    def start(self, *names: str) -> None:
        """Starts these services, or all three, and returns when the coordinator (if it runs) answers."""
        for name in names or ("coordinator", "assigner", "writer"):
            self.start_process(name, self.file)
        if "coordinator" in self._processes:
            self.wait("the coordinator", self.coordinator_answers, READY_S)

    def start_process(self, name: str, config: Path, *arguments: str, by: str = "tidemark.cli.entry") -> None:
        """One service as a process with a configuration of its own; its output goes to `<name>.log`.

        `by` is the module that is run, where it is not the product's.
        """
        if name in self._processes:
            raise AssertionError(f"{name} runs already")
        role = name.split("-")[0]
        words = ["services", "serve"] if role == "services" else [role]
        module = [_SPARK_LESS_WRITER] if role == "writer" and not self.spark else [by, *words]
        command = [sys.executable, "-m", *module, "-c", str(config), *arguments]
        self._processes[name] = child.spawn(command, self.log_file(name))

    def stop(self, *names: str) -> None:
        """SIGTERM to these, or to all in the order of `tidemark run`; each has to end with code 0."""
        for name in names or self._in_order():
            process = self._processes.pop(name)
            code = child.end(process, self._clock, _GRACE_S)
            assert code == 0, f"{name} ended with code {code}:\n{self.log(name)}"

    def kill(self, name: str) -> None:
        """SIGKILL to one process; returns when its children are gone too. Spark's JVM ends by itself a moment
        after its parent, and deletes files of `state.path` until then.
        """
        process = self._processes.pop(name)
        alive = process.poll() is None
        family = psutil.Process(process.pid).children(recursive=True) if alive else []
        child.kill(process, self._clock)
        _, left = psutil.wait_procs(family, timeout=_GRACE_S)
        assert left == [], [each.cmdline() for each in left]

    def exit_code(self, name: str, timeout_s: float = READY_S) -> int:
        """Waits for a process to end by itself."""
        process = self._processes[name]
        assert child.wait_for_exit(process, self._clock, timeout_s), f"{name} runs on:\n{self.log(name)}"
        del self._processes[name]
        return int(process.returncode)

    def log_file(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def log(self, name: str) -> str:
        """The end of what the process wrote."""
        file = self.log_file(name)
        return file.read_bytes()[-_LOG_TAIL:].decode(errors="replace") if file.exists() else ""

    # -- records

    def feed(self, messages: Iterable[Message]) -> int:
        """Produces in order; messages of one Kafka key go to one partition. Returns how many there were."""
        count = 0
        for key, value in messages:
            self._producer.produce(self.topic, value, key, zlib.crc32(key or b"") % self._partitions)
            count += 1
        self._producer.flush()
        return count

    def feed_partition(self, partition: int, messages: Iterable[Message], topic: str = "") -> int:
        """Produces to one partition, of the first input topic if none is named."""
        count = self._producer.produce_batch(topic or self.topic, messages, partition)
        self._producer.flush()
        return count

    def feed_partitions(self, parts: Mapping[int, Iterable[Message]]) -> None:
        """Produces to each partition of the first input topic, and then waits for all: waited for one by one
        they would become several transactions of each stage.
        """
        for partition, part in parts.items():
            self._producer.produce_batch(self.topic, part, partition)
        self._producer.flush()

    def flush(self, timeout_ms: int = FLUSH_MS) -> dict[str, Any]:
        """Returns when all that was fed is committed: {"epoch", "instant"}."""
        try:
            return self.admin.flush(timeout_ms)
        except TidemarkError as error:
            logs = "\n".join(f"--- {name}\n{self.log(name)}" for name in self._processes)
            raise AssertionError(f"flush: {error}\n{logs}") from error

    def dead_letters(self) -> list[DeadLetter]:
        return read_dead_letters(self._kafka, self.config.table.name, self._clock)

    # -- questions

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient(self.config)
        return self._admin

    def status(self) -> dict[str, Any]:
        return self.admin.status(ANSWER_S)

    def command(
        self, *arguments: str, config: Path | None = None, prefix: Sequence[str] = ()
    ) -> subprocess.CompletedProcess[str]:
        """`tidemark …` with this table's configuration, to its end; the exit code is the caller's to judge.

        `prefix` is a command that runs it.
        """
        tidemark = [sys.executable, "-m", "tidemark.cli.entry", *arguments, "-c", str(config or self.file)]
        command = [*prefix, *tidemark]
        return subprocess.run(command, capture_output=True, text=True, timeout=_COMMAND_S, check=False)

    def write_config(self, name: str, changes: Mapping[str, Any]) -> Path:
        """A YAML file beside the table's with other sections; a section given here is merged key by key."""
        document = {**self.document}
        for section, content in changes.items():
            merged = isinstance(content, Mapping) and isinstance(document.get(section), Mapping)
            document[section] = {**document[section], **content} if merged else content
        file = self.folder / name
        file.write_text(yaml.safe_dump(document))
        return file

    def wait(self, what: str, is_so: Callable[[], bool], timeout_s: float = READY_S) -> None:
        """Polls; fails with the logs of processes that ended meanwhile."""
        end = time.monotonic() + timeout_s
        while not is_so():
            ended = {name: p.returncode for name, p in self._processes.items() if p.poll() is not None}
            if ended or time.monotonic() > end:
                logs = "\n".join(f"--- {name}\n{self.log(name)}" for name in ended or self._processes)
                raise AssertionError(f"waited {timeout_s} s for {what}; ended: {ended}\n{logs}")
            time.sleep(0.1)

    def close(self) -> None:
        """Ends everything that still runs, whatever state it is in. Repeatable."""
        for name in self._in_order():
            child.end(self._processes.pop(name), self._clock, _GRACE_S)
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- inside

    def _create_input(self, settings: Mapping[str, str]) -> None:
        topics = self.config.input.topics
        admin = self._kafka.admin()
        try:
            admin.create_topics([TopicSpec(topic, self._partitions, config=settings) for topic in topics])
        finally:
            admin.close()

    def coordinator_answers(self) -> bool:
        try:
            return int(self.admin.status(2.0)["coordinator"]["term"]) >= 0
        except TidemarkError:
            return False

    def _in_order(self) -> list[str]:
        return sorted(self._processes, key=lambda name: STOP_ORDER.index(name.split("-")[0]))
