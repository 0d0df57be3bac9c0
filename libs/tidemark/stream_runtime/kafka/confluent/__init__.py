"""The Kafka ports on a real broker, by confluent-kafka (librdkafka). Services use `ConfluentKafkaClient`.

A `ConfluentKafkaClient` has settings and no connection, so it may be pickled and sent to another process. The
clients that it makes do not survive a fork: a child that inherits one dies of a failed assertion at its exit.
"""

from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient

__all__ = ["ConfluentKafkaClient"]
