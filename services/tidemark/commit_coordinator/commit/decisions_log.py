"""Appends to the decisions topic, one Kafka transaction an append, and reads back what was appended.

An effect may start only after its decision was read back: the outcome of a transaction is what the topic
says, not what the client was told. After an ambiguous outcome the producer is replaced (its `init` settles
the open transaction) and the topic is read to its end; only if the entry is not there is it appended again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from tidemark.commit_coordinator.errors import DivergedError, OutOfPlaceError
from tidemark.epoch_protocol.entries import CoordinatorClaimed, Decision, TableLocation, encode_entry
from tidemark.epoch_protocol.fold import Verdict
from tidemark.errors import ErrorKind
from tidemark.ledger_client.errors import SupersededError
from tidemark.ledger_client.fold_reader import Applied, FoldReader
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import (
    FencedError,
    KafkaClient,
    KafkaError,
    TopicPartition,
    TransactionalProducer,
)

_TRIES_MAX: Final = 5
_READ_BACK_MS: Final = 30_000
_SUCCESSOR_CLAIMS_MS: Final = 5_000
_log = logging.getLogger("tidemark.coordinator")


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
        self._unsettled = False
        self.term = -1

    def claim(
        self, owner: str, ledger: str = "", location: TableLocation | None = None, shards: int = 0
    ) -> int:
        """Takes the coordinatorship: fences the predecessor's producer, claims, reads everything before it.

        Returns the term. ``owner`` is this claim's alone; ``ledger``, ``location`` and ``shards``: of the
        table that it is about, as `CoordinatorClaimed` has them. Raises SupersededError when somebody else
        claimed meanwhile, DivergedError when the topics are another ledger's, DeadlineExceededError when no
        claim of ours could be committed, KafkaError when the broker refuses for good or answers no new
        producer.
        """
        self._replace_producer()
        self.catch_up()
        claim = CoordinatorClaimed(owner=owner, ledger=ledger, location=location, shards=shards)
        for _ in range(_TRIES_MAX):
            ours = self._try_claim(claim)
            if ours is None:
                self._replace_producer()
                ours = self._own_claim(owner, self._reader.catch_up())
            if ours is not None:
                held = self._reader.fold.state.ledger
                if ledger and held != ledger:
                    raise DivergedError(
                        f"{self._topic_partition.topic} is of ledger {held}, ours is {ledger}"
                    )
                if ours != self._reader.fold.state.coordinator_term:
                    raise SupersededError("another coordinator claimed this table at the same time")
                self.term = ours
                return ours
        raise DeadlineExceededError(
            f"{self._topic_partition.topic}: {_TRIES_MAX} claims in a row were not committed"
        )

    def append(self, *entries: Decision) -> None:
        """Appends the decisions of this term atomically and returns when the fold has applied them.

        Raises SupersededError when a newer coordinator claimed, OutOfPlaceError when the fold refused them,
        KafkaError or DeadlineExceededError when nobody knows: `settle` before deciding anything else.
        """
        self.settle()
        missing = {encode_entry(entry): entry for entry in entries}
        found: dict[bytes, Verdict] = {}
        for _ in range(_TRIES_MAX):
            if self._producer is None or self._producer.doubtful:
                self._renew_producer()
            self._unsettled = True
            found |= self._try_append(missing)
            self._unsettled = False
            # A torn transaction leaves its first entries: only the others are appended again.
            missing = {value: entry for value, entry in missing.items() if value not in found}
            if not missing:
                _check(entries, [found[encode_entry(entry)] for entry in entries])
                return
        raise DeadlineExceededError(
            f"{self._topic_partition.topic}: {_TRIES_MAX} transactions in a row were not committed"
        )

    def settle(self) -> None:
        """Learns what became of an append that failed without an answer; call it before each decision."""
        if self._unsettled:
            self._renew_producer()
            self.catch_up()
            self._unsettled = False

    def poll(self, timeout_s: float) -> None:
        """Applies what has arrived on both topics."""
        for applied in self._reader.poll(timeout_s):
            self._observe(applied)

    def catch_up(self) -> None:
        """Applies everything up to the high watermarks taken now."""
        for applied in self._reader.catch_up():
            self._observe(applied)

    def check_term(self) -> None:
        """Reads what is there now. Raises SupersededError when a newer coordinator has claimed the table."""
        self.catch_up()
        self._refuse_successor()

    def close(self) -> None:
        """Releases the producer."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _try_claim(self, claim: CoordinatorClaimed) -> int | None:
        """One transaction; the offset of our claim, None when nobody knows yet."""
        former, owner = self._reader.fold.state.coordinator_term, claim.owner
        try:
            self._transact([encode_entry(claim)])
        except FencedError as error:
            # Our transaction ran out of time, or another coordinator took the id: then its claim is near.
            deadline_ms = self._clock.now_ms() + _SUCCESSOR_CLAIMS_MS
            while self._clock.now_ms() <= deadline_ms:
                ours = self._own_claim(owner, self._reader.poll(0.05))
                if ours is not None:
                    return ours
                if self._reader.fold.state.coordinator_term != former:
                    raise SupersededError("another coordinator claimed this table meanwhile") from error
            return None
        except KafkaError as error:
            if error.kind not in (ErrorKind.RETRYABLE, ErrorKind.CONFLICT):
                raise
            # A new producer settles what is open; the topic then says whether the claim is there.
            _log.warning("the claim was not answered, looking again: %s", error)
            return None
        return self._own_claim(owner, self._reader.catch_up())

    def _own_claim(self, owner: str, fresh: Sequence[Applied]) -> int | None:
        found: int | None = None
        for applied in fresh:
            self._observe(applied)
            if isinstance(applied.entry, CoordinatorClaimed) and applied.entry.owner == owner:
                found = applied.offset
        return found

    def _replace_producer(self) -> None:
        self.close()
        self._producer = self._client.producer(self._transactional_id)
        self._producer.init()

    def _renew_producer(self) -> None:
        """A new producer in the middle of the term; a successor that has claimed is not disturbed."""
        self.poll(0.0)
        self._refuse_successor()
        self._replace_producer()

    def _refuse_successor(self) -> None:
        if self._reader.fold.state.coordinator_term != self.term:
            raise SupersededError("a newer coordinator has claimed this table")

    def _transact(self, values: Iterable[bytes]) -> None:
        assert self._producer is not None
        self._producer.begin()
        try:
            for value in values:
                self._producer.produce(self._topic_partition, value)
            self._producer.flush()
        except FencedError:
            raise
        except KafkaError:
            self._producer.abort()
            raise
        self._producer.commit()

    def _try_append(self, wanted: Mapping[bytes, Decision]) -> dict[bytes, Verdict]:
        """One transaction; returns the verdict of each entry that is in the topic, the others never will."""
        try:
            self._transact(wanted)
        except FencedError:
            return self._wait_for_successor(wanted) | self._look_again(wanted)
        except KafkaError:
            return self._look_again(wanted)
        found: dict[bytes, Verdict] = {}
        deadline_ms = self._clock.now_ms() + _READ_BACK_MS
        while len(found) < len(wanted):
            if self._clock.now_ms() > deadline_ms:
                # Committed, says the client, but not there: the end of an earlier transaction leaked in.
                return found | self._look_again(wanted)
            found |= self._verdicts(wanted, self._reader.poll(0.05))
        return found

    def _wait_for_successor(self, wanted: Mapping[bytes, Decision]) -> dict[bytes, Verdict]:
        """Our transaction ran out of time, or another coordinator took the id: then its claim is near.

        Raises SupersededError when it comes; safety does not rest on it, the fold ignores us from there on.
        """
        found: dict[bytes, Verdict] = {}
        deadline_ms = self._clock.now_ms() + _SUCCESSOR_CLAIMS_MS
        while self._clock.now_ms() <= deadline_ms:
            found |= self._verdicts(wanted, self._reader.poll(0.05))
            self._refuse_successor()
        return found

    def _look_again(self, wanted: Mapping[bytes, Decision]) -> dict[bytes, Verdict]:
        """What the topic holds once a new producer has settled the open transaction."""
        self._replace_producer()
        return self._verdicts(wanted, self._reader.catch_up())

    def _verdicts(self, wanted: Mapping[bytes, Decision], fresh: Sequence[Applied]) -> dict[bytes, Verdict]:
        found: dict[bytes, Verdict] = {}
        kinds = {type(entry) for entry in wanted.values()}
        for applied in fresh:
            self._observe(applied)
            if type(applied.entry) in kinds and (value := encode_entry(applied.entry)) in wanted:
                found[value] = applied.verdict
        return found


def _check(entries: Sequence[Decision], verdicts: Sequence[Verdict]) -> None:
    for entry, verdict in zip(entries, verdicts, strict=True):
        if verdict is Verdict.STALE_COORDINATOR:
            raise SupersededError("a newer coordinator has claimed this table")
        if verdict is not Verdict.APPLIED:
            raise OutOfPlaceError(f"{type(entry).__name__} was refused by the fold: it {verdict.value}")
