"""Ledger first and last, alike on both brokers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.contract.kafka_cluster import WAIT_S, KafkaCluster, commit
from tidemark.stream_runtime.kafka.errors import FencedError, MessageTooLargeError, MissingTopicError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerStep,
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
)
from tidemark.stream_runtime.kafka.ports import TopicPartition


def entry_of(offsets: Sequence[int]) -> bytes:
    return b"entry " + b",".join(b"%d" % offset for offset in offsets)


@pytest.mark.usefixtures("unhurried_ends")
def test_entry_names_the_offsets_that_its_batches_have(cluster: KafkaCluster):
    ledger, topic = cluster.partition(), cluster.topic(partitions=2)
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition(topic, 0)]
    producer = cluster.producer()
    commit(producer, partitions[0], b"earlier")
    steps: list[LedgerStep] = []
    run = LedgerTransaction(producer, ledger, WAIT_S, WAIT_S, reached=steps.append).run
    headers = (("v", b"1"),)
    result = run(
        b"begun",
        [OutgoingMessage(tp, b"batch%d" % number) for number, tp in enumerate(partitions)],
        entry_of,
        ledger_headers=headers,
    )
    assert result.outcome is TransactionOutcome.COMMITTED
    assert result.offsets == (2, 0, 3)
    assert result.entry_offset == 1
    assert not result.replace_producer
    assert steps == list(LedgerStep)
    reader = cluster.reader()
    reader.assign({ledger: 0})
    messages = cluster.read_until(reader, 2)
    assert [message.value for message in messages] == [b"begun", b"entry 2,0,3"]
    assert [message.headers for message in messages] == [headers, headers]
    assert [message.value for message in cluster.ranges().read(partitions[0], 2, 3)] == [b"batch0", b"batch2"]


def test_consumed_positions_go_with_the_entry(cluster: KafkaCluster):
    ledger, source = cluster.partition(), cluster.partition()
    group = f"{cluster.unique}-ledger"
    transaction = LedgerTransaction(cluster.producer(), ledger, WAIT_S, WAIT_S)
    result = transaction.run(b"begun", [], entry_of, consumed={source: 5}, group=group)
    assert result.outcome is TransactionOutcome.COMMITTED
    cluster.await_position(group, source, 5)


def test_refused_batch_aborts_and_the_next_producer_goes_on(cluster: KafkaCluster):
    ledger = cluster.partition()
    small = TopicPartition(cluster.topic(max_message_bytes="1000"), 0)
    name = cluster.transactional_id()
    noise = bytes((number * number * 31 + (number >> 5) * 17) & 255 for number in range(5_000))
    batches = [OutgoingMessage(small, noise)]
    result = LedgerTransaction(cluster.producer(name), ledger, WAIT_S, WAIT_S).run(
        b"begun", batches, entry_of
    )
    assert result.outcome is TransactionOutcome.ABORTED
    assert isinstance(result.error, MessageTooLargeError)
    assert result.replace_producer
    again = LedgerTransaction(cluster.producer(name), ledger, WAIT_S, WAIT_S).run(
        b"begun again", [], entry_of
    )
    assert again.outcome is TransactionOutcome.COMMITTED
    reader = cluster.reader()
    reader.assign({ledger: 0})
    assert [message.value for message in cluster.read_until(reader, 2)] == [b"begun again", b"entry "]


def test_missing_ledger_aborts(cluster: KafkaCluster):
    nowhere = TopicPartition(f"{cluster.unique}-no-ledger", 0)
    result = LedgerTransaction(cluster.producer(), nowhere, WAIT_S, WAIT_S).run(b"begun", [], entry_of)
    assert result.outcome is TransactionOutcome.ABORTED
    assert isinstance(result.error, MissingTopicError)


def test_entry_that_cannot_be_built_aborts_and_raises(cluster: KafkaCluster):
    ledger, data = cluster.partition(), cluster.partition()
    producer = cluster.producer()

    def fail(offsets: Sequence[int]) -> bytes:
        raise LookupError("no schema")

    transaction = LedgerTransaction(producer, ledger, WAIT_S, WAIT_S)
    with pytest.raises(LookupError, match="no schema"):
        transaction.run(b"begun", [OutgoingMessage(data, b"x")], fail)
    assert transaction.run(b"begun", [], entry_of).outcome is TransactionOutcome.COMMITTED
    reader = cluster.reader()
    reader.assign({data: 0})
    cluster.wait_position(reader, data, 2)


@pytest.mark.parametrize("step", [step for step in LedgerStep if step is not LedgerStep.COMMITTED])
def test_fenced_at_any_step_is_reported_and_nothing_of_it_stays(cluster: KafkaCluster, step: LedgerStep):
    ledger, data = cluster.partition(), cluster.partition()
    name = cluster.transactional_id()
    old = cluster.producer(name)

    def usurp(reached: LedgerStep) -> None:
        if reached is step:
            cluster.producer(name)

    transaction = LedgerTransaction(old, ledger, WAIT_S, WAIT_S, reached=usurp)
    result = transaction.run(b"begun", [OutgoingMessage(data, b"zombie")], entry_of)
    certain = step in (LedgerStep.BEGUN, LedgerStep.BATCHES)
    assert result.outcome is (TransactionOutcome.ABORTED if certain else TransactionOutcome.UNKNOWN)
    assert isinstance(result.error, FencedError)
    assert result.fenced
    assert result.replace_producer
    offset = cluster.producer(name)
    assert (
        LedgerTransaction(offset, ledger, WAIT_S, WAIT_S).run(b"begun", [], entry_of).outcome
        is TransactionOutcome.COMMITTED
    )
    reader = cluster.reader()
    reader.assign({ledger: 0})
    assert [message.value for message in cluster.read_until(reader, 2)] == [b"begun", b"entry "]
