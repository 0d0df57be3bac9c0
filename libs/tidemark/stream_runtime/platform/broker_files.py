"""The files of an embedded Kafka that are written before its brokers start.

<folder>/cluster.json                cluster id and ports, kept across restarts
<folder>/node-N/server.properties    the broker's settings
<folder>/node-N/log4j2.properties    settings of its log
<folder>/node-N/pid                  its process id
<folder>/node-N/data/                Kafka's data (`log.dirs`)
<folder>/node-N/server.log           Kafka's log, rolled at 8 MiB, three former ones kept
<folder>/node-N/console.log          output of the JVM
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.platform.errors import PlatformError

HOST: Final = "127.0.0.1"
# Below the ports that systems use for outgoing connections. Otherwise a client that tries again and again to
# reach a stopped broker could get the broker's own port for its connection, and the broker could not start.
_PORTS: Final = range(15_000, 32_000)
_PORT_TRIES_MAX: Final = 200
MESSAGE_BYTES_MAX: Final = 32 * 1024 * 1024

_LOG4J: Final = """\
rootLogger.level = INFO
rootLogger.appenderRefs = file
rootLogger.appenderRef.file.ref = file
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = {log}
appender.file.filePattern = {log}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 8MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


@dataclass(frozen=True)
class NodePorts:
    """The ports of one node: `broker` for clients, `controller` for the other nodes' controllers."""

    broker: int
    controller: int


@dataclass(frozen=True)
class Cluster:
    """What must stay the same across restarts: the cluster id, which is in the data folders, and the ports,
    which clients know.
    """

    cluster_id: str
    nodes: tuple[NodePorts, ...]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"{HOST}:{node.broker}" for node in self.nodes)


def load_cluster(folder: Path) -> Cluster | None:
    """The cluster that `folder` records, None if there is none yet."""
    record = folder / "cluster.json"
    if not record.is_file():
        return None
    fields = json.loads(record.read_text())
    return Cluster(fields["cluster_id"], tuple(NodePorts(*ports) for ports in fields["ports"]))


def new_cluster(nodes: int, ids: IdSource, cluster_id: str | None = None) -> Cluster:
    """A cluster on free ports, with a new id unless one is given."""
    ports = free_ports(2 * nodes, ids.random())
    pairs = zip(ports[::2], ports[1::2], strict=True)
    return Cluster(cluster_id or new_kafka_id(ids), tuple(NodePorts(*pair) for pair in pairs))


def save_cluster(folder: Path, cluster: Cluster) -> None:
    """Records the cluster in `folder`, by a rename."""
    fields = {"cluster_id": cluster.cluster_id, "ports": [[n.broker, n.controller] for n in cluster.nodes]}
    partial = folder / "cluster.json.partial"
    partial.write_text(json.dumps(fields))
    partial.replace(folder / "cluster.json")


def write_node_files(folder: Path, cluster: Cluster, node_id: int, settings: Mapping[str, str]) -> Path:
    """Writes the files of node `node_id` (counted from 1) and returns its folder. `settings` win over the
    defaults. Raises PlatformError for a folder that Kafka's settings cannot name.
    """
    node = folder / f"node-{node_id}"
    if "," in str(node):
        raise PlatformError(
            f"Kafka cannot keep its data in {node}: its settings take a comma for the end of a folder's name"
        )
    (node / "data").mkdir(parents=True, exist_ok=True)
    properties = {**server_settings(cluster, node_id, node / "data"), **settings}
    lines = "".join(f"{name}={value}\n" for name, value in properties.items())
    (node / "server.properties").write_text(lines)
    (node / "log4j2.properties").write_text(_LOG4J.format(log=node / "server.log"))
    return node


def server_settings(cluster: Cluster, node_id: int, data: Path) -> dict[str, str]:
    """The broker settings of a small node: little memory, quick restarts, and transactions of dead producers
    ended within a second after their time-out.
    """
    ports = cluster.nodes[node_id - 1]
    replicas = str(min(3, len(cluster.nodes)))
    in_sync = "2" if len(cluster.nodes) > 2 else "1"
    # How often a controller without news writes a record that says nothing, for those that follow it: twice a
    # second is a third of what an idle broker does. Of one node nobody follows.
    idle_ms = "500" if len(cluster.nodes) > 1 else "0"
    voters = (f"{number}@{HOST}:{node.controller}" for number, node in enumerate(cluster.nodes, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{ports.broker},CONTROLLER://{HOST}:{ports.controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{ports.broker}",
        "log.dirs": str(data),
        "metadata.max.idle.interval.ms": idle_ms,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        # Readers wait for the open transaction of a dead producer until this scan finds it.
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
        # With it the broker refuses a ledger entry whose transaction was ended early (ARCHITECTURE.md 3.3).
        "transaction.partition.verification.enable": "true",
        # After kill -9 the controller waits this long before it takes the node back.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
        "message.max.bytes": str(MESSAGE_BYTES_MAX),
        "replica.fetch.max.bytes": str(MESSAGE_BYTES_MAX),
        # Kafka deletes whole segments only, so small ones free space earlier.
        "log.segment.bytes": str(64 * 1024 * 1024),
        "num.io.threads": "4",
        "num.network.threads": "2",
        "background.threads": "2",
        "log.cleaner.dedupe.buffer.size": "4194304",
    }


def free_ports(count: int, random: Random, ports: Sequence[int] = _PORTS) -> list[int]:
    """`count` different ports on which no process listens now. Raises PlatformError if there are too few."""
    free: list[int] = []
    for _ in range(_PORT_TRIES_MAX):
        port = random.choice(ports)
        if port not in free and is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise PlatformError(f"no {count} free ports between {ports[0]} and {ports[-1]} on {HOST}")


def is_free(port: int) -> bool:
    """Whether a broker could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Kafka does it: closed connections of a former broker (TIME_WAIT) do not keep the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def new_kafka_id(ids: IdSource) -> str:
    """A UUID as Kafka writes it: URL-safe base64 without padding, never with a leading dash."""
    text = base64.urlsafe_b64encode(bytes.fromhex(ids.uuid().replace("-", ""))).decode().rstrip("=")
    return "T" + text[1:] if text.startswith("-") else text
