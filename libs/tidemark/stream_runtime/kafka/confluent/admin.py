"""The port `Admin` (topics and offsets) on a real broker. Every call has a deadline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

import confluent_kafka.admin
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientTopicPartition

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.confluent.answers import ANSWER_S, is_done, result, settings_of
from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog
from tidemark.stream_runtime.kafka.confluent.refused_login import RefusedLogin
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.topic_ids import id_of
from tidemark.stream_runtime.kafka.confluent.translate import client_error, translate
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaUnavailableError, MissingTopicError
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    TopicDescription,
    TopicPartition,
    TopicSpec,
    TopicState,
)
from tidemark.stream_runtime.retry import Deadline

# The package does not export these names to type checkers.
_client: Any = confluent_kafka.admin
_logger = logging.getLogger("tidemark.kafka")
_Answer = TypeVar("_Answer")
_TIMEOUT_S: Final = ANSWER_S
_LEADER_TIMEOUT_S: Final = 3.0
"""For one request to leaders: a dead leader does not answer, and the next one is elected within seconds."""
_CONTROLLER_TIMEOUT_S: Final = 5.0
"""For one request to the broker that the client takes for the controller, which may have died."""
_CLIENT_S: Final = 2.0
"""A client without an answer for so long is replaced."""
_METADATA_POLL_S: Final = 0.05
_LOOKS_MAX: Final = 5
_ISOLATION: Final = {
    Isolation.READ_COMMITTED: IsolationLevel.READ_COMMITTED,
    Isolation.READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED,
}


class ConfluentAdmin:
    """Implements `Admin`. Threads may share it."""

    def __init__(self, settings: ClientSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._refused = RefusedLogin()
        self._admin: Any = self._new_client()

    def _new_client(self) -> Any:
        section = {**self._settings.admin(), "error_cb": self._refused}
        try:
            return _client.AdminClient(section, logger=ConnectionLog("admin"))
        except KafkaException as error:
            raise KafkaConfigError(f"kafka section: {client_error(error).str()}") from None

    def create_topics(self, specs: Iterable[TopicSpec]) -> None:
        wanted = {spec.name: spec for spec in specs}
        if wanted:
            self._ask_again((), lambda: self._create_topics_once(wanted))
            self._wait_for_metadata(wanted, there=True)

    def _create_topics_once(self, wanted: Mapping[str, TopicSpec]) -> None:
        topics = [
            _client.NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication_factor,
                config=dict(spec.config),
            )
            for spec in wanted.values()
        ]
        created = self._admin.create_topics(topics, request_timeout=_CONTROLLER_TIMEOUT_S)
        there = ClientError.TOPIC_ALREADY_EXISTS
        for name, future in created.items():
            if not is_done(future, f"creating topic {name}", _CONTROLLER_TIMEOUT_S, there):
                self._check_partitions(wanted[name])

    def _wait_for_metadata(self, names: Iterable[str], there: bool) -> None:
        """Waits until brokers' metadata has these topics, or no longer has them. The controller answers a
        request to create or delete topics before the other brokers know of it.
        """
        deadline = Deadline(self._clock, _TIMEOUT_S)
        while late := [name for name in names if (self.partitions(name) is not None) is not there]:
            if deadline.is_over:
                what = "not there after their creation" if there else "still there after their deletion"
                raise KafkaUnavailableError(f"topics {', '.join(late)} are {what}")
            deadline.sleep(_METADATA_POLL_S)

    def _check_partitions(self, spec: TopicSpec) -> None:
        # The topic may be a moment old: of a request before this one, whose answer did not come.
        self._wait_for_metadata([spec.name], there=True)
        partitions = self.partitions(spec.name)
        if partitions != spec.partitions:
            raise KafkaConfigError(
                f"topic {spec.name} has {partitions} partitions and {spec.partitions} are wanted: "
                "partition counts must not change"
            )

    def delete_topics(self, names: Iterable[str]) -> None:
        there = [name for name in names if self.partitions(name) is not None]
        if not there:
            return
        # Once only: a request that comes late could delete a topic that was made anew.
        for name, future in self._admin.delete_topics(there, request_timeout=_TIMEOUT_S).items():
            is_done(future, f"deleting topic {name}", _TIMEOUT_S, ClientError.UNKNOWN_TOPIC_OR_PART)
        self._wait_for_metadata(there, there=False)

    def partitions(self, topic: str) -> int | None:
        for _ in range(_LOOKS_MAX):
            cluster = self._refused.metadata(self._admin, f"metadata of {topic}", _TIMEOUT_S, topic)
            metadata = cluster.topics[topic]
            if metadata.error is None:
                return len(metadata.partitions)
            if metadata.error.code() != ClientError.UNKNOWN_TOPIC_OR_PART:
                raise translate(metadata.error, f"metadata of {topic}")
            if len(cluster.brokers) == 1:
                break
            # The broker that answered may learn of a new topic later than others.
            self._clock.sleep(_METADATA_POLL_S)
        return None

    def topic_states(self, topics: Iterable[str]) -> dict[str, TopicState]:
        wanted = list(topics)
        states = self._described(wanted) if wanted else {}
        for _ in range(_LOOKS_MAX - 1):
            missing = [topic for topic in wanted if topic not in states]
            if not missing:
                break
            # The broker that answered may learn of a new topic later than others.
            self._clock.sleep(_METADATA_POLL_S)
            states |= self._described(missing)
        return states

    def _described(self, topics: list[str]) -> dict[str, TopicState]:
        return self._ask_again((), lambda: self._topic_states_once(topics))

    def _topic_states_once(self, topics: list[str]) -> dict[str, TopicState]:
        wanted = TopicCollection(topics)
        answers = self._admin.describe_topics(wanted, request_timeout=_CONTROLLER_TIMEOUT_S)
        states: dict[str, TopicState] = {}
        for topic, future in answers.items():
            try:
                described = result(future, f"description of topic {topic}", _CONTROLLER_TIMEOUT_S)
            except MissingTopicError:
                continue
            states[topic] = TopicState(len(described.partitions), id_of(described))
        return states

    def describe(self, topic: str) -> TopicDescription:
        partitions = self.partitions(topic)
        if partitions is None:
            raise MissingTopicError(f"there is no topic {topic}")
        metadata = self._admin.list_topics(topic, timeout=_TIMEOUT_S).topics[topic]
        config = self._describe_config(_client.ConfigResource(_client.ResourceType.TOPIC, topic))
        return TopicDescription(topic, partitions, len(metadata.partitions[0].replicas), config)

    def topic_settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        topic = _client.ResourceType.TOPIC
        resources = [_client.ConfigResource(topic, name) for name in topics]
        return self._ask_again((), lambda: self._settings_seen(resources)) if resources else {}

    def _settings_seen(self, resources: list[Any]) -> dict[str, dict[str, str]]:
        answers = self._admin.describe_configs(resources, request_timeout=_CONTROLLER_TIMEOUT_S)
        seen: dict[str, dict[str, str]] = {}
        for resource, future in answers.items():
            with contextlib.suppress(KafkaConfigError, MissingTopicError):
                seen[resource.name] = settings_of(resource, future, _CONTROLLER_TIMEOUT_S)
        return seen

    def _describe_config(self, resource: Any) -> dict[str, str]:
        """The settings of a topic or broker. librdkafka waits for `socket.timeout.ms`, whatever
        `request_timeout` says, and does not send the request twice.
        """

        def ask() -> dict[str, str]:
            answers = self._admin.describe_configs([resource], request_timeout=_CONTROLLER_TIMEOUT_S)
            return settings_of(resource, answers[resource], _CONTROLLER_TIMEOUT_S)

        return self._ask_again((), ask)

    def configure_topic(self, topic: str, settings: Mapping[str, str]) -> None:
        if self.partitions(topic) is None:
            raise MissingTopicError(f"there is no topic {topic}")
        entries = [
            _client.ConfigEntry(name, value, incremental_operation=_client.AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = _client.ConfigResource(_client.ResourceType.TOPIC, topic, incremental_configs=entries)

        def ask() -> None:
            answers = self._admin.incremental_alter_configs([resource], request_timeout=_CONTROLLER_TIMEOUT_S)
            result(answers[resource], f"settings of {topic}", _CONTROLLER_TIMEOUT_S)

        self._ask_again((), ask)

    def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        for (topic, partition), offset in offsets.items():
            if offset < 0:
                raise KafkaConfigError(
                    f"delete_records of {topic}[{partition}] needs an explicit offset, not {offset}"
                )
        if not offsets:
            return {}
        return self._ask_again(_topics_of(offsets), lambda: self._delete_records_once(offsets))

    def _delete_records_once(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        requests = [ClientTopicPartition(tp.topic, tp.partition, offset) for tp, offset in offsets.items()]
        answers = self._admin.delete_records(requests, request_timeout=_LEADER_TIMEOUT_S)
        starts: dict[TopicPartition, int] = {}
        for client, future in answers.items():
            doing = f"deleting records of {client.topic}[{client.partition}]"
            deleted = result(future, doing, _LEADER_TIMEOUT_S)
            starts[TopicPartition(client.topic, client.partition)] = deleted.low_watermark
        return starts

    def _ask_again(
        self, leaders_of: Collection[str], ask: Callable[[], _Answer], timeout_s: float = _TIMEOUT_S
    ) -> _Answer:
        """Repeats `ask` until it has an answer or the deadline is over; refreshes the leaders of these topics
        before each repetition, and replaces the client every `_CLIENT_S`.

        The reason: librdkafka goes on asking the broker that it knows. It was seen to ask a dead leader for
        as long as the broker was away, until something else refreshed its metadata, and, with a leader epoch
        from before a broker's restart, for minutes, whatever the metadata said. For a dead controller it
        waits until the metadata is refreshed, which is every five minutes. A new client asks who is there.
        """
        deadline, patience = Deadline(self._clock, timeout_s), Deadline(self._clock, _CLIENT_S)
        while True:
            try:
                return ask()
            except KafkaUnavailableError:
                if isinstance(self._admin, _Closed):
                    raise
                if deadline.is_over:
                    self._admin = self._new_client()
                    raise
            if patience.is_over:
                self._admin, patience = self._new_client(), Deadline(self._clock, _CLIENT_S)
            for topic in leaders_of:
                self._refresh_leaders(topic)
            deadline.sleep(_METADATA_POLL_S)

    def _refresh_leaders(self, topic: str) -> None:
        try:
            self._admin.list_topics(topic, timeout=_LEADER_TIMEOUT_S)
        except KafkaException as error:
            _logger.info("leaders of %s: %s", topic, client_error(error).str())

    def leader(self, topic_partition: TopicPartition) -> tuple[str, int]:
        """Host and port of the partition's leader, as the listener of `bootstrap.servers` advertises them.
        Raises KafkaUnavailableError if the partition has no leader now.
        """
        topic, partition = topic_partition
        cluster = self._refused.metadata(self._admin, f"leader of {topic}[{partition}]", _TIMEOUT_S, topic)
        known = cluster.topics[topic].partitions.get(partition)
        broker = None if known is None else cluster.brokers.get(known.leader)
        if broker is None:
            raise KafkaUnavailableError(f"{topic}[{partition}] has no leader now")
        return str(broker.host), int(broker.port)

    def start_offset(self, topic_partition: TopicPartition, timeout_s: float | None = None) -> int:
        seconds = _TIMEOUT_S if timeout_s is None else timeout_s
        earliest = _client.OffsetSpec.earliest()
        return self._list_offsets([topic_partition], earliest, timeout_s=seconds)[topic_partition]

    def end_offset(self, topic_partition: TopicPartition, isolation: Isolation) -> int:
        return self._list_offsets([topic_partition], _client.OffsetSpec.latest(), isolation)[topic_partition]

    def offsets_for_time(
        self, topic_partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        offsets = self._list_offsets(list(topic_partitions), _client.OffsetSpec.for_timestamp(timestamp_ms))
        return {
            tp: offset if offset >= 0 else self.end_offset(tp, Isolation.READ_UNCOMMITTED)
            for tp, offset in offsets.items()
        }

    def _list_offsets(
        self,
        topic_partitions: list[TopicPartition],
        spec: Any,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        timeout_s: float = _TIMEOUT_S,
    ) -> dict[TopicPartition, int]:
        if not topic_partitions:
            return {}
        return self._ask_again(
            _topics_of(topic_partitions),
            lambda: self._list_offsets_once(topic_partitions, spec, isolation),
            timeout_s,
        )

    def _list_offsets_once(
        self, topic_partitions: list[TopicPartition], spec: Any, isolation: Isolation
    ) -> dict[TopicPartition, int]:
        requests = {ClientTopicPartition(tp.topic, tp.partition): spec for tp in topic_partitions}
        answers = self._admin.list_offsets(
            requests, isolation_level=_ISOLATION[isolation], request_timeout=_LEADER_TIMEOUT_S
        )
        offsets: dict[TopicPartition, int] = {}
        for client, future in answers.items():
            doing = f"offsets of {client.topic}[{client.partition}]"
            offset = result(future, doing, _LEADER_TIMEOUT_S).offset
            # librdkafka returns this, without an error, if the leader's answer was lost. As an offset it
            # would be below all others: a caller that reads up to this end would read nothing.
            if offset == OFFSET_INVALID:
                raise KafkaUnavailableError(f"{doing}: the leader's answer was lost")
            offsets[TopicPartition(client.topic, client.partition)] = offset
        return offsets

    def committed_offsets(
        self, group: str, topic_partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        clients = [ClientTopicPartition(tp.topic, tp.partition) for tp in topic_partitions]
        if not clients:
            return {}
        answers = self._admin.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, clients)], request_timeout=_TIMEOUT_S
        )
        committed = result(answers[group], f"offsets of group {group}").topic_partitions
        return {
            TopicPartition(client.topic, client.partition): client.offset
            for client in committed
            if client.offset >= 0
        }

    def default_replication(self) -> int:
        return self._least("default.replication.factor", 1)

    def default_segment_bytes(self) -> int:
        return self._least("log.segment.bytes", 1 << 30)

    def _least(self, setting: str, default: int) -> int:
        """The least value that any broker has for a setting."""
        servers = self._settings.section["bootstrap.servers"]
        cluster = self._refused.metadata(self._admin, f"metadata of the cluster at {servers}", _TIMEOUT_S)
        resources = [
            _client.ConfigResource(_client.ResourceType.BROKER, str(broker)) for broker in cluster.brokers
        ]
        return min(
            (int(self._describe_config(broker).get(setting, default)) for broker in resources),
            default=default,
        )

    def check_broker(self) -> None:
        servers = self._settings.section["bootstrap.servers"]
        cluster = self._refused.metadata(self._admin, f"metadata of the cluster at {servers}", _TIMEOUT_S)
        for broker in cluster.brokers:
            config = self._describe_config(_client.ConfigResource(_client.ResourceType.BROKER, str(broker)))
            if config.get("transaction.partition.verification.enable", "true") != "true":
                raise KafkaConfigError(
                    f"broker {broker}: transaction.partition.verification.enable must be true: "
                    "without it a ledger entry can name batches of an aborted transaction"
                )
            timeout_max_ms = int(config.get("transaction.max.timeout.ms", "900000"))
            if timeout_max_ms < self._settings.transaction_timeout_ms:
                raise KafkaConfigError(
                    f"broker {broker}: transaction.max.timeout.ms is {timeout_max_ms}, below "
                    f"limits.transaction_timeout of {self._settings.transaction_timeout_ms} ms"
                )

    def close(self) -> None:
        self._admin = _Closed()


class _Closed:
    """Takes the client's place after `close`, so that a request of another thread ends like one without an
    answer.
    """

    def __getattr__(self, name: str) -> Any:
        raise KafkaUnavailableError(f"{name}: this Kafka client is closed")


def _topics_of(topic_partitions: Iterable[TopicPartition]) -> set[str]:
    return {tp.topic for tp in topic_partitions}
