"""A whole Kafka cluster in this process, deterministic by seed and clock, with faults on request.

It passes the same contract tests as the real adapter, faults included (there a proxy makes them). What it
models of a broker: offsets with markers, the last stable offset, transactions without an epoch per
transaction (as librdkafka speaks them), fencing, time-outs, partition verification, delete_records, size
limits. What it leaves out: replication (a leader may be away for a while), consumer groups with members,
compression.
"""

from testing.kafka.broker import MemoryBroker
from testing.kafka.client import MemoryKafkaClient
from testing.kafka.faults import ClientRequest, EndFault, Faults, MessageFault, RequestFault

__all__ = [
    "ClientRequest",
    "EndFault",
    "Faults",
    "MemoryBroker",
    "MemoryKafkaClient",
    "MessageFault",
    "RequestFault",
]
