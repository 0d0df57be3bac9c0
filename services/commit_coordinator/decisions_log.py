"""Appends to the decisions topic, one Kafka transaction an append, and reads back what was appended.

An effect may start only after its decision was read back: the outcome of a transaction is what the topic
says, not what the client was told. After an ambiguous outcome the producer is replaced (its `init` settles
the open transaction) and the topic is read to its end; only if the entry is not there is it appended again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from commit_coordinator.errors import OutOfPlaceError, SupersededError
from epoch_protocol.entries import CoordinatorClaimed, Decision, encode_entry
from epoch_protocol.fold import Verdict
from ledger_client.fold_reader import Applied, FoldReader
from stream_runtime.clock import Clock
from stream_runtime.errors import DeadlineExceededError
from stream_runtime.kafka.ports import (
    FencedError,
    KafkaClient,
    KafkaError,
    TopicPartition,
    TransactionalProducer,
)

_TRIES_MAX: Final = 5
_READ_BACK_MS: Final = 30_000


class DecisionsLog:
    """The coordinator's pen. Used by one thread; ``observe`` is told every entry the reader applies."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        transactional_id: str,
        reader: FoldReader,
        clock: Clock,
        observe: Callable[[Applied], None],
    ) -> None:
        self._client = client
        self._topic_partition = TopicPartition(topic, 0)
        self._transactional_id = transactional_id
        self._reader = reader
        self._clock = clock
        self._observe = observe
        self._producer: TransactionalProducer | None = None
        self.term = -1

    def claim(self, owner: str) -> int:
        """Takes the coordinatorship: fences the predecessor's producer, claims, reads everything before it.

        Returns the term. Raises SupersededError when somebody else claimed right after.
        """
        self._replace_producer()
        self.catch_up()
        self._transact([CoordinatorClaimed(owner=owner)])
        ours: int | None = None
        for applied in self._reader.catch_up():
            self._observe(applied)
            if isinstance(applied.entry, CoordinatorClaimed) and applied.entry.owner == owner:
                ours = applied.offset
        if ours is None or ours != self._reader.fold.state.coordinator_term:
            raise SupersededError("another coordinator claimed this table at the same time")
        self.term = ours
        return ours

    def append(self, *entries: Decision) -> None:
        """Appends the decisions of this term atomically and returns when the fold has applied them.

        Raises SupersededError when a newer coordinator claimed, OutOfPlaceError when the fold refused them.
        """
        for _ in range(_TRIES_MAX):
            if self._producer is None or self._producer.doubtful:
                self._replace_producer()
            verdicts = self._try_append(entries)
            if verdicts is not None:
                _check(entries, verdicts)
                return
        raise DeadlineExceededError(
            f"{self._topic_partition.topic}: {_TRIES_MAX} transactions in a row were not committed"
        )

    def poll(self, timeout_s: float) -> None:
        """Applies what has arrived on both topics."""
        for applied in self._reader.poll(timeout_s):
            self._observe(applied)

    def catch_up(self) -> None:
        """Applies everything up to the high watermarks taken now."""
        for applied in self._reader.catch_up():
            self._observe(applied)

    def close(self) -> None:
        """Releases the producer."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _replace_producer(self) -> None:
        self.close()
        self._producer = self._client.producer(self._transactional_id)
        self._producer.init()

    def _transact(self, entries: Sequence[Decision]) -> None:
        assert self._producer is not None
        self._producer.begin()
        try:
            for entry in entries:
                self._producer.produce(self._topic_partition, encode_entry(entry))
            self._producer.flush()
        except FencedError:
            raise
        except KafkaError:
            self._producer.abort()
            raise
        self._producer.commit()

    def _try_append(self, entries: Sequence[Decision]) -> list[Verdict] | None:
        """One transaction and its verdicts, or None when it is certain that nothing was appended."""
        wanted = [encode_entry(entry) for entry in entries]
        try:
            self._transact(entries)
        except FencedError as error:
            raise SupersededError("another coordinator took this table's transactional id") from error
        except KafkaError:
            self._replace_producer()
            return self._verdicts(wanted, self._reader.catch_up())
        applied: list[Applied] = []
        deadline_ms = self._clock.now_ms() + _READ_BACK_MS
        while (verdicts := self._verdicts(wanted, applied)) is None:
            if self._clock.now_ms() > deadline_ms:
                # Committed, says the client, but not there: the end of an earlier transaction leaked in.
                self._replace_producer()
                return self._verdicts(wanted, self._reader.catch_up())
            applied = self._reader.poll(0.05)
        return verdicts

    def _verdicts(self, wanted: Sequence[bytes], fresh: Sequence[Applied]) -> list[Verdict] | None:
        found: dict[bytes, Verdict] = {}
        for applied in fresh:
            self._observe(applied)
            found[encode_entry(applied.entry)] = applied.verdict
        return [found[value] for value in wanted] if all(value in found for value in wanted) else None


def _check(entries: Sequence[Decision], verdicts: Sequence[Verdict]) -> None:
    for entry, verdict in zip(entries, verdicts, strict=True):
        if verdict is Verdict.STALE_COORDINATOR:
            raise SupersededError("a newer coordinator has claimed this table")
        if verdict is not Verdict.APPLIED:
            raise OutOfPlaceError(f"{type(entry).__name__} was refused by the fold: it {verdict.value}")
