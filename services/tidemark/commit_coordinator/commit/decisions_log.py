"""Appends entries to the decisions topic and reads them back. Each append is one Kafka transaction.

An effect may start only after its entry was read back. The topic says whether a transaction was committed;
the client's answer may be lost or wrong. An append goes like this:

1. Produce the entries in one transaction, commit it, and read until the fold has taken them.
2. If Kafka answers with an error, or the entries do not come, replace the producer: its `init` commits or
   aborts the open transaction.
3. Read the topic to its end. Entries that are not there never will be: append them again, from 1.
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
from tidemark.stream_runtime.kafka.errors import REFUSED
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
    """The coordinator's only way to the decisions. Used by one thread.

    ``observe`` is called with every entry of both topics that the reader applies.
    """

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
        """Claims the table: fences the former coordinator's producer, reads both topics, appends the claim.

        Returns the term, which is the claim's offset. ``owner``: an id that no other claim has. ``ledger``,
        ``location``, ``shards``: as in `CoordinatorClaimed`. Raises SupersededError when another coordinator
        claimed meanwhile, DivergedError when the topics belong to another ledger, DeadlineExceededError when
        no claim of ours was committed, KafkaError when the broker refuses for good or no producer starts.
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
                        f"{self._topic_partition.topic} belongs to ledger {held}, the table to {ledger}"
                    )
                if ours != self._reader.fold.state.coordinator_term:
                    raise SupersededError("another coordinator claimed this table at the same time")
                self.term = ours
                return ours
        raise DeadlineExceededError(
            f"{self._topic_partition.topic}: {_TRIES_MAX} claims in a row were not committed"
        )

    def append(self, *entries: Decision) -> None:
        """Appends the decisions of this term in one transaction; returns when the fold has applied them.

        Raises SupersededError when a newer coordinator claimed, OutOfPlaceError when the fold refused one,
        and what Kafka refuses (`REFUSED`) at the first try. After KafkaError or DeadlineExceededError nobody
        knows yet whether they are in the topic: `settle` finds out, and has to be called before the next
        decision.
        """
        self.settle()
        missing = {encode_entry(entry): entry for entry in entries}
        verdicts: dict[bytes, Verdict] = {}
        for _ in range(_TRIES_MAX):
            if self._producer is None or self._producer.doubtful:
                self._renew_producer()
            self._unsettled = True
            verdicts |= self._try_append(missing)
            self._unsettled = False
            # Of a transaction that broke off the topic may hold the first entries: only the others are
            # repeated.
            missing = {value: entry for value, entry in missing.items() if value not in verdicts}
            if not missing:
                _check(entries, [verdicts[encode_entry(entry)] for entry in entries])
                return
        raise DeadlineExceededError(
            f"{self._topic_partition.topic}: {_TRIES_MAX} transactions in a row were not committed"
        )

    def settle(self) -> None:
        """Finds out whether an append without an answer was committed; call it before each decision."""
        if self._unsettled:
            self._renew_producer()
            self.catch_up()
            self._unsettled = False

    def poll(self, timeout_s: float) -> None:
        """Applies the entries that have arrived on both topics; waits up to ``timeout_s`` for the first."""
        for applied in self._reader.poll(timeout_s):
            self._observe(applied)

    def follow(self) -> None:
        """After the takeover: reading costs little while nothing comes (`FoldReader.follow`)."""
        self._reader.follow()

    def catch_up(self) -> None:
        """Applies every entry of both topics up to the high watermarks as they are now."""
        for applied in self._reader.catch_up():
            self._observe(applied)

    def check_term(self) -> None:
        """Reads both topics to their ends. Raises SupersededError if a newer coordinator has claimed."""
        self.catch_up()
        self._refuse_successor()

    def close(self) -> None:
        """Releases the producer."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None

    def _try_claim(self, claim: CoordinatorClaimed) -> int | None:
        """Tries the claim in one transaction; the claim's offset, or None when it has to be looked for."""
        former, owner = self._reader.fold.state.coordinator_term, claim.owner
        try:
            self._transact([encode_entry(claim)])
        except FencedError as error:
            # The broker ended our transaction by its timeout, or another coordinator uses the transactional
            # id now. That one claims within seconds: wait for its claim before trying once more.
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
            # A new producer ends the open transaction; then the topic says whether the claim is there.
            _log.warning("the claim was not answered, looking again: %s", error)
            return None
        return self._own_claim(owner, self._reader.catch_up())

    def _own_claim(self, owner: str, fresh: Sequence[Applied]) -> int | None:
        """The offset of the claim by ``owner`` among the entries that were just applied."""
        offset: int | None = None
        for applied in fresh:
            self._observe(applied)
            if isinstance(applied.entry, CoordinatorClaimed) and applied.entry.owner == owner:
                offset = applied.offset
        return offset

    def _replace_producer(self) -> None:
        self.close()
        self._producer = self._client.producer(self._transactional_id)
        self._producer.init()

    def _renew_producer(self) -> None:
        """Replaces the producer within the term. A successor that has claimed must not be fenced by that."""
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
            self._abort()
            raise
        self._producer.commit()

    def _abort(self) -> None:
        """Aborts the transaction. An error of that would hide why it failed: where Kafka refuses the first
        message of a producer, there is none to abort. The next producer's `init` ends what is left.
        """
        assert self._producer is not None
        try:
            self._producer.abort()
        except FencedError:
            raise
        except KafkaError as error:
            _log.debug("a transaction was not aborted: %s", error)

    def _try_append(self, wanted: Mapping[bytes, Decision]) -> dict[bytes, Verdict]:
        """Tries one transaction; the verdicts of the entries that are in the topic. Others never will be.
        Raises what Kafka refuses (`REFUSED`) when none of them is there.
        """
        try:
            self._transact(wanted)
        except FencedError:
            return self._wait_for_successor(wanted) | self._look_again(wanted)
        except REFUSED:
            # The next producer would be refused as well; whoever reads `status` has to know what is refused.
            found = self._look_again(wanted)
            if not found:
                raise
            return found
        except KafkaError:
            return self._look_again(wanted)
        verdicts: dict[bytes, Verdict] = {}
        deadline_ms = self._clock.now_ms() + _READ_BACK_MS
        while len(verdicts) < len(wanted):
            if self._clock.now_ms() > deadline_ms:
                # The client said committed, but that was the end of an earlier transaction of this producer.
                return verdicts | self._look_again(wanted)
            verdicts |= self._verdicts(wanted, self._reader.poll(0.05))
        return verdicts

    def _wait_for_successor(self, wanted: Mapping[bytes, Decision]) -> dict[bytes, Verdict]:
        """Waits a few seconds for a successor's claim, after our producer was fenced.

        The broker ended our transaction by its timeout, or a successor uses the transactional id now. Raises
        SupersededError if its claim comes. Safety does not rest on this: after that claim the fold ignores
        us.
        """
        verdicts: dict[bytes, Verdict] = {}
        deadline_ms = self._clock.now_ms() + _SUCCESSOR_CLAIMS_MS
        while self._clock.now_ms() <= deadline_ms:
            verdicts |= self._verdicts(wanted, self._reader.poll(0.05))
            self._refuse_successor()
        return verdicts

    def _look_again(self, wanted: Mapping[bytes, Decision]) -> dict[bytes, Verdict]:
        """Ends the open transaction with a new producer; the verdicts of the entries in the topic."""
        self._replace_producer()
        return self._verdicts(wanted, self._reader.catch_up())

    def _verdicts(self, wanted: Mapping[bytes, Decision], fresh: Sequence[Applied]) -> dict[bytes, Verdict]:
        """The fold's verdicts on those of the ``wanted`` entries that were just applied."""
        verdicts: dict[bytes, Verdict] = {}
        kinds = {type(entry) for entry in wanted.values()}
        for applied in fresh:
            self._observe(applied)
            if type(applied.entry) in kinds and (value := encode_entry(applied.entry)) in wanted:
                verdicts[value] = applied.verdict
        return verdicts


def _check(entries: Sequence[Decision], verdicts: Sequence[Verdict]) -> None:
    for entry, verdict in zip(entries, verdicts, strict=True):
        if verdict is Verdict.STALE_COORDINATOR:
            raise SupersededError("a newer coordinator has claimed this table")
        if verdict is not Verdict.APPLIED:
            raise OutOfPlaceError(f"the fold refused {type(entry).__name__}: it {verdict.value}")
