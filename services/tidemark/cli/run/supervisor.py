"""`tidemark run`: starts the embedded Kafka and the three services of a table (a fourth one for merges, with
`table_services.run: separate`), and watches them until it is told to stop.

Start:

1. the embedded Kafka, if the configuration has one; the writer starts beside it, because Spark takes longest
2. the coordinator and the assigner; the services wait for each other

Stop, each within its own time limit: assigner, writer, coordinator, Kafka. If this process is killed the
kernel kills its children.

A service that restarts cannot help stays stopped; `run.json` and `tidemark status` say why. The others
continue: what is tagged is committed, and the coordinator answers. But the run ends with that error if the
service is the coordinator, or refused its configuration or port before it ever ran for long.
"""

from __future__ import annotations

import dataclasses
import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Final

from tidemark.cli.run.console_log import ConsoleLog
from tidemark.cli.run.run_metrics import RunMetrics
from tidemark.cli.run.supervised_kafka import SupervisedKafka
from tidemark.cli.run.supervised_process import ServiceStoppedError, SupervisedProcess
from tidemark.config import Address, ServicesConfig, TableConfigFile
from tidemark.config.run_file import RunFile, run_file_path, write_last_stop, write_run_file
from tidemark.config.security_model import SecurityConfig
from tidemark.config.table_services_model import ServicesRun
from tidemark.console.errors import ADDRESS_TAKEN, WRONG_USE, CliError
from tidemark.console.state_lock import state_lock
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.platform.broker_files import free_ports
from tidemark.stream_runtime.security.local_token import own_token, remove_local_token, write_local_token
from tidemark.stream_runtime.service_http import speaks_https


def page_address(services: ServicesConfig, random: Random, say: Callable[[str], None]) -> Address | None:
    """The address of the web page; None when `services.web` is off. If the configured port is taken, as by
    the page of another table on this machine, a free one is chosen, and `say` tells which.
    """
    wanted = services.web
    if wanted is None:
        return None
    if wanted.port and _is_free(services.listening(wanted)):
        return wanted
    free = Address(wanted.host, free_ports(1, random)[0])
    if wanted.port:
        say(f"another process has {wanted} (services.web): the page of this run is at {free}")
    return free


def page_url(page: Address, services: ServicesConfig, security: SecurityConfig) -> str:
    """The URL of the page. It is https where the page listens at an address that has TLS (`speaks_https`)."""
    https = speaks_https(services.listening(page), security)
    return f"{'https' if https else 'http'}://{page}"


def _is_free(at: Address) -> bool:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # The server sets this too: a port counts as free while the connections of its last owner are ending.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((at.host, at.port))
        except OSError:
            return False
    return True


SERVICES: Final = ("coordinator", "assigner", "writer")
# With `table_services.run: separate`: what merges for compactions.
MERGES: Final = "services"
_STOP_ORDER: Final = (MERGES, "assigner", "writer", "coordinator")
_GRACE_S: Final[Mapping[str, float]] = {MERGES: 5.0, "assigner": 10.0, "writer": 20.0, "coordinator": 10.0}
_KAFKA_GRACE_S: Final = 15.0
_TICK_S: Final = 0.1
LOGS: Final = "logs"
LOOPBACK: Final = "127.0.0.1"


class Supervisor:
    """Runs the services of one table. Call `run` once; the children are killed when its thread ends.

    `say` prints a line for the user. `command_of` returns the command of a service (role, configuration
    file).
    """

    def __init__(
        self,
        config: TableConfigFile,
        clock: Clock,
        ids: IdSource,
        say: Callable[[str], None],
        command_of: Callable[[str, Path], list[str]] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._ids = ids
        self._say = say
        self._command_of = command_of or service_command
        self._kafka: SupervisedKafka | None = None
        self._processes: dict[str, SupervisedProcess] = {}
        self._written: RunFile | None = None
        self._http: dict[str, Address] = {}
        self._page: Address | None = None
        self.stopped: dict[str, str] = {}

    def run(self, stop: threading.Event, hurry: threading.Event | None = None) -> None:
        """Runs until `stop` is set. If `hurry` is set too, services are killed without waiting for their end.

        Raises CliError when the state folder is in use, ServiceStoppedError, KafkaError, PlatformError.
        """
        state = self._config.state.path
        with state_lock(state, f"tidemark run -c {self._config.file}"):
            # A run that was killed left its run file, with addresses where nothing listens any more.
            run_file_path(state).unlink(missing_ok=True)
            write_last_stop(state, None)
            if self._config.security.knows_callers:
                write_local_token(state, self._ids)
            metrics: RunMetrics | None = None
            try:
                config = self._start()
                metrics = RunMetrics(config, self._processes, self._http, self._say)
                metrics.start()
                self._watch(stop)
            except CliError as error:
                write_last_stop(state, str(error))
                raise
            finally:
                if metrics is not None:
                    metrics.stop()
                self._stop(hurry or threading.Event())
                run_file_path(state).unlink(missing_ok=True)
                remove_local_token(state)

    def _start(self) -> TableConfigFile:
        config, state = self._config, self._config.state.path
        self._config = dataclasses.replace(config, services=self._with_ports(config))
        self._http = self._http_addresses(config)
        self._page = page_address(config.services, self._ids.random(), self._say)
        for role in roles(config):
            console = ConsoleLog(state / LOGS / f"{role}.log", self._forwarder(role))
            command = [*self._command_of(role, config.file), "--http", str(self._http[role])]
            if role == "coordinator" and self._page is not None:
                command += ["--web", str(self._page)]
            self._processes[role] = SupervisedProcess(
                role, command, console, self._clock, self._say, own_token(config)
            )
        if config.kafka.embedded:
            self._start_kafka()
        admin = ConfluentKafkaClient.from_config(self._config, clock=self._clock).admin()
        try:
            admin.check_broker()
        finally:
            admin.close()
        self._update_run_file()
        kafka, at = self._config.kafka.bootstrap_servers, self._config.services.coordinator
        self._say(f"table {config.table.name}: Kafka at {kafka}, coordinator at {at}, logs in {state / LOGS}")
        if self._page is not None:
            self._say(f"a page to look at: {page_url(self._page, config.services, config.security)}")
        return self._config

    def _start_kafka(self) -> None:
        self._say("starting Kafka")
        self._kafka = SupervisedKafka(self._config.state.path, self._clock, self._say)
        self._use_servers(self._kafka.bootstrap_servers)
        # Spark takes longest to start and asks for Kafka last.
        self._processes["writer"].step()
        self._kafka.start()
        self._follow_kafka(self._kafka.bootstrap_servers)

    def _watch(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if self._kafka is not None:
                self._kafka.step()
                self._follow_kafka(self._kafka.bootstrap_servers)
            for role, process in self._processes.items():
                process.step()
                if process.stopped is not None and role not in self.stopped:
                    self._stopped_for_good(role, process, process.stopped)
            self._update_run_file()
            stop.wait(_TICK_S)

    def _stopped_for_good(self, role: str, process: SupervisedProcess, reason: str) -> None:
        refused_at_start = process.stopped_code in (WRONG_USE, ADDRESS_TAKEN) and not process.has_settled
        if role == "coordinator" or refused_at_start:
            raise ServiceStoppedError(role, reason, process.stopped_code)
        self.stopped[role] = f"has stopped and is not started again: {reason}"
        self._say(
            f"{role} {self.stopped[role]}. The other services continue, and `tidemark status` answers; "
            "repair the cause, then stop this run and start it again"
        )

    def _follow_kafka(self, servers: str) -> None:
        if servers == self._config.kafka.bootstrap_servers:
            return
        self._say(f"Kafka is now at {servers}: its former port was taken. Restarting all services")
        self._use_servers(servers)
        for process in self._processes.values():
            process.restart()

    def _use_servers(self, servers: str) -> None:
        kafka = self._config.kafka.with_bootstrap_servers(servers)
        self._config = dataclasses.replace(self._config, kafka=kafka)
        self._update_run_file()

    def _update_run_file(self) -> None:
        pids = {role: process.pids for role, process in self._processes.items()}
        if self._kafka is not None:
            pids["kafka"] = self._kafka.pids
        services = self._config.services
        failing = {role: why for role, process in self._processes.items() if (why := process.failing)}
        content = RunFile(
            self._config.kafka.bootstrap_servers,
            services.coordinator,
            services.metrics,
            os.getpid(),
            pids,
            dict(self.stopped),
            failing,
            {role: str(at) for role, at in self._http.items()},
            str(self._page) if self._page is not None else "",
        )
        if content != self._written:
            write_run_file(self._config.state.path, content)
            self._written = content

    def _stop(self, hurry: threading.Event) -> None:
        if self._processes:
            self._say("stopping")
        for role in _STOP_ORDER:
            if role in self._processes:
                self._processes[role].stop(0.0 if hurry.is_set() else _GRACE_S[role])
        if self._kafka is not None:
            self._kafka.stop(0.0 if hurry.is_set() else _KAFKA_GRACE_S)

    def _with_ports(self, config: TableConfigFile) -> ServicesConfig:
        """The addresses of coordinator and metrics; port 0 becomes a free one."""
        services = config.services
        ports = free_ports(2, self._ids.random())
        coordinator, metrics = services.coordinator, services.metrics
        return dataclasses.replace(
            services,
            coordinator=Address(coordinator.host, coordinator.port or ports[0]),
            metrics=Address(metrics.host, metrics.port or ports[1]),
        )

    def _http_addresses(self, config: TableConfigFile) -> dict[str, Address]:
        """Where each service serves its metrics: at the loopback address, except a coordinator with
        `services.http`.
        """
        started = roles(config)
        ports = free_ports(len(started), self._ids.random())
        addresses = {role: Address(LOOPBACK, port) for role, port in zip(started, ports, strict=True)}
        if (wanted := config.services.http) is not None:
            addresses["coordinator"] = Address(wanted.host, wanted.port or addresses["coordinator"].port)
        return addresses

    def _forwarder(self, role: str) -> Callable[[str], None]:
        # A message may have several lines (a traceback), some from outside. Each gets the service's name, so
        # that none of them looks like a line of the supervisor.
        return lambda text: self._say("\n".join(f"[{role}] {line}" for line in text.split("\n")))


def roles(config: TableConfigFile) -> tuple[str, ...]:
    """The services that run for this configuration."""
    services = config.table_services
    separate = services.enabled and services.run is ServicesRun.SEPARATE
    return (*SERVICES, MERGES) if separate else SERVICES


def service_command(role: str, file: Path) -> list[str]:
    """The command that runs one service of the table."""
    command = ["services", "serve"] if role == MERGES else [role]
    return [sys.executable, "-m", "tidemark.cli.entry", *command, "-c", str(file)]
