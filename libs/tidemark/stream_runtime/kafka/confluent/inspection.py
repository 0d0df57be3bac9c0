"""Reads facts about a cluster for `tidemark doctor`: brokers, settings, topics, and what this user may do.

If the broker does not let this user see something, the answer is None and not an error, because that is a
fact, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import confluent_kafka.admin
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection

from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog
from tidemark.stream_runtime.kafka.confluent.refused_login import RefusedLogin
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.translate import client_error, translate
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaUnavailableError

# The package does not export these names to type checkers.
_client: Any = confluent_kafka.admin
_TIMEOUT_S: Final = 8.0
_REFUSED: Final = frozenset(
    {ClientError.CLUSTER_AUTHORIZATION_FAILED, ClientError.TOPIC_AUTHORIZATION_FAILED}
)


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The cluster's id (may be empty), and its brokers' addresses by broker id."""

    cluster_id: str
    brokers: dict[int, str]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic, as far as this user may see it.

    `replicas` is the least of any partition. `settings` is None if the user may not see them. `allowed` has
    Kafka's names of the operations that the user may do, None if the broker does not tell. `hidden`: the user
    may not even see whether the topic exists; then nothing else is known.
    """

    partitions: int
    replicas: int
    settings: dict[str, str] | None
    allowed: frozenset[str] | None
    hidden: bool = False


class ClusterInspection:
    """One client for all questions. Its methods raise KafkaError."""

    def __init__(self, settings: ClientSettings) -> None:
        self._refused = RefusedLogin()
        section = {**settings.admin(), "error_cb": self._refused}
        try:
            self._admin: Any = _client.AdminClient(section, logger=ConnectionLog("inspection"))
        except KafkaException as error:
            raise KafkaConfigError(f"kafka section: {client_error(error).str()}") from None
        self._servers = settings.section["bootstrap.servers"]

    def cluster(self) -> ClusterFacts:
        """The cluster's id and brokers. Raises KafkaUnavailableError if no broker answers."""
        metadata = self._metadata(None)
        brokers = {number: f"{broker.host}:{broker.port}" for number, broker in metadata.brokers.items()}
        return ClusterFacts(metadata.cluster_id or "", brokers)

    def topics(self) -> list[str]:
        """The names of all topics that this user may see."""
        return sorted(self._metadata(None).topics)

    def broker_settings(self, broker: int) -> dict[str, str] | None:
        """All settings of one broker; None if this user may not see them."""
        return self._settings(_client.ConfigResource(_client.ResourceType.BROKER, str(broker)))

    def topic(self, name: str) -> TopicFacts | None:
        """The facts about a topic; None if there is no such topic."""
        metadata = self._metadata(name).topics[name]
        if metadata.error is not None:
            if metadata.error.code() == ClientError.UNKNOWN_TOPIC_OR_PART:
                return None
            if metadata.error.code() in _REFUSED:
                return TopicFacts(0, 0, None, frozenset(), hidden=True)
            raise translate(metadata.error, f"metadata of {name}")
        settings = self._settings(_client.ConfigResource(_client.ResourceType.TOPIC, name))
        replicas = min((len(partition.replicas) for partition in metadata.partitions.values()), default=0)
        return TopicFacts(len(metadata.partitions), replicas, settings, self._allowed(name))

    def _allowed(self, topic: str) -> frozenset[str] | None:
        answers = self._admin.describe_topics(
            TopicCollection([topic]), include_authorized_operations=True, request_timeout=_TIMEOUT_S
        )
        try:
            return _operations(answers[topic].result(_TIMEOUT_S).authorized_operations)
        except (KafkaException, TimeoutError):
            return None

    def _metadata(self, topic: str | None) -> Any:
        return self._refused.metadata(
            self._admin, f"metadata of the cluster at {self._servers}", _TIMEOUT_S, topic
        )

    def _settings(self, resource: Any) -> dict[str, str] | None:
        try:
            entries = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S)[resource].result(
                _TIMEOUT_S
            )
        except KafkaException as error:
            if client_error(error).code() in _REFUSED:
                return None
            raise translate(client_error(error), f"settings of {resource.name}") from None
        except TimeoutError:
            raise KafkaUnavailableError(f"settings of {resource.name}: no answer") from None
        return {name: entry.value for name, entry in entries.items() if entry.value is not None}


def _operations(given: Iterable[Any] | None) -> frozenset[str] | None:
    return None if given is None else frozenset(operation.name for operation in given)
