"""One table with all its parts as real processes, each dialling every other through a link of its own.

    assigner-1, assigner-2, writer, services, admin  --link-->  the newest coordinator
    coordinator, assigner-1, assigner-2, writer  --link-->  Kafka (one node; three nodes are dialled directly)

A coordinator's port is new with each start, so an older one may live on, frozen or not, while its successor
serves.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import yaml

from tests.chaos.brokers import Brokers
from tests.chaos.endings import end_all
from tests.chaos.seat import Seat
from tests.faults.link import Address, Link
from tests.input_model import DELETE_FIELD, SCHEMA
from tidemark.config import load_config
from tidemark.console.admin_client import AdminClient
from tidemark.errors import TidemarkError
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.model import TopicSpec
from tidemark.stream_runtime.platform.broker_files import free_ports

TABLE: Final = "orders"
INPUT: Final = "orders-input"
PARTITIONS: Final = 2
SHARDS: Final = 4
LANES: Final = 2
STATS: Final = ["id", "ts", "amount"]
LEASE_S: Final = 3.0
ASSIGNERS: Final = ("assigner-1", "assigner-2")
WRITER: Final = "writer"
COORDINATOR: Final = "coordinator"
ADMIN: Final = "admin"
SERVICES: Final = (COORDINATOR, *ASSIGNERS, WRITER)
MERGER: Final = "services"
"""`tidemark services serve`, which merges for table services where they run apart. It needs no Kafka."""
_END_S: Final = 180.0
COMPACTS_AT: Final = 4
"""Log files of a slice that trigger its compaction, of data and index."""
_TABLE_SERVICES: Final[dict[str, Any]] = {
    "enabled": True,
    "clock_skew": "200ms",
    # Views take seconds beside the faults: what they read stays for a minute.
    "clean": {"retain": "1m", "interval": "2s"},
    # Fewer than pass between two compactions of a file group: hudi-rs judges what is archived, too.
    "archive": {"min": 10, "max": 14, "batch": 2},
    "rollback": {"interval": "5s"},
}
# For services that start: below the range that brokers take theirs from, and links theirs.
_PORTS: Final = range(12_000, 15_000)


class Cluster:
    """Use it from one thread. `places`: folders by what they are for (table, state, kafka), where those are
    to lie on disks of their own. `no_spark`: `local_writer` writes. `services`: the table and its index are
    compacted, cleaned and archived all the time, compacted behind `compacts_at` log files of a slice.
    `separate`: merges run in `tidemark services serve`, not in the writer.
    """

    def __init__(
        self,
        folder: Path,
        table_type: str,
        nodes: int = 1,
        places: Mapping[str, Path] | None = None,
        no_spark: bool = False,
        services: bool = False,
        index: str = "global",
        compacts_at: int = COMPACTS_AT,
        separate: bool = False,
    ) -> None:
        """`index`: `table.index.kind`."""
        self.index = index
        folder.mkdir(parents=True, exist_ok=True)
        places = places or {}
        self.folder = folder
        self.table = places.get("table", folder) / TABLE
        self.state = places.get("state", folder) / "state"
        self.logs = folder / "logs"
        self.table_type = table_type
        self._services = _table_services(compacts_at, separate) if services else {"enabled": False}
        self._writer = ("tests.chaos.local_writer",) if no_spark else ()
        (folder / "schema.avsc").write_text(json.dumps(SCHEMA))
        self.brokers = Brokers(places.get("kafka", folder) / "kafka", SERVICES, nodes)
        self._dialling = (*ASSIGNERS, WRITER, *((MERGER,) if separate else ()))
        self.links = {name: Link() for name in (*self._dialling, ADMIN)}
        self.seats = {name: self._seat(name) for name in self._dialling}
        self.seats[COORDINATOR] = self._new_coordinator(0)
        self.replaced: list[Seat] = []
        self._admin: AdminClient | None = None

    # -- life

    def start(self) -> None:
        """Kafka, the input topic, then all services; `tend` keeps them running from here on."""
        self.brokers.start()
        self._create_input()
        self.tend()

    def tend(self) -> None:
        """Starts again whatever ended; call it often."""
        for seat in self.seats.values():
            seat.tend()
        for seat in self.replaced:
            if seat.process is not None:
                seat.tend()

    @property
    def coordinator(self) -> Seat:
        return self.seats[COORDINATOR]

    def replace_coordinator(self) -> Seat:
        """A second coordinator comes while the first is still there, in whatever state; returns the first.

        The first is not started again when it ends.
        """
        first = self.coordinator
        first.down = True
        self.replaced.append(first)
        self.seats[COORDINATOR] = self._new_coordinator(len(self.replaced))
        self.seats[COORDINATOR].tend()
        return first

    def extra_writer(self) -> Seat:
        """A second driver beside the first; the caller ends it."""
        config = self._write("writer-2", str(self.links[WRITER].address))
        second = Seat("writer-2", WRITER, self.logs, lambda: config, command=self._writer)
        self.replaced.append(second)
        second.tend()
        return second

    def stop(self) -> dict[str, int]:
        """In the order of `tidemark run`; returns exit codes."""
        return {name: self.seats[name].end(_END_S) for name in (*self._dialling, COORDINATOR)}

    def close(self) -> None:
        """Ends all that still runs, whatever state it is in. Repeatable."""
        admin, self._admin = self._admin, None
        end_all(
            [
                *(seat.kill_all for seat in (*self.seats.values(), *self.replaced)),
                *([] if admin is None else [admin.close]),
                *(link.close for link in self.links.values()),
                self.brokers.close,
            ]
        )

    # -- questions

    def status(self) -> dict[str, Any] | None:
        """None while no coordinator answers."""
        if self._admin is None:
            self._admin = AdminClient(load_config(self.config_file(ADMIN)))
        try:
            found = self._admin.status(5.0)
        except TidemarkError:
            return None
        return found if found["coordinator"]["term"] >= 0 else None

    def table_services_rest(self) -> bool:
        """Pauses table services; whether no action of theirs is open any more. False while no coordinator
        answers.
        """
        if self.status() is None or self._admin is None:
            return False
        try:
            found = self._admin.services()[0]
            if not found.paused:
                self._admin.pause_services("the campaign compares")
        except TidemarkError:
            return False
        return found.paused and all(kind.open is None for kind in found.kinds)

    def pids(self) -> dict[str, list[int]]:
        """Everything that runs, by role."""
        found = {name: [each.pid for each in seat.family()] for name, seat in self.seats.items()}
        return {**found, "kafka": list(self.brokers.pids.values())}

    def admin_config(self) -> Path:
        """For commands from outside: no link to Kafka in between."""
        return self.config_file(ADMIN)

    def config_file(self, name: str) -> Path:
        """The file of a part that is not a coordinator."""
        return self._write(name, str(self.links[name].address))

    # -- inside

    def _seat(self, name: str) -> Seat:
        role = name.split("-")[0]
        commands = {WRITER: self._writer, MERGER: ("tidemark.cli.entry", "services", "serve")}
        command = commands.get(name, ())
        return Seat(name, role, self.logs, lambda: self.config_file(name), command=command)

    def _new_coordinator(self, number: int) -> Seat:
        name = COORDINATOR if not number else f"{COORDINATOR}-{number + 1}"

        def config() -> Path:
            (port,) = free_ports(1, Random(time.monotonic_ns()), _PORTS)
            for link in self.links.values():
                link.upstream = Address("127.0.0.1", port)
            return self._write(name, f"127.0.0.1:{port}")

        return Seat(name, COORDINATOR, self.logs, config)

    def _write(self, name: str, coordinator: str) -> Path:
        part = COORDINATOR if name.startswith(COORDINATOR) else name
        kafka = WRITER if name.startswith(WRITER) else part
        document = {
            "table": {
                "name": TABLE,
                "path": str(self.table),
                "type": self.table_type,
                "record_key": ["id"],
                "partition": ["region"],
                "ordering": "ts",
                "schema": "schema.avsc",
                "index": {"kind": self.index, "shards": SHARDS, "lanes": LANES, "column_stats": STATS},
            },
            "input": {"topics": [INPUT], "delete_field": DELETE_FIELD},
            "kafka": {"bootstrap.servers": self.brokers.bootstrap_of(kafka)},
            "state": {"path": str(self.state / part), "memory": "64MiB", "disk": "512MiB"},
            "epoch": {"interval": "700ms"},
            "services": {"coordinator": coordinator, "metrics": "127.0.0.1:0"},
            "limits": {"lease": f"{LEASE_S:.0f}s"},
            "spark": {"spark.master": "local[2]", "spark.driver.memory": "512m"},
            "table_services": self._services,
        }
        file = self.folder / f"{name}.yaml"
        partial = file.with_suffix(".partial")
        partial.write_text(yaml.safe_dump(document))
        partial.replace(file)
        return file

    def _create_input(self) -> None:
        config = load_config(self.config_file(ADMIN))
        admin = ConfluentKafkaClient.from_config(config).admin()
        try:
            replicas = min(3, self.brokers.nodes)
            admin.create_topics([TopicSpec(INPUT, PARTITIONS, replicas)])
        finally:
            admin.close()


def _table_services(compacts_at: int, separate: bool) -> dict[str, Any]:
    kinds = ("compact_index", "compact_data")
    run = {"run": "separate"} if separate else {}
    return _TABLE_SERVICES | run | {kind: {"log_files": compacts_at, "min_interval": "1s"} for kind in kinds}
