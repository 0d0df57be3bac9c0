"""Transactional producers, alike on both brokers."""

from __future__ import annotations

import pytest

from tests.contract.kafka_cluster import KafkaCluster, abort, commit, send
from tidemark.stream_runtime.kafka.ports import (
    AbortableError,
    FencedError,
    Isolation,
    KafkaError,
    MessageTooLargeError,
    MissingTopicError,
    TopicPartition,
)
from tidemark.stream_runtime.kafka.producer_state import ProducerStateError


@pytest.mark.usefixtures("unhurried_ends")
def test_committed_messages_arrive_with_their_delivered_offsets(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    offsets = commit(producer, tp, b"a", b"b")
    reader = cluster.reader()
    reader.assign({tp: 0})
    messages = cluster.read_until(reader, 2)
    assert offsets == [0, 1]
    assert [(message.offset, message.value) for message in messages] == [(0, b"a"), (1, b"b")]
    assert not producer.doubtful


def test_marker_takes_an_offset(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    assert commit(producer, tp, b"a") == [0]
    assert commit(producer, tp, b"b") == [2]
    cluster.await_end("the second marker", lambda: cluster.end_of(tp) >= 4)
    assert cluster.end_of(tp) == 4


def test_key_headers_null_value_and_time_survive(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    producer.begin()
    producer.produce(tp, None, b"key", (("schema", b"\x00\x01"), ("schema", b"again")))
    producer.produce(tp, b"", None)
    producer.flush()
    producer.commit()
    reader = cluster.reader()
    reader.assign({tp: 0})
    first, second = cluster.read_until(reader, 2)
    assert (first.key, first.value) == (b"key", None)
    assert first.headers == (("schema", b"\x00\x01"), ("schema", b"again"))
    assert first.timestamp_ms == pytest.approx(cluster.clock.now_ms(), abs=60_000)
    assert (second.key, second.value, second.headers) == (None, b"", ())


def test_offset_is_unknown_before_flush(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    producer.begin()
    delivery = producer.produce(tp, b"a")
    with pytest.raises(AbortableError, match="unknown"):
        _ = delivery.offset
    producer.flush()
    assert delivery.offset == 0
    producer.abort()


def test_aborted_messages_are_invisible_and_the_reader_passes_them(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    abort(producer, tp, b"gone")
    assert commit(producer, tp, b"kept") == [2]
    reader = cluster.reader()
    reader.assign({tp: 0})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"kept"]
    uncommitted = cluster.reader(isolation=Isolation.READ_UNCOMMITTED)
    uncommitted.assign({tp: 0})
    assert [message.value for message in cluster.read_until(uncommitted, 2)] == [b"gone", b"kept"]


def test_position_passes_markers_and_aborted_messages_at_the_end(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    commit(producer, tp, b"a")
    abort(producer, tp, b"gone", b"gone too")
    reader = cluster.reader()
    reader.assign({tp: 0})
    assert reader.position(tp) == 0
    cluster.read_until(reader, 1)
    cluster.wait_position(reader, tp, 5)


def test_open_transaction_hides_what_is_behind_it(cluster: KafkaCluster):
    tp = cluster.partition()
    slow, fast = cluster.producer(), cluster.producer()
    slow.begin()
    send(slow, tp, b"open")
    assert commit(fast, tp, b"committed") == [1]
    reader = cluster.reader()
    reader.assign({tp: 0})
    assert reader.poll(10, 0.5) == []
    cluster.await_end("the marker", lambda: cluster.end_of(tp) >= 3)
    assert cluster.stable_end_of(tp) == 0
    assert cluster.end_of(tp) == 3
    slow.commit()
    assert [message.value for message in cluster.read_until(reader, 2)] == [b"open", b"committed"]


def test_one_transaction_spans_topics_whole(cluster: KafkaCluster):
    topics = [cluster.topic(partitions=3) for _ in range(2)]
    partitions = [TopicPartition(topic, partition) for topic in topics for partition in range(3)]
    producer = cluster.producer()
    producer.begin()
    deliveries = [producer.produce(tp, b"x") for tp in partitions]
    producer.flush()
    producer.commit()
    assert [delivery.offset for delivery in deliveries] == [0] * 6
    reader = cluster.reader()
    reader.assign(dict.fromkeys(partitions, 0))
    assert {message.topic_partition for message in cluster.read_until(reader, 6)} == set(partitions)


def test_newer_producer_fences_and_ends_the_open_transaction(cluster: KafkaCluster):
    tp = cluster.partition()
    name = cluster.transactional_id()
    old = cluster.producer(name)
    old.begin()
    send(old, tp, b"zombie")
    new = cluster.producer(name)
    assert cluster.admin().end_offset(tp, Isolation.READ_COMMITTED) == 2
    old.produce(tp, b"late")
    with pytest.raises(FencedError):
        old.flush()
    assert old.doubtful
    with pytest.raises(FencedError):
        old.commit()
    assert commit(new, tp, b"new") == [2]
    reader = cluster.reader()
    reader.assign({tp: 0})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"new"]


def test_fenced_commit_says_so(cluster: KafkaCluster):
    tp = cluster.partition()
    name = cluster.transactional_id()
    old = cluster.producer(name)
    old.begin()
    send(old, tp, b"zombie")
    cluster.producer(name)
    with pytest.raises(FencedError):
        old.commit()
    assert old.doubtful


def test_too_large_for_the_producer_is_refused_at_once_and_the_rest_goes_on(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    producer.begin()
    with pytest.raises(MessageTooLargeError):
        producer.produce(tp, bytes(2_000_001))
    send(producer, tp, b"fits")
    producer.commit()


def test_too_large_for_the_topic_must_abort_and_replaces_the_producer(cluster: KafkaCluster):
    topic = TopicPartition(cluster.topic(max_message_bytes="10000"), 0)
    name = cluster.transactional_id()
    producer = cluster.producer(name)
    producer.begin()
    incompressible = bytes((i * i * 31 + (i >> 7) * 17 + (i * 2654435761 >> 13)) & 255 for i in range(50_000))
    delivery = producer.produce(topic, incompressible)
    with pytest.raises(MessageTooLargeError):
        producer.flush()
    with pytest.raises(MessageTooLargeError):
        _ = delivery.offset
    with pytest.raises(ProducerStateError):
        producer.commit()
    producer.abort()
    assert producer.doubtful
    assert commit(cluster.producer(name), topic, b"small") != []


def test_missing_topic_is_named_and_the_transaction_can_be_aborted(cluster: KafkaCluster):
    producer = cluster.producer()
    producer.begin()
    producer.produce(TopicPartition(f"{cluster.unique}-nowhere", 0), b"x")
    with pytest.raises(MissingTopicError, match="nowhere"):
        producer.flush()
    producer.abort()


def test_consumed_positions_are_committed_with_the_transaction_or_not_at_all(cluster: KafkaCluster):
    tp, source = cluster.partition(), cluster.partition()
    group = f"{cluster.unique}-group"
    producer = cluster.producer()
    admin = cluster.admin()
    assert admin.committed_offsets(group, [source]) == {}
    producer.begin()
    send(producer, tp, b"a")
    producer.send_offsets({source: 7}, group)
    producer.commit()
    producer.begin()
    send(producer, tp, b"b")
    producer.send_offsets({source: 9}, group)
    producer.abort()
    assert admin.committed_offsets(group, [source]) == {source: 7}


def test_empty_transaction_can_end(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    producer.begin()
    producer.commit()
    producer.begin()
    producer.abort()
    assert commit(producer, tp, b"a") == [0]


@pytest.mark.parametrize("call", ["begin", "commit", "abort", "flush"])
def test_call_before_init_is_refused(cluster: KafkaCluster, call: str):
    producer = cluster.uninitialised()
    with pytest.raises(ProducerStateError, match=call):
        getattr(producer, call)()


def test_call_after_close_is_refused(cluster: KafkaCluster):
    producer = cluster.producer()
    producer.close()
    producer.close()
    assert producer.doubtful
    with pytest.raises(ProducerStateError, match="closed"):
        producer.begin()


def test_closed_producer_leaves_its_transaction_to_the_next(cluster: KafkaCluster):
    tp = cluster.partition()
    name = cluster.transactional_id()
    first = cluster.producer(name)
    first.begin()
    send(first, tp, b"left")
    first.close()
    admin = cluster.admin()
    assert admin.end_offset(tp, Isolation.READ_COMMITTED) == 0
    second = cluster.producer(name)
    assert commit(second, tp, b"mine") == [2]
    reader = cluster.reader()
    reader.assign({tp: 0})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"mine"]


def test_every_failure_is_of_the_one_base(cluster: KafkaCluster):
    producer = cluster.producer()
    with pytest.raises(KafkaError):
        producer.commit()
