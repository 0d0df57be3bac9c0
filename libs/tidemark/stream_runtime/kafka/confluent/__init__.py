"""The real broker, through confluent-kafka (librdkafka). `ConfluentKafkaClient` is all that others use.

A `ConfluentKafkaClient` holds settings only: it may be pickled and sent to another process. What it makes may
not cross a fork; a forked child that inherits a live client dies in an assert at its exit.
"""

from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient

__all__ = ["ConfluentKafkaClient"]
