"""The list of checks for a configuration, in their order; a check that needs what an earlier one did not find
is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tidemark.commit_coordinator.offline.rehearsal import rehearse_start
from tidemark.commit_coordinator.offline.table import is_half_made_here
from tidemark.config import TableConfigFile
from tidemark.config.run_file import RunFile, read_run_file, resolve_addresses
from tidemark.doctor import broker, machine, neighbours, places, table, trial
from tidemark.doctor.checks import Check, Finding, SkippedError, ok, warning
from tidemark.doctor.config_check import check_config_file
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import PROPERTIES_PATH
from tidemark.index_assigner import offline as assigner
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.confluent.inspection import ClusterInspection
from tidemark.stream_runtime.rpc.health import is_serving
from tidemark.stream_runtime.security.client import client_security
from tidemark.stream_writer import offline as writer

_BROKER: Final = (
    "Check kafka.bootstrap.servers and the security settings below kafka:; is the broker running?"
)


@dataclass
class Patient:
    """What is checked, and what earlier checks found out for later ones. `config` is None when no file was
    given, or the file cannot be used.
    """

    file: Path | None
    clock: Clock
    ids: IdSource
    config: TableConfigFile | None = None
    reachable: TableConfigFile | None = None
    """The configuration with real bootstrap servers; set once a broker answered."""
    _served: list[bool] = field(default_factory=list)

    @property
    def known(self) -> TableConfigFile:
        """The configuration. Raises SkippedError when it cannot be used."""
        if self.config is None:
            raise SkippedError("the configuration cannot be used")
        return self.config

    @property
    def answering(self) -> TableConfigFile:
        """The configuration with real bootstrap servers. Raises SkippedError when Kafka was not reached."""
        if self.reachable is None:
            raise SkippedError("Kafka was not reached")
        return self.reachable

    @property
    def running(self) -> RunFile | None:
        """The `tidemark run` that is active on this machine; None when there is none, or the state folder
        cannot be read: the check of the state folder says why.
        """
        try:
            return read_run_file(self.known.state.path)
        except OSError:
            return None

    @property
    def served(self) -> bool:
        """Whether a coordinator answers at the configured address, or that of the active `tidemark run`. It
        is asked only once.
        """
        if not self._served:
            running = self.running
            at = running.coordinator if running is not None else self.known.services.coordinator
            self._served.append(bool(at.port) and is_serving(at, security=client_security(self.known)))
        return self._served[0]


def plan(patient: Patient) -> list[Check]:
    """All checks, each with a name of its own. Without a file only those of the machine."""
    clock, ids = patient.clock, patient.ids
    always = [
        Check("python", machine.python, "Run `make setup`"),
        Check("java", machine.java, "Run `make setup`, which brings a Java 17 along"),
        Check("open files", machine.open_files, "Look at `ulimit -n`"),
    ]
    if patient.file is None:
        return [*always, Check("jars", lambda: machine.jars(needs_broker=True), "Run `make jars`")]

    def of_config(find: Callable[[TableConfigFile], Iterable[Finding]]) -> Callable[[], Iterable[Finding]]:
        return lambda: find(patient.known)

    def of_cluster(
        find: Callable[[ClusterInspection, TableConfigFile], Iterable[Finding]],
    ) -> Callable[[], Iterable[Finding]]:
        return lambda: find(_inspection(patient.answering), patient.answering)

    return [
        *always,
        Check("configuration", lambda: _configuration(patient), "Correct the file"),
        Check("jars", of_config(lambda config: machine.jars(config.kafka.embedded)), "Run `make jars`"),
        Check("memory", of_config(machine.memory), "Lower state.memory"),
        Check(
            "ports",
            of_config(lambda config: neighbours.ports(config, patient.running, patient.served)),
            "Choose other addresses",
        ),
        Check(
            "table folder",
            of_config(lambda config: places.table_folder(config, clock, ids)),
            "Make table.path a folder that this user can write to",
        ),
        Check(
            "state folder",
            of_config(lambda config: places.state_folder(config, clock, ids)),
            "Make state.path a folder of this user",
        ),
        Check(
            "table",
            of_config(lambda config: table.table(config, clock, patient.served)),
            "See `tidemark table describe`",
        ),
        Check("kafka", lambda: _kafka(patient), _BROKER),
        Check("kafka settings", of_cluster(broker.able), _BROKER),
        Check("input topics", of_cluster(broker.input_topics), _BROKER),
        Check("own topics", of_cluster(broker.own_topics), _BROKER),
        Check(
            "transactions",
            lambda: _transactions(patient),
            "Allow this user CREATE, WRITE, READ and DELETE on topics, and WRITE on transactional ids, that "
            "begin with the table's name (docs/security.md has the ACLs of each service)",
        ),
        Check("start", lambda: _start(patient), "Correct what is named; a coordinator would refuse to start"),
        Check("assigner", lambda: _assigner(patient), "Correct what is named; an assigner would not start"),
        Check("writer", of_config(_writer), "Correct what is named; the writer would not start"),
        Check("schema registry", of_config(neighbours.registry), "Check input.schema_registry"),
        Check("spark", of_config(neighbours.spark_master), "Check spark.master"),
    ]


def _configuration(patient: Patient) -> Iterator[Finding]:
    assert patient.file is not None, "the check is planned with a file alone"
    config, warnings, _ = check_config_file(patient.file)
    for text in warnings:
        yield warning(text, "Remove the key")
    patient.config = config
    yield ok(f"{config.file} can be used")


def _kafka(patient: Patient) -> Iterator[Finding]:
    config = patient.known
    if config.kafka.embedded and patient.running is None:
        raise SkippedError("kafka is embedded: `tidemark run` starts it, and none is active")
    resolved = resolve_addresses(config) if config.kafka.embedded else config
    yield from broker.reachable(_inspection(resolved))
    patient.reachable = resolved


def _transactions(patient: Patient) -> Iterator[Finding]:
    config = patient.answering
    client = ConfluentKafkaClient.from_config(config, clock=patient.clock)
    yield from trial.transactions(client, config.table.name, patient.clock, patient.ids)


def _start(patient: Patient) -> Iterator[Finding]:
    config = patient.answering
    client = ConfluentKafkaClient.from_config(config, clock=patient.clock)
    rehearse_start(config, open_storage(config.table.path), client, patient.clock)
    yield ok("a coordinator would start with these topics")


def _assigner(patient: Patient) -> Iterator[Finding]:
    config = patient.known
    storage = open_storage(config.table.path)
    if not storage.exists(PROPERTIES_PATH) or is_half_made_here(config, storage):
        raise SkippedError("there is no table yet")
    assigner.rehearse_start(config, storage, patient.clock)
    if patient.reachable is None:
        yield ok("an assigner would start with these files; topics were not checked: Kafka was not reached")
        return
    client = ConfluentKafkaClient.from_config(patient.reachable, clock=patient.clock)
    assigner.rehearse_topics(patient.reachable, storage, client)
    yield ok("an assigner would start")


def _writer(config: TableConfigFile) -> Iterator[Finding]:
    writer.rehearse_start(config)
    yield ok("the writer can start with these Spark and Kafka settings")


def _inspection(config: TableConfigFile) -> ClusterInspection:
    return ConfluentKafkaClient.from_config(config).inspection()
