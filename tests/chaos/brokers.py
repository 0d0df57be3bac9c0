"""The Kafka of a campaign: real brokers, and for each part a listener of its own behind a link.

A broker tells a client the advertised address of the listener that it came in by. So with one node each part
(a service, by name) gets a listener whose advertised address is a `Link`, and its connection to Kafka can be
cut without touching any other's. With three nodes all parts use the plain listeners: nodes die there instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from tests.chaos.endings import end_all
from tests.faults.link import Address, Link
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.platform import broker_files
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.jars import KAFKA, ensure_jars
from tidemark.stream_runtime.platform.java import find_java

_PROTOCOLS: Final = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT"


class Brokers:
    """Start and end it in one thread: the brokers live no longer than the thread that started them."""

    def __init__(self, folder: Path, parts: Sequence[str], nodes: int = 1) -> None:
        java = find_java()
        self.links = {part: Link() for part in parts} if nodes == 1 else {}
        self.nodes = nodes
        settings = self._listeners(folder) if self.links else {}
        # A segment is given back when the table has been committed; small ones keep a small disk small.
        settings |= {"log.segment.bytes": str(16 << 20), "log.index.size.max.bytes": str(1 << 20)}
        self._kafka = EmbeddedKafka(
            folder, ensure_jars(KAFKA.name, java), java.home, nodes, settings=settings, heap_mb=256
        )

    @property
    def bootstrap(self) -> str:
        """For whoever is not part of the system under test."""
        return self._kafka.bootstrap_servers

    def bootstrap_of(self, part: str) -> str:
        return str(self.links[part].address) if part in self.links else self.bootstrap

    @property
    def pids(self) -> dict[int, int]:
        return self._kafka.pids

    def start(self) -> None:
        self._kafka.start()

    def kill(self, node: int = 1) -> None:
        self._kafka.kill(node)

    def start_node(self, node: int = 1) -> None:
        """Returns when the whole cluster answers."""
        self._kafka.start_node(node)

    def close(self) -> None:
        end_all([self._kafka.stop, *(link.close for link in self.links.values())])

    def _listeners(self, folder: Path) -> dict[str, str]:
        cluster = broker_files.load_cluster(folder) or broker_files.new_cluster(1, SystemIds())
        folder.mkdir(parents=True, exist_ok=True)
        broker_files.save_cluster(folder, cluster)
        node = cluster.nodes[0]
        host = broker_files.HOST
        ports = broker_files.free_ports(len(self.links), Random(), range(32_000, 32_700))
        listening = [f"PLAINTEXT://{host}:{node.broker}", f"CONTROLLER://{host}:{node.controller}"]
        advertised = [f"PLAINTEXT://{host}:{node.broker}"]
        protocols = _PROTOCOLS
        for number, (link, port) in enumerate(zip(self.links.values(), ports, strict=True)):
            name = f"PART{number}"
            link.upstream = Address(host, port)
            listening.append(f"{name}://{host}:{port}")
            advertised.append(f"{name}://{link.address}")
            protocols += f",{name}:PLAINTEXT"
        return {
            "listeners": ",".join(listening),
            "advertised.listeners": ",".join(advertised),
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "PLAINTEXT",
        }
