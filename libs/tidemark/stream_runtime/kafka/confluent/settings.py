"""Every librdkafka setting we rely on, said out loud, by kind of client.

Order of precedence: our defaults, then the `kafka:` section of the configuration, then what correctness
needs. A section that sets one of the last kind is refused rather than overruled in silence.
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

# Correctness rests on these; the kafka: section may not touch them.
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
    """What all clients of one cluster share. Raises KafkaConfigError for a section it cannot obey."""

    section: Mapping[str, str]
    message_bytes_max: int = 16 << 20
    transaction_timeout_ms: int = 10_000

    def __post_init__(self) -> None:
        for key in self.section:
            if key in _OURS:
                raise KafkaConfigError(f"kafka.{key} is set by Tidemark and must not be given: remove it")
        servers = self.section.get("bootstrap.servers")
        if not servers or servers == EMBEDDED:
            raise KafkaConfigError(
                f"kafka.bootstrap.servers must be host:port of a running broker, not {servers!r}: "
                "the embedded one is started by `tidemark run`, which tells the services its address"
            )

    def transactional_producer(self, transactional_id: str) -> dict[str, Any]:
        settings = self._producer()
        settings.update(
            {
                "transactional.id": transactional_id,
                "transaction.timeout.ms": self.transaction_timeout_ms,
                "message.timeout.ms": self.transaction_timeout_ms,
                # Or flush waits 30 s for a topic that does not exist.
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

    def partition_reader(self, isolation: Isolation, group: str) -> dict[str, Any]:
        return self._consumer(
            isolation,
            group,
            {
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 20,
                # These count what is compressed, and a whole fetch is unpacked at once: at 50 to 1, 200 MiB.
                "fetch.message.max.bytes": 1 << 20,
                "fetch.max.bytes": 4 << 20,
                "queued.max.messages.kbytes": 32 << 10,
            },
        )

    def one_batch_reader(
        self, group: str, isolation: Isolation = Isolation.READ_UNCOMMITTED
    ) -> dict[str, Any]:
        """Fetches as little as a broker gives: the record batch that holds the offset. The next one follows
        within a millisecond when the first was taken before the client looked at its queue, else late: who
        must not fetch it closes the client.
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
        """Fetches little, though more than a batch at a time when batches are small."""
        return {
            **self.one_batch_reader(group, Isolation.READ_COMMITTED),
            "fetch.queue.backoff.ms": 1,
            "fetch.message.max.bytes": 64 << 10,
            "queued.min.messages": 10_000,
            "queued.max.messages.kbytes": 1_024,
        }

    def range_reader(self) -> dict[str, Any]:
        """Small prefetch: the default one was measured to fetch 133 MB to read a range of 1 MB."""
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
            # The log line of a closed connection is how a doubtful end of a transaction is noticed.
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
                # Else a damaged batch is handed out as records that nobody wrote.
                "check.crcs": True,
                # Any other value jumps over deleted ranges in silence.
                "auto.offset.reset": "error",
                "receive.message.max.bytes": receive_bytes,
            }
        )
        return settings
