"""`tidemark run`: the embedded Kafka and the three services of a table, watched until it is told to stop.

Start: Kafka, beside it the writer (Spark takes longest), then the other services; they wait for each other.
Stop, in this order and each within a bound: assigner, writer, coordinator, Kafka. All children end with this
process, however it ends.

A service that no restart can help is not started again, and `run.json` and `tidemark status` say why. The
others go on: what is tagged is committed, and the coordinator can be asked. Without a coordinator nothing is
of use, nor with a service that refused its configuration at the very start: then the run ends, and says why.
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
from tidemark.console.errors import ADDRESS_TAKEN, WRONG_USE, CliError
from tidemark.console.state_lock import state_lock
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.platform.broker_files import free_ports
from tidemark.stream_runtime.security.local_token import own_token, remove_local_token, write_local_token
from tidemark.stream_runtime.service_http import speaks_https


def page_address(services: ServicesConfig, random: Random, say: Callable[[str], None]) -> Address | None:
    """None where `services.web` is off. Two tables on one machine need no settings to have a page each."""
    wanted = services.web
    if wanted is None:
        return None
    if wanted.port and _is_free(services.listening(wanted)):
        return wanted
    found = Address(wanted.host, free_ports(1, random)[0])
    if wanted.port:
        say(f"another process has {wanted} (services.web): the page of this run is at {found}")
    return found


def page_url(page: Address, services: ServicesConfig, security: SecurityConfig) -> str:
    """What to open; where it listens says whether it is encrypted."""
    https = speaks_https(services.listening(page), security)
    return f"{'https' if https else 'http'}://{page}"


def _is_free(at: Address) -> bool:
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server listens: a port whose last connections are ending is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((at.host, at.port))
        except OSError:
            return False
    return True


SERVICES: Final = ("coordinator", "assigner", "writer")
_STOP_ORDER: Final = ("assigner", "writer", "coordinator")
_GRACE_S: Final[Mapping[str, float]] = {"assigner": 10.0, "writer": 20.0, "coordinator": 10.0}
_KAFKA_GRACE_S: Final = 15.0
_TICK_S: Final = 0.1
LOGS: Final = "logs"
LOOPBACK: Final = "127.0.0.1"


class Supervisor:
    """`run` is called once, by the thread that the children shall live and die with.

    `command_of` gives the command of a service; `say` takes lines for the user.
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
        """Until `stop`; with `hurry` set nothing is waited for at the end.

        Raises CliError (the state folder is in use), ServiceStoppedError, KafkaError, PlatformError.
        """
        state = self._config.state.path
        with state_lock(state, f"tidemark run -c {self._config.file}"):
            # What a killed run left would tell others of addresses that are not there.
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
        for role in SERVICES:
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
            f"{role} {self.stopped[role]}. The other services go on, `tidemark status` can be asked; once "
            "that is repaired, stop this run and start it again"
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
        """Port 0 becomes a free one."""
        services = config.services
        ports = free_ports(2, self._ids.random())
        coordinator, metrics = services.coordinator, services.metrics
        return dataclasses.replace(
            services,
            coordinator=Address(coordinator.host, coordinator.port or ports[0]),
            metrics=Address(metrics.host, metrics.port or ports[1]),
        )

    def _http_addresses(self, config: TableConfigFile) -> dict[str, Address]:
        """Where each service serves its metrics: on this machine alone, unless the configuration says more
        of the coordinator, whose page is for people.
        """
        ports = free_ports(len(SERVICES), self._ids.random())
        found = {role: Address(LOOPBACK, port) for role, port in zip(SERVICES, ports, strict=True)}
        if (wanted := config.services.http) is not None:
            at = found["coordinator"]
            found["coordinator"] = Address(wanted.host, wanted.port or at.port)
        return found

    def _forwarder(self, role: str) -> Callable[[str], None]:
        # Each line of it (a trace has many): what a message has of strangers begins no line of ours.
        return lambda text: self._say("\n".join(f"[{role}] {line}" for line in text.split("\n")))


def service_command(role: str, file: Path) -> list[str]:
    """The command that runs one service of the table."""
    return [sys.executable, "-m", "tidemark.cli.entry", role, "-c", str(file)]
