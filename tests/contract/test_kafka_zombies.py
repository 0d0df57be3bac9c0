"""Zombies that the broker lets in (an id of their own, valid group metadata): the fold keeps them out."""

from __future__ import annotations

from collections.abc import Sequence

from tests.contract.kafka_cluster import WAIT_S, KafkaCluster
from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    Consumed,
    LanesClaimed,
    LedgerEntry,
    Stage,
    TransactionBegun,
    encode_entry,
)
from tidemark.epoch_protocol.fold import Verdict
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    TransactionOutcome,
    TransactionResult,
)
from tidemark.stream_runtime.kafka.ports import TopicPartition, TransactionalProducer


class Lane:
    """One input lane, shuffled by producers of different slots."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster
        self.ledger, self.decisions, self.source = (cluster.partition() for _ in range(3))
        self.name = f"{self.source.topic}:0"
        self.group = f"{cluster.unique}-{self.source.topic}"

    def publish(
        self, producer: TransactionalProducer, slot: int, entry: LedgerEntry, position: int | None = None
    ) -> TransactionResult:
        begun = encode_entry(TransactionBegun(Stage.SHUFFLE, slot, f"nonce-{slot}"))

        def build(_offsets: Sequence[int]) -> bytes:
            return encode_entry(entry)

        consumed: dict[TopicPartition, int] | None = None if position is None else {self.source: position}
        transaction = LedgerTransaction(producer, self.ledger, WAIT_S, WAIT_S)
        result = transaction.run(begun, [], build, consumed, self.group)
        assert result.outcome is TransactionOutcome.COMMITTED, result.error
        return result

    def claim(self, producer: TransactionalProducer, slot: int) -> int:
        """The term."""
        claim = LanesClaimed(Stage.SHUFFLE, [self.name], 0, slot, f"owner-{slot}")
        offset = self.publish(producer, slot, claim).entry_offset
        assert offset is not None
        return offset

    def shuffled(self, slot: int, term: int, start: int, next_: int) -> BatchShuffled:
        consumed = [Consumed(self.name, start, next_)]
        return BatchShuffled(slot, f"nonce-{slot}", {self.name: term}, consumed, [], next_ - start, 0)

    def verdicts(self) -> list[Verdict]:
        reader = FoldReader(
            self.cluster.client,
            self.ledger.topic,
            self.decisions.topic,
            lambda *_: b"",
            self.cluster.clock,
        )
        reader.start()
        try:
            applied = reader.catch_up(WAIT_S)
            self.next = reader.fold.state.shuffle_lanes[self.name].next
            return [each.verdict for each in applied if isinstance(each.entry, BatchShuffled)]
        finally:
            reader.close()


def test_zombie_of_another_slot_with_valid_group_metadata_commits_and_does_not_count(cluster: KafkaCluster):
    lane = Lane(cluster)
    zombie, owner = cluster.producer(), cluster.producer()
    old_term = lane.claim(zombie, 0)
    lane.publish(zombie, 0, lane.shuffled(0, old_term, 0, 10), position=10)
    new_term = lane.claim(owner, 1)
    lane.publish(owner, 1, lane.shuffled(1, new_term, 10, 30), position=30)
    # The broker takes it all: nobody fenced this id, and metadata without membership is always valid.
    lane.publish(zombie, 0, lane.shuffled(0, old_term, 10, 20), position=20)
    cluster.await_position(lane.group, lane.source, 20)
    assert lane.verdicts() == [Verdict.COUNTS, Verdict.COUNTS, Verdict.STALE_TERM]
    # The group's offsets went back; the ledger's position, which is the one of record, did not.
    assert lane.next == 30


def test_successor_that_starts_at_the_groups_position_does_not_count_either(cluster: KafkaCluster):
    lane = Lane(cluster)
    first, second = cluster.producer(), cluster.producer()
    term = lane.claim(first, 0)
    lane.publish(first, 0, lane.shuffled(0, term, 0, 10))
    term = lane.claim(second, 1)
    lane.publish(second, 1, lane.shuffled(1, term, 5, 15))
    assert lane.verdicts() == [Verdict.COUNTS, Verdict.STALE_POSITION]
    assert lane.next == 10
