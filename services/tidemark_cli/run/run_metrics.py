"""Prometheus gauges of a running table, made of the coordinator's status document every two seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from stream_runtime.config import TableConfigFile
from stream_runtime.errors import StreamRuntimeError
from stream_runtime.metrics import Metrics, MetricsServer
from stream_runtime.rpc.server import check_listen_address
from tidemark_cli.admin_client import AdminClient
from tidemark_cli.run.supervised_process import SupervisedProcess
from tidemark_cli.run.verification_metrics import VerificationMetrics

_EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 2.0
_RECORDS: Final = ("input", "inserts", "updates", "deletes", "moves", "superseded", "no_ops")


class RunMetrics:
    """Served at `services.metrics` while `run` runs; `say` hears once when the coordinator serves."""

    def __init__(
        self,
        config: TableConfigFile,
        processes: Mapping[str, SupervisedProcess],
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._processes = processes
        self._say = say
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._server: MetricsServer | None = None
        metrics = Metrics("run", config.table.name)
        self._metrics = metrics
        self._epoch = metrics.gauge("committed_epoch", "Last committed epoch")
        self._records = metrics.gauge("committed_records", "Committed input records by outcome", ["outcome"])
        self._lag = metrics.gauge("lag_offsets", "Input offsets that did not reach a stage yet", ["stage"])
        self._dead = metrics.gauge("dead_letter_records", "Records that could not be taken")
        self._uncommitted = metrics.gauge("uncommitted_bytes", "Bytes tagged and not committed")
        self._starts = metrics.gauge("process_starts", "How often a service was started", ["role"])
        self._halted = metrics.gauge(
            "halted", "1 while tagging rests for a reason that somebody has to look at (`tidemark status`)"
        )
        self._up = metrics.gauge("coordinator_up", "1 while the coordinator answers")
        self._verification = VerificationMetrics(metrics)

    def start(self) -> None:
        """Begins to listen. Raises MetricsError when the address is taken, ListenError for a remote one."""
        services = self._config.services
        check_listen_address(services.metrics, services.allow_remote)
        self._server = self._metrics.serve(self._config.services.metrics)
        self._thread.start()

    def stop(self) -> None:
        """Repeatable."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT_S + 1.0)
        if self._server is not None:
            self._server.close()
            self._server = None

    def _run(self) -> None:
        told = False
        with AdminClient(self._config) as client:
            while not self._stopped.wait(_EVERY_S if told else 0.25):
                for role, process in self._processes.items():
                    self._starts.labels(role).set(process.starts)
                try:
                    document = client.status(_TIMEOUT_S)
                except StreamRuntimeError:
                    self._up.set(0)
                    continue
                self._show(document)
                if not told and document["coordinator"]["term"] >= 0:
                    told = True
                    self._say(f"serving table {self._config.table.name}: Ctrl-C stops")

    def _show(self, document: Mapping[str, Any]) -> None:
        self._up.set(1)
        coordinator = document["coordinator"]
        self._halted.set(bool(coordinator["halted"] or coordinator["trouble"] or document["gave_up"]))
        self._epoch.set(document["last_commit"]["epoch"])
        records = document["records"]
        for outcome in _RECORDS:
            self._records.labels(outcome).set(records["committed"][outcome])
        self._dead.set(records["dead_letters"])
        self._uncommitted.set(document["in_flight"]["bytes"])
        self._lag.labels("shuffle").set(document["lag"]["input_offsets_not_shuffled"])
        self._lag.labels("commit").set(document["lag"]["input_offsets_not_committed"])
        self._verification.show(document["verification"])
