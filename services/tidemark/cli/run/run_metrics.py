"""The metrics of `tidemark run`, at `services.metrics`: its own gauges, followed by those of its services.

- Its own gauges are set from the coordinator's status every two seconds, so they exist while a service is
  down.
- The services' metrics are read from them at each scrape. A service that does not answer is left out, and its
  `tidemark_run_service_up` is 0.
"""

from __future__ import annotations

import http.client
import math
import ssl
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from prometheus_client import Gauge
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from tidemark.cli.run.supervised_process import SupervisedProcess
from tidemark.config import Address, TableConfigFile
from tidemark.console.admin_client import AdminClient
from tidemark.errors import TidemarkError
from tidemark.hudi_format.model import instant_to_ms
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.http_messages import Answer, Request
from tidemark.stream_runtime.http_server import HttpServer
from tidemark.stream_runtime.metrics import Metrics
from tidemark.stream_runtime.security.client import client_security, https_context
from tidemark.stream_runtime.security.listening import ListenError, is_loopback
from tidemark.stream_runtime.security.local_token import own_token
from tidemark.stream_runtime.security.server import server_security
from tidemark.stream_runtime.service_http import start_guarded_server
from tidemark.table_status.status import Status, VerificationState

_EVERY_S: Final = 2.0
_TIMEOUT_S: Final = 2.0
_SCRAPE_S: Final = 2.0
_PAGE_BYTES_MAX: Final = 4 << 20
_RECORDS: Final = ("input", "inserts", "updates", "deletes", "moves", "superseded", "no_ops")


class RunMetrics:
    """Serves the metrics while `tidemark run` runs. `http` are the addresses of the services' own metrics.
    `say` is called once, when the coordinator serves the table.
    """

    def __init__(
        self,
        config: TableConfigFile,
        processes: Mapping[str, SupervisedProcess],
        http: Mapping[str, Address],
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self._processes = processes
        self._http = http
        self._say = say
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self._server: HttpServer | None = None
        self._client = client_security(config, env=own_token(config))
        self._https = https_context(config)
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
        self._service_up = metrics.gauge("service_up", "1 while a service answers with its metrics", ["role"])
        self._verification = VerificationMetrics(metrics)

    def start(self) -> None:
        """Begins to listen. Raises ListenError for an address that is taken, and for an address that other
        machines reach and the configuration does not allow.
        """
        config, routes = self._config, {"/metrics": self._page}
        try:
            security = server_security(config, SystemClock(), self._metrics.refused)
            self._server = start_guarded_server(config.services.metrics, routes, config, security)
        except ListenError as error:
            raise type(error)(f"{error}: set services.metrics to a free address") from None
        self._thread.start()

    def stop(self) -> None:
        """Stops listening and reading. Repeatable."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_TIMEOUT_S + 1.0)
        if self._server is not None:
            self._server.close()
            self._server = None

    def _page(self, _: Request) -> Answer:
        pages = {role: self._scrape(address) for role, address in self._http.items()}
        for role, page in pages.items():
            self._service_up.labels(role).set(page is not None)
        own = generate_latest(self._metrics.registry)
        return Answer(b"".join([own, *filter(None, pages.values())]), CONTENT_TYPE_PLAIN_0_0_4)

    def _scrape(self, address: Address) -> bytes | None:
        return scrape(address, self._client.token(), self._https)

    def _run(self) -> None:
        told = False
        with AdminClient(self._config, self._client) as client:
            while not self._stopped.wait(_EVERY_S if told else 0.25):
                for role, process in self._processes.items():
                    self._starts.labels(role).set(process.starts)
                try:
                    status, _ = client.typed_status(_TIMEOUT_S)
                except TidemarkError:
                    self._up.set(0)
                    continue
                self._show(status)
                if not told and status.coordinator.term >= 0:
                    told = True
                    self._say(f"serving table {self._config.table.name}: Ctrl-C stops")

    def _show(self, status: Status) -> None:
        self._up.set(1)
        coordinator, records = status.coordinator, status.records
        if coordinator.term < 0:
            # The coordinator has not read the table's state yet, so its zeros mean nothing.
            return
        self._halted.set(bool(coordinator.halted or coordinator.trouble or status.gave_up))
        self._epoch.set(status.last_commit.epoch)
        for outcome in _RECORDS:
            self._records.labels(outcome).set(getattr(records.committed, outcome))
        self._dead.set(records.dead_letters)
        self._uncommitted.set(status.in_flight.bytes)
        # While Kafka does not answer the lag is unknown. NaN says so; 0 would say that there is none.
        lag = status.lag
        self._lag.labels("shuffle").set(lag.input_offsets_not_shuffled if lag is not None else math.nan)
        self._lag.labels("commit").set(lag.input_offsets_not_committed if lag is not None else math.nan)
        self._verification.show(status.verification)


def scrape(address: Address, token: str | None = None, https: ssl.SSLContext | None = None) -> bytes | None:
    """The page /metrics of a service on this machine, in Prometheus's text format; None when it does not
    answer.

    `https` is used for an address that other machines reach as well (`start_guarded_server`).
    """
    headers = {"Accept": "text/plain; version=0.0.4"} | (
        {"Authorization": f"Bearer {token}"} if token else {}
    )
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_SCRAPE_S)
    if https is not None and not is_loopback(address.host):
        connection = http.client.HTTPSConnection(address.host, address.port, timeout=_SCRAPE_S, context=https)
    try:
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        page = answer.read(_PAGE_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return page if answer.status == HTTPStatus.OK and len(page) <= _PAGE_BYTES_MAX else None


class VerificationMetrics:
    """The gauges, set from the coordinator's status."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._gauges: dict[str, Gauge] = {}

    def show(self, verification: VerificationState | None) -> None:
        """Sets the gauges. `verification` is None while verification is off. A verification that ended
        without a verdict sets its duration only.
        """
        last = verification.last if verification is not None else None
        if verification is None or last is None:
            return
        self._set("verify_duration_seconds", "How long the last verification took", last.seconds)
        if last.agrees is not None:
            differences = sum(kind.count for kind in last.differences.values())
            self._set("verify_agrees", "1 when the last verification found no difference", last.agrees)
            self._set("verify_differences", "Differences that the last verification found", differences)
        if (verified := verification.verified) is not None:
            self._set("verified_epoch", "Newest epoch that was verified", verified.epoch or 0)
            seconds = instant_to_ms(verified.as_of) / 1000 if verified.as_of else 0
            self._set(
                "verified_instant_seconds", "Completion time of the newest commit that was verified", seconds
            )

    def _set(self, name: str, help_text: str, value: float) -> None:
        if name not in self._gauges:
            self._gauges[name] = self._metrics.gauge(name, help_text)
        self._gauges[name].set(value)
