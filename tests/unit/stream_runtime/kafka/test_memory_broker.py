"""What only the in-memory broker can be made to do: faults, time-outs, delays. All of it repeats by seed and
clock.
"""

from __future__ import annotations

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import EndFault, MemoryBroker, MemoryKafkaClient
from tidemark.stream_runtime.kafka.errors import (
    AbortableError,
    FencedError,
    KafkaUnavailableError,
    OutcomeUnknownError,
)
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    OutgoingMessage,
    TransactionOutcome,
)
from tidemark.stream_runtime.kafka.ports import Isolation, TopicPartition, TopicSpec

LEDGER = TopicPartition("ledger", 0)
DATA = TopicPartition("data", 0)
INDEX = TopicPartition("index", 0)
NAME = "assigner-0"


class Cluster:
    def __init__(self, seed: int = 1, transaction_timeout_s: float = 10.0) -> None:
        self.clock = ManualClock()
        self.broker = MemoryBroker(self.clock, SeededIds(seed))
        self.client = MemoryKafkaClient(self.broker, transaction_timeout_s=transaction_timeout_s)
        self.client.admin().create_topics([TopicSpec(tp.topic, 1) for tp in (LEDGER, DATA, INDEX)])

    def producer(self, name: str = NAME):
        producer = self.client.producer(name)
        producer.init()
        return producer

    def visible(self, topic_partition: TopicPartition) -> list[bytes | None]:
        reader = self.client.partition_reader()
        reader.assign({topic_partition: 0})
        return [message.value for message in reader.poll(1_000, 0.0)]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def simple_transaction(producer, *values: bytes):
    """Data first, then a ledger entry: without the defence."""
    producer.begin()
    for value in values:
        producer.produce(DATA, value)
    producer.flush()
    producer.produce(LEDGER, b"entry of " + values[0])
    producer.flush()
    producer.commit()


def run(producer, value: bytes, reached=lambda step: None):
    transaction = LedgerTransaction(producer, LEDGER, reached=reached)
    return transaction.run(
        b"begun " + value,
        [OutgoingMessage(DATA, value), OutgoingMessage(INDEX, value)],
        lambda _: b"entry " + value,
    )


def deliver_at(cluster: Cluster, wanted: str):
    def reached(step: str) -> None:
        if step == wanted:
            cluster.broker.deliver_late_ends()

    return reached


def test_without_the_defence_a_late_abort_tears_a_transaction(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE_UNNOTICED)
    producer.begin()
    producer.produce(DATA, b"one")
    producer.flush()
    producer.abort()
    producer.begin()
    producer.produce(DATA, b"two")
    producer.flush()
    assert cluster.broker.deliver_late_ends() == 1
    producer.produce(LEDGER, b"entry of two")
    producer.flush()
    producer.commit()
    # The ledger names data that nobody can read: the loss that the order of messages must prevent.
    assert cluster.visible(LEDGER) == [b"entry of two"]
    assert cluster.visible(DATA) == []


@pytest.mark.parametrize("first_commits", [True, False])
@pytest.mark.parametrize("step", ["batches", "entry"])
def test_ledger_first_and_last_never_names_a_torn_transaction(
    cluster: Cluster, first_commits: bool, step: str
):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE_UNNOTICED)
    if first_commits:
        assert run(producer, b"one").outcome is TransactionOutcome.COMMITTED
    else:
        producer.begin()
        producer.produce(DATA, b"one")
        producer.flush()
        producer.abort()
    assert not producer.doubtful
    result = run(producer, b"two", deliver_at(cluster, step))
    assert result.outcome is not TransactionOutcome.COMMITTED
    assert result.replace_producer
    cluster.producer()
    assert b"entry two" not in cluster.visible(LEDGER)
    # A leaked commit shows data that no entry names; a leaked abort shows nothing.
    leaked = [b"two"] if first_commits and step == "entry" else []
    assert cluster.visible(DATA) == ([b"one"] if first_commits else []) + leaked


@pytest.mark.parametrize("first_commits", [True, False])
def test_entry_in_front_of_a_leaked_marker_shares_its_fate(cluster: Cluster, first_commits: bool):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE_UNNOTICED)
    if first_commits:
        run(producer, b"one")
    else:
        producer.begin()
        producer.produce(DATA, b"one")
        producer.flush()
        producer.abort()
    cluster.broker.faults.marker_delay_max_s = 5.0
    result = run(producer, b"two", deliver_at(cluster, "entry"))
    expected = TransactionOutcome.COMMITTED if first_commits else TransactionOutcome.UNKNOWN
    assert result.outcome is expected
    cluster.clock.advance(5.0)
    assert (b"entry two" in cluster.visible(LEDGER)) is first_commits
    assert (b"two" in cluster.visible(DATA)) is first_commits


def test_late_end_just_before_commit_is_the_same_decision_or_unknown(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE_UNNOTICED)
    run(producer, b"one")
    result = run(producer, b"two", deliver_at(cluster, "commit"))
    assert result.outcome is TransactionOutcome.COMMITTED
    assert cluster.visible(LEDGER)[-1] == b"entry two"
    assert cluster.visible(DATA) == [b"one", b"two"]


def test_late_abort_just_before_commit_is_unknown_and_nothing_shows(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE_UNNOTICED)
    producer.begin()
    producer.produce(DATA, b"one")
    producer.flush()
    producer.abort()
    result = run(producer, b"two", deliver_at(cluster, "commit"))
    assert result.outcome is TransactionOutcome.UNKNOWN
    cluster.producer()
    assert cluster.visible(LEDGER) == []
    assert cluster.visible(DATA) == []


def test_noticed_repeat_makes_the_producer_doubtful_and_a_new_one_is_safe(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.DUPLICATED_LATE)
    result = run(producer, b"one")
    assert result.outcome is TransactionOutcome.COMMITTED
    assert result.replace_producer
    successor = cluster.producer()
    result = run(successor, b"two", deliver_at(cluster, "entry"))
    assert result.outcome is TransactionOutcome.COMMITTED
    assert cluster.visible(DATA) == [b"one", b"two"]


@pytest.mark.parametrize(
    ("fault", "shown"),
    [(EndFault.LOST_ANSWER, True), (EndFault.LOST_REQUEST, False), (EndFault.LATE_REQUEST, False)],
)
def test_unanswered_commit_is_unknown_and_the_ledger_tells_after_a_new_init(
    cluster: Cluster, fault: EndFault, shown: bool
):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, fault)
    result = run(producer, b"one")
    assert result.outcome is TransactionOutcome.UNKNOWN
    assert isinstance(result.error, OutcomeUnknownError)
    assert producer.doubtful
    cluster.producer()
    assert cluster.broker.deliver_late_ends() == 0
    assert (b"entry one" in cluster.visible(LEDGER)) is shown
    assert (b"one" in cluster.visible(DATA)) is shown


def test_unanswered_commit_may_still_arrive_when_nobody_fences_it():
    cluster = Cluster(transaction_timeout_s=60.0)
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.LATE_REQUEST)
    assert run(producer, b"one").outcome is TransactionOutcome.UNKNOWN
    assert cluster.visible(LEDGER) == []
    assert cluster.broker.deliver_late_ends() == 1
    assert cluster.visible(LEDGER) == [b"begun one", b"entry one"]


def test_slow_end_is_doubtful(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.on_next_end(NAME, EndFault.SLOW)
    result = run(producer, b"one")
    assert result.outcome is TransactionOutcome.COMMITTED
    assert result.replace_producer


def test_lost_acknowledgement_aborts_though_the_message_is_stored(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.lose_acknowledgements("data")
    result = run(producer, b"one")
    assert result.outcome is TransactionOutcome.ABORTED
    assert isinstance(result.error, AbortableError | FencedError)
    assert result.replace_producer
    cluster.producer()
    assert cluster.client.admin().end_offset(DATA, Isolation.READ_UNCOMMITTED) >= 1
    assert cluster.visible(DATA) == []
    assert run(cluster.producer(), b"two").outcome is TransactionOutcome.COMMITTED


def test_lost_message_aborts_and_is_not_stored(cluster: Cluster):
    producer = cluster.producer()
    cluster.broker.faults.lose_messages("data")
    assert run(producer, b"one").outcome is TransactionOutcome.ABORTED
    cluster.producer()
    assert cluster.visible(DATA) == []


def test_transaction_that_stays_open_is_aborted_by_the_broker_and_its_producer_fenced(cluster: Cluster):
    producer, other = cluster.producer(), cluster.producer("other")
    producer.begin()
    producer.produce(DATA, b"frozen")
    producer.flush()
    other.begin()
    other.produce(DATA, b"behind")
    other.flush()
    other.commit()
    assert cluster.visible(DATA) == []
    cluster.clock.advance(9.9)
    assert cluster.visible(DATA) == []
    cluster.clock.advance(0.2)
    assert cluster.visible(DATA) == [b"behind"]
    with pytest.raises(FencedError):
        producer.commit()
    assert producer.doubtful


def test_markers_reach_partitions_at_different_times(cluster: Cluster):
    cluster.broker.faults.marker_delay_max_s = 1.0
    assert run(cluster.producer(), b"one").outcome is TransactionOutcome.COMMITTED
    states = set()
    for _ in range(110):
        states.add(tuple(bool(cluster.visible(tp)) for tp in (LEDGER, DATA, INDEX)))
        cluster.clock.advance(0.01)
    assert (False, False, False) in states
    assert (True, True, True) in states
    assert len(states) > 2


def test_next_transaction_of_the_producer_waits_for_its_markers(cluster: Cluster):
    cluster.broker.faults.marker_delay_max_s = 1_000.0
    producer = cluster.producer()
    assert run(producer, b"one").outcome is TransactionOutcome.COMMITTED
    producer.begin()
    producer.produce(DATA, b"two")
    producer.flush()
    assert cluster.visible(LEDGER) == [b"begun one", b"entry one"]


def test_stopped_broker_refuses_everything_and_forgets_nothing(cluster: Cluster):
    assert run(cluster.producer(), b"one").outcome is TransactionOutcome.COMMITTED
    producer = cluster.producer()
    producer.begin()
    producer.produce(DATA, b"lost")
    cluster.broker.stop()
    with pytest.raises(AbortableError):
        producer.flush()
    assert producer.doubtful
    with pytest.raises(KafkaUnavailableError):
        cluster.client.admin().partitions("data")
    with pytest.raises(KafkaUnavailableError):
        cluster.client.producer(NAME).init()
    cluster.broker.start()
    assert cluster.visible(DATA) == [b"one"]
    assert run(cluster.producer(), b"two").outcome is TransactionOutcome.COMMITTED


def test_commit_while_the_broker_is_down_is_unknown(cluster: Cluster):
    producer = cluster.producer()
    result = run(producer, b"one", lambda step: cluster.broker.stop() if step == "commit" else None)
    assert result.outcome is TransactionOutcome.UNKNOWN
    cluster.broker.start()
    cluster.producer()
    assert cluster.visible(LEDGER) == []


def test_time_retention_deletes_old_records_of_its_topic_only(cluster: Cluster):
    timed = TopicPartition("tombstones", 0)
    cluster.client.admin().create_topics([TopicSpec("tombstones", 1, config={"retention.ms": "60000"})])
    producer = cluster.client.plain_producer()
    for topic in ("tombstones", "data"):
        producer.produce(topic, b"old", partition=0)
    cluster.clock.advance(50)
    producer.produce("tombstones", b"young", partition=0)
    cluster.clock.advance(20)
    cluster.broker.apply_retention()
    reader = cluster.client.partition_reader()
    reader.assign({timed: cluster.client.admin().start_offset(timed)})
    assert [message.value for message in reader.poll(10, 0.0)] == [b"young"]
    assert cluster.visible(DATA) == [b"old"]


def test_the_same_seed_gives_the_same_history():
    histories = []
    for _ in range(2):
        cluster = Cluster(seed=5)
        cluster.broker.faults.marker_delay_max_s = 1.0
        run(cluster.producer(), b"one")
        history = []
        for _ in range(50):
            history.append([len(cluster.visible(tp)) for tp in (LEDGER, DATA, INDEX)])
            cluster.clock.advance(0.02)
        histories.append(history)
    assert histories[0] == histories[1]
