"""What an operator does to a topic with Kafka's own tools; no part of the product does it."""

from __future__ import annotations

import time
from typing import Any, Final

import confluent_kafka.admin

from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog

_TIMEOUT_S: Final = 180.0
# The package does not export these names to type checkers.
_client: Any = confluent_kafka.admin


def grow_topic(bootstrap_servers: str, name: str, partitions: int) -> None:
    """Adds partitions to a topic of a real broker, and waits until the broker tells new clients of them: one
    that asks before may send nothing to them.
    """
    admin = _client.AdminClient({"bootstrap.servers": bootstrap_servers}, logger=ConnectionLog("grow"))
    admin.create_partitions([_client.NewPartitions(name, partitions)])[name].result(_TIMEOUT_S)
    end = time.monotonic() + _TIMEOUT_S
    while len(admin.list_topics(name, timeout=_TIMEOUT_S).topics[name].partitions) < partitions:
        assert time.monotonic() < end, f"{name} did not get {partitions} partitions in {_TIMEOUT_S} s"
        time.sleep(0.05)
