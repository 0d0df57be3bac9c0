"""The librdkafka settings of each kind of client, with every setting that Tidemark relies on.

There are three layers, of which a later one wins: our defaults, the section `kafka:` of the configuration,
and the settings on which correctness rests (`_OURS`). A section that has one of the last is refused, because
ignoring it silently would mislead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidemark.config.model import EMBEDDED
from tidemark.stream_runtime.kafka.errors import KafkaConfigError
from tidemark.stream_runtime.kafka.ports import Isolation

_RECEIVE_BYTES_MIN: Final = 100_000_000
_RECEIVE_MARGIN_BYTES: Final = 1 << 20

# Correctness rests on these, so the section kafka: may not set them.
_OURS: Final = frozenset(
    {
        "acks",
        "auto.offset.reset",
        "check.crcs",
        "delivery.report.only.error",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "log.connection.close",
        "message.max.bytes",
        "transaction.timeout.ms",
        "transactional.id",
    }
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Makes the settings of all clients of one cluster. `section` is the configuration's section `kafka:`.

    Raises KafkaConfigError for a section that sets what Tidemark sets, or without addresses of brokers.
    """

    section: Mapping[str, str]
    message_bytes_max: int = 16 << 20
    transaction_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        for key in self.section:
            if key in _OURS:
                raise KafkaConfigError(f"kafka.{key} is set by Tidemark itself: remove it")
        servers = self.section.get("bootstrap.servers")
        if not servers or servers == EMBEDDED:
            raise KafkaConfigError(
                f"kafka.bootstrap.servers must be host:port of a running broker, not {servers!r}: "
                "`tidemark run` starts the embedded broker and tells the services its address"
            )

    def transactional_producer(self, transactional_id: str) -> dict[str, Any]:
        settings = self._producer()
        settings.update(
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": self.transaction_timeout_ms,
                "message.timeout.ms": self.transaction_timeout_ms,
                # Else flush waits 30 s for a topic that does not exist.
                "topic.metadata.propagation.max.ms": 5_000,
            }
        )
        return settings

    def plain_producer(self) -> dict[str, Any]:
        settings = self._producer()
        settings.update(
            {"linger.ms": 20, "message.timeout.ms": 60_000, "queue.buffering.max.messages": 500_000}
        )
        return settings

    def partition_reader(self, isolation: Isolation, group: str, follows: bool = False) -> dict[str, Any]:
        return self._consumer(
            isolation,
            group,
            {
                # The broker answers at once when there is something. An answer without messages tells that
                # the partition has ended, for which those wait that read up to an end.
                "fetch.wait.max.ms": 500 if follows else 100,
                "fetch.queue.backoff.ms": 20,
                # Limits of compressed bytes. A fetch is unpacked as a whole: 4 MiB at 50 to 1 are 200 MiB.
                "fetch.message.max.bytes": 1 << 20,
                "fetch.max.bytes": 4 << 20,
                "queued.max.messages.kbytes": 32 << 10,
            },
        )

    def one_batch_reader(
        self, group: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[str, Any]:
        """A consumer that fetches the least that a broker returns: the one record batch that holds the
        offset.

        It fetches the next batch later by itself, possibly within a millisecond (if the first message was
        taken before the client looked at its queue). A caller that must not fetch that one closes the client.
        """
        return self._consumer(
            isolation,
            group,
            {
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 1_000,
                "fetch.message.max.bytes": 1,
                "queued.min.messages": 1,
                "queued.max.messages.kbytes": 1,
            },
        )

    def few_batches_reader(self, group: str) -> dict[str, Any]:
        """A consumer of committed records that fetches little at a time, but several batches if they are
        small.
        """
        return {
            **self.one_batch_reader(group, Isolation.READ_COMMITTED),
            "fetch.queue.backoff.ms": 1,
            "fetch.message.max.bytes": 64 << 10,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 1_024,
        }

    def range_reader(self) -> dict[str, Any]:
        """A consumer of committed records that fetches little in advance. With librdkafka's defaults it was
        measured to fetch 133 MB for a range of 1 MB.
        """
        return self._consumer(
            Isolation.READ_COMMITTED,
            "tidemark-ranges",
            {
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 5,
                "fetch.message.max.bytes": 1_100_000,
                "fetch.max.bytes": 1_100_000,
                "queued.max.messages.kbytes": 1_024,
            },
        )

    def admin(self) -> dict[str, Any]:
        return self._common()

    def _common(self) -> dict[str, Any]:
        return {
            "client.id": "tidemark",
            "socket.timeout.ms": min(5_000, self.transaction_timeout_ms // 2),
            "socket.nagle.disable": True,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
            # By this log line a doubtful end of a transaction is noticed (`connection_log`).
            "log.connection.close": True,
            **self.section,
        }

    def _producer(self) -> dict[str, Any]:
        settings = {"compression.type": "lz4", "linger.ms": 5, **self._common()}
        settings.update(
            {
                "acks": "all",
                "enable.idempotence": True,
                "message.max.bytes": self.message_bytes_max,
                "queue.buffering.max.kbytes": 256 << 10,
            }
        )
        return settings

    def _consumer(self, isolation: Isolation, group: str, fetch: Mapping[str, Any]) -> dict[str, Any]:
        settings = {**fetch, **self._common()}
        receive_bytes = max(_RECEIVE_BYTES_MIN, 2 * self.message_bytes_max + _RECEIVE_MARGIN_BYTES)
        settings.update(
            {
                "group.id": group,
                "isolation.level": isolation.value,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                # Else a damaged batch would be returned as records that no producer wrote.
                "check.crcs": True,
                # Any other value silently skips deleted ranges.
                "auto.offset.reset": "error",
                "receive.message.max.bytes": receive_bytes,
            }
        )
        return settings
