"""Runs a real Kafka on this machine, as child processes.

A cluster has one node, or several in tests of replication. Its folder keeps data, cluster id and ports, so
clients find the brokers again after a restart. Every acknowledged record survives kill -9 of the brokers. The
brokers end with the thread that started them (`child.spawn`).
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import psutil
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.ids import IdSource, SystemIds
from tidemark.stream_runtime.platform import broker_files, child, class_data
from tidemark.stream_runtime.platform.broker_format import NAMES, BrokerFormat
from tidemark.stream_runtime.platform.errors import BrokerFailedError
from tidemark.stream_runtime.platform.jars import class_path

_JVM: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError")
_FORMAT_TIMEOUT_S: Final = 240.0
"""A deadline alone, as long as that of a start: a busy machine needs long for what else takes a second."""
_POLL_S: Final = 0.05
_METADATA_TIMEOUT_S: Final = 1.0
_PORT_ATTEMPTS_MAX: Final = 3
_LOG_TAIL_BYTES: Final = 3_000


class EmbeddedKafka:
    """A cluster of `nodes` brokers, each of which is also a controller, in `directory`.

    `settings` are broker settings that win over the defaults of `broker_files`. As a context manager it
    starts the cluster and stops it in the end. Not thread-safe. Raises BrokerFailedError if the folder has a
    cluster with another number of nodes.
    """

    def __init__(
        self,
        directory: Path,
        jars: Sequence[Path],
        java_home: Path,
        nodes: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        heap_mb: int = 256,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._folder = directory.absolute()
        self._java = java_home / "bin" / "java"
        self._class_data = class_data.java_options(class_data.KAFKA, java_home, jars)
        self._class_path = class_path(jars)
        self._settings = dict(settings or {})
        self._heap_mb = heap_mb
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._cluster = self._recorded_cluster(nodes)
        usual = broker_files.server_settings(self._cluster, 1, self._node_folder(1) / "data")
        self._kept_format = BrokerFormat(jars, usual, self._settings)

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients, valid once it is started. They stay the same after a restart, unless
        another process took the ports.
        """
        return self._cluster.bootstrap_servers

    @property
    def pids(self) -> dict[int, int]:
        """The process ids of the nodes that run now, by node id (counted from 1)."""
        return {node: process.pid for node, process in self._processes.items() if process.poll() is None}

    def start(self, timeout_s: float = 240.0) -> None:
        """Starts every node that does not run, and returns when all are ready. Formats new data folders.

        Raises BrokerFailedError with the end of the log; then no node of this start runs any more.
        """
        self._refuse_second_start()
        for attempt in range(1, _PORT_ATTEMPTS_MAX + 1):
            self._move_off_taken_ports()
            try:
                for node in range(1, len(self._cluster.nodes) + 1):
                    self._start_node(node)
                self.wait_ready(timeout_s)
                return
            except BrokerFailedError as error:
                self.stop()
                # Another process may have taken the port after we looked at it.
                if attempt == _PORT_ATTEMPTS_MAX or "Address already in use" not in str(error):
                    raise
            except BaseException:
                self.stop()
                raise

    def start_node(self, node: int, timeout_s: float = 240.0) -> None:
        """Starts one node again, with its ports and data, and waits until the whole cluster is ready."""
        self._start_node(node)
        self.wait_ready(timeout_s)

    def stop(self, grace_s: float = 15.0) -> None:
        """Stops every node by SIGTERM, and by SIGKILL if it still runs after `grace_s`. Repeatable."""
        for process in self._processes.values():
            if process.poll() is None:
                # A process that was stopped (SIGSTOP) handles SIGTERM only after SIGCONT.
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for node in list(self._processes):
            child.end(self._processes.pop(node), self._clock, grace_s)
            self._pid_file(node).unlink(missing_ok=True)

    def kill(self, node: int = 1) -> None:
        """Ends a node by SIGKILL. `start_node` starts it again."""
        process = self._processes.pop(node, None)
        if process is not None:
            child.kill(process, self._clock)
            self._pid_file(node).unlink(missing_ok=True)

    def wait_ready(self, timeout_s: float = 240.0) -> None:
        """Returns when every running node answers and is in the cluster's metadata.

        Raises BrokerFailedError if a node ends meanwhile, or the time is over.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        waiting = set(self._processes)
        while waiting:
            for node, process in self._processes.items():
                if process.poll() is not None:
                    raise self._failure(node, f"ended with code {process.returncode}")
            if self._clock.monotonic_s() >= deadline_s:
                raise self._failure(min(waiting), f"was not ready within {timeout_s:.0f} s")
            waiting = {node for node in waiting if not self._answers(node)}
            if waiting:
                self._clock.sleep(_POLL_S)

    def __enter__(self) -> EmbeddedKafka:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _recorded_cluster(self, nodes: int) -> broker_files.Cluster:
        recorded = broker_files.load_cluster(self._folder)
        if recorded is None:
            return broker_files.new_cluster(nodes, self._ids)
        if len(recorded.nodes) != nodes:
            raise BrokerFailedError(
                f"{self._folder} has a cluster of {len(recorded.nodes)} nodes, and {nodes} are wanted: the "
                "number of nodes cannot change, use another folder"
            )
        return recorded

    def _refuse_second_start(self) -> None:
        for node in range(1, len(self._cluster.nodes) + 1):
            pid_file = self._pid_file(node)
            if node in self._processes or not pid_file.is_file():
                continue
            pid = int(pid_file.read_text() or 0)
            if _runs_with(pid, str(self._node_folder(node))):
                raise BrokerFailedError(
                    f"the Kafka of {self._folder} already runs (process {pid}), and another process started "
                    "it: stop that one first"
                )
            pid_file.unlink()

    def _move_off_taken_ports(self) -> None:
        """Chooses new ports for all nodes if another process has one of ours and no node runs."""
        ports = [port for node in self._cluster.nodes for port in (node.broker, node.controller)]
        if not self.pids and not all(map(broker_files.is_free, ports)):
            nodes, cluster_id = len(self._cluster.nodes), self._cluster.cluster_id
            self._cluster = broker_files.new_cluster(nodes, self._ids, cluster_id)
        self._folder.mkdir(parents=True, exist_ok=True)
        broker_files.save_cluster(self._folder, self._cluster)

    def _start_node(self, node: int) -> None:
        if node in self.pids:
            return
        folder = broker_files.write_node_files(self._folder, self._cluster, node, self._settings)
        properties = str(folder / "server.properties")
        self._clear_temporary_folder(node)
        if not (folder / "data" / NAMES).is_file():
            self._format(node, folder / "data", properties)
        process = child.spawn(
            self._command(node, "kafka.Kafka", properties), folder / "console.log", folder=folder
        )
        self._processes[node] = process
        self._pid_file(node).write_text(str(process.pid))

    def _format(self, node: int, data: Path, properties: str) -> None:
        if self._kept_format.apply(data, self._cluster.cluster_id, node, self._ids):
            return
        arguments = ("format", "-t", self._cluster.cluster_id, "-c", properties)
        command = self._command(node, "kafka.tools.StorageTool", *arguments)
        process = child.spawn(command, self._node_folder(node) / "console.log")
        if not child.wait_for_exit(process, self._clock, _FORMAT_TIMEOUT_S):
            child.kill(process, self._clock)
        if process.returncode != 0:
            raise self._failure(node, "could not format its data folder")
        self._kept_format.keep(data, self._cluster.cluster_id, node)

    def _command(self, node: int, main_class: str, *arguments: str) -> list[str]:
        logging = (self._node_folder(node) / "log4j2.properties").as_uri()
        return [
            *(str(self._java), f"-Xmx{self._heap_mb}m", *_JVM, *self._class_data),
            f"-Dlog4j2.configurationFile={logging}",
            f"-Djava.io.tmpdir={self._temporary_folder(node)}",
            *("-cp", self._class_path, main_class, *arguments),
        ]

    def _answers(self, node: int) -> bool:
        """Whether this node answers, and its metadata has every running node."""
        address = f"{broker_files.HOST}:{self._cluster.nodes[node - 1].broker}"
        if broker_files.is_free(self._cluster.nodes[node - 1].broker):
            return False
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0, "socket.timeout.ms": 1000})
        try:
            brokers = admin.list_topics(timeout=_METADATA_TIMEOUT_S).brokers
        except KafkaException:
            return False
        return self._processes.keys() <= brokers.keys()

    def _failure(self, node: int, what: str) -> BrokerFailedError:
        folder = self._node_folder(node)
        tails = "".join(f"\n{log}:\n{_tail(log)}" for log in (folder / "console.log", folder / "server.log"))
        return BrokerFailedError(f"Kafka node {node} {what}. Its logs end with:{tails}")

    def _node_folder(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    def _temporary_folder(self, node: int) -> Path:
        return self._node_folder(node) / "tmp"

    def _clear_temporary_folder(self, node: int) -> None:
        """Empties the JVM's temporary folder, where a killed JVM leaves the libraries that it unpacked."""
        shutil.rmtree(self._temporary_folder(node), ignore_errors=True)
        self._temporary_folder(node).mkdir()

    def _pid_file(self, node: int) -> Path:
        return self._node_folder(node) / "pid"


def _runs_with(pid: int, argument: str) -> bool:
    """Whether process `pid` exists and has `argument` on its command line. The id alone does not tell, since
    systems use process ids again.
    """
    try:
        return any(argument in part for part in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def _tail(log: Path) -> str:
    return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if log.is_file() else "(none)"
