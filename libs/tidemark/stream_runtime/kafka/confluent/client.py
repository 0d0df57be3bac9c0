"""`KafkaClient` on a real cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidemark.config.model import TableConfigFile
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.kafka.confluent.admin import ConfluentAdmin
from tidemark.stream_runtime.kafka.confluent.batch_header import BatchOffsets, batch_offsets
from tidemark.stream_runtime.kafka.confluent.batch_probe import BatchProbe, last_of_batch
from tidemark.stream_runtime.kafka.confluent.consumer import ConfluentPartitionReader
from tidemark.stream_runtime.kafka.confluent.inspection import ClusterInspection
from tidemark.stream_runtime.kafka.confluent.plain_producer import ConfluentPlainProducer
from tidemark.stream_runtime.kafka.confluent.range_reader import ConfluentRangeReader
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.confluent.transactional_producer import ConfluentTransactionalProducer
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition

_READER_GROUP: Final = "tidemark-reader"
_PROBE_GROUP: Final = "tidemark-probe"


class ConfluentKafkaClient:
    """Makes Kafka clients with the settings of one cluster. It has no connection itself, so it may be
    pickled. The clients that it makes do not survive a fork.
    """

    def __init__(
        self,
        section: Mapping[str, str],
        clock: Clock | None = None,
        message_bytes_max: int = 16 << 20,
        transaction_timeout_ms: int = 10_000,
    ) -> None:
        """`section` is the section `kafka:` of the configuration, with the addresses of real brokers. Raises
        KafkaConfigError.
        """
        self._settings = ClientSettings(dict(section), message_bytes_max, transaction_timeout_ms)
        self._clock = clock or SystemClock()

    @classmethod
    def from_config(
        cls, config: TableConfigFile, bootstrap_servers: str | None = None, clock: Clock | None = None
    ) -> ConfluentKafkaClient:
        """The client for a table's configuration. `bootstrap_servers` replaces the configured ones, for an
        embedded broker whose address is known only once it runs.
        """
        kafka = (
            config.kafka
            if bootstrap_servers is None
            else config.kafka.with_bootstrap_servers(bootstrap_servers)
        )
        limits = config.limits
        return cls(kafka.settings, clock, limits.message_bytes, limits.transaction_timeout_ms)

    def producer(self, transactional_id: str) -> ConfluentTransactionalProducer:
        return ConfluentTransactionalProducer(self._settings, transactional_id, self._clock)

    def plain_producer(self) -> ConfluentPlainProducer:
        return ConfluentPlainProducer(self._settings)

    def partition_reader(
        self, isolation: Isolation = Isolation.READ_COMMITTED, group: str | None = None
    ) -> ConfluentPartitionReader:
        return ConfluentPartitionReader(self._settings, isolation, group or _READER_GROUP)

    def range_reader(self) -> ConfluentRangeReader:
        return ConfluentRangeReader(self._settings, self._clock)

    def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(self._settings, self._clock)

    def last_of_batch(self, topic_partition: TopicPartition, offset: int) -> int:
        admin = self.admin()
        settings = self._settings.one_batch_reader(_PROBE_GROUP)

        def header(at: int) -> BatchOffsets:
            return batch_offsets(settings, admin.leader(topic_partition), topic_partition, at)

        try:
            end = admin.end_offset(topic_partition, Isolation.READ_UNCOMMITTED)
            with BatchProbe(settings, topic_partition) as probe:
                return last_of_batch(probe.ask, offset, end, header)
        finally:
            admin.close()

    def careful_settings(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """librdkafka settings for consumers of committed records in a child process: for one that fetches few
        record batches at a time, and for one that fetches a single batch.
        """
        few = self._settings.few_batches_reader(_READER_GROUP)
        return few, self._settings.one_batch_reader(_READER_GROUP, Isolation.READ_COMMITTED)

    def inspection(self) -> ClusterInspection:
        """A client that reads facts about the cluster, for `tidemark doctor`."""
        return ClusterInspection(self._settings)
