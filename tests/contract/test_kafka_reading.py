"""Readers, ranges and admin calls, alike on both brokers."""

from __future__ import annotations

import gc
import time
import zlib

import pytest

from tests.contract.kafka_cluster import WAIT_S, KafkaCluster, abort, commit, send
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.confluent import silence
from tidemark.stream_runtime.kafka.ports import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Isolation,
    KafkaConfigError,
    MissingTopicError,
    OffsetOutOfRangeError,
    OffsetRange,
    TopicPartition,
    TopicSpec,
)


def test_reader_starts_where_it_was_told(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    commit(producer, tp, b"a", b"b", b"c")
    reader = cluster.reader()
    reader.assign({tp: 1})
    assert [message.offset for message in cluster.read_until(reader, 2)] == [1, 2]
    reader.assign({tp: OFFSET_BEGINNING})
    assert reader.position(tp) == 0
    assert [message.offset for message in cluster.read_until(reader, 3)] == [0, 1, 2]
    reader.assign({tp: OFFSET_END})
    assert reader.position(tp) == 4
    assert commit(producer, tp, b"d") == [4]
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"d"]


def test_poll_returns_empty_after_its_time(cluster: KafkaCluster):
    tp = cluster.partition()
    reader = cluster.reader()
    reader.assign({tp: 0})
    deadline_s = cluster.clock.monotonic_s() + 0.3
    while cluster.clock.monotonic_s() < deadline_s:
        assert reader.poll(10, 0.1) == []


def test_a_partition_that_the_client_stopped_reading_is_read_on(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(silence, "QUIET_S", 0.5)
    topic = cluster.topic(partitions=2)
    stopped, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = cluster.producer()
    reader = cluster.reader()
    reader.assign({stopped: 0, other: 0})
    commit(producer, stopped, b"a")
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"a"]
    cluster.wait_position(reader, stopped, 2)
    cluster.stop_fetching(reader, stopped)
    commit(producer, stopped, b"b")
    commit(producer, other, b"x")
    assert {message.value for message in cluster.read_until(reader, 2)} == {b"b", b"x"}
    commit(producer, stopped, b"c")
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"c"], "nothing comes twice"


def test_an_open_transaction_is_no_silence(cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(silence, "QUIET_S", 0.05)
    tp = cluster.partition()
    producer = cluster.producer()
    reader = cluster.reader()
    reader.assign({tp: 0})
    producer.begin()
    send(producer, tp, b"a")
    consumer = getattr(reader, "_consumer", None)
    for _ in range(5):
        assert reader.poll(10, 0.1) == []
    assert getattr(reader, "_consumer", None) is consumer, "the consumer was not replaced"
    producer.commit()
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"a"]


def test_partitions_can_be_added_and_removed_without_disturbing_others(cluster: KafkaCluster):
    topic = cluster.topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = cluster.producer()
    commit(producer, first, b"a0")
    commit(producer, second, b"b0")
    reader = cluster.reader()
    reader.assign({first: 0})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"a0"]
    reader.add({second: 0})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"b0"]
    reader.remove([first])
    commit(producer, first, b"a1")
    commit(producer, second, b"b1")
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"b1"]
    assert reader.poll(10, 0.3) == []
    reader.add({first: 0})
    assert [message.value for message in cluster.read_until(reader, 2)] == [b"a0", b"a1"]


def test_poll_gives_no_more_than_asked(cluster: KafkaCluster):
    tp = cluster.partition()
    commit(cluster.producer(), tp, *[b"x"] * 10)
    reader = cluster.reader()
    reader.assign({tp: 0})
    sizes: list[int] = []
    while sum(sizes) < 10:
        sizes.append(len(reader.poll(4, WAIT_S)))
        assert 0 < sizes[-1] <= 4
    assert sum(sizes) == 10


def test_deleted_start_raises_instead_of_jumping(cluster: KafkaCluster):
    tp = cluster.partition()
    commit(cluster.producer(), tp, b"a", b"b", b"c")
    assert cluster.admin().delete_records({tp: 2}) == {tp: 2}
    reader = cluster.reader()
    reader.assign({tp: 0})
    with pytest.raises(OffsetOutOfRangeError):
        cluster.read_until(reader, 1)


def test_missing_topic_raises_at_once(cluster: KafkaCluster):
    reader = cluster.reader()
    with pytest.raises(MissingTopicError):
        reader.assign({TopicPartition(f"{cluster.unique}-nowhere", 0): 0})
    with pytest.raises(MissingTopicError):
        reader.assign({TopicPartition(cluster.topic(), 1): 0})
    with pytest.raises(MissingTopicError):
        cluster.ranges().read(TopicPartition(f"{cluster.unique}-nowhere", 0), 0, 0)


def test_range_holds_exactly_its_messages(cluster: KafkaCluster):
    tp = cluster.partition()
    producer = cluster.producer()
    commit(producer, tp, b"before")
    first = commit(producer, tp, b"a")[0]
    abort(producer, tp, b"gone")
    last = commit(producer, tp, b"b", b"c")[-1]
    commit(producer, tp, b"after")
    ranges = cluster.ranges()
    for _ in range(2):
        assert [message.value for message in ranges.read(tp, first, last)] == [b"a", b"b", b"c"]
    assert [message.value for message in ranges.read(tp, last, last)] == [b"c"]


def test_many_ranges_come_in_the_order_asked_also_of_one_partition(cluster: KafkaCluster):
    topic = cluster.topic(partitions=2)
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    producer = cluster.producer()
    for number in range(4):
        commit(producer, one, b"one%d" % number)
        commit(producer, two, b"two%d" % number)
    wanted = [OffsetRange(one, 4, 6), OffsetRange(two, 0, 0), OffsetRange(one, 0, 0), OffsetRange(two, 2, 6)]
    answers = cluster.ranges().read_many(wanted)
    assert [[message.value for message in answer] for answer in answers] == [
        [b"one2", b"one3"],
        [b"two0"],
        [b"one0"],
        [b"two1", b"two2", b"two3"],
    ]
    assert cluster.ranges().read_many([]) == []


def test_range_behind_an_open_transaction_waits_until_the_deadline_only(cluster: KafkaCluster):
    tp = cluster.partition()
    slow, fast = cluster.producer(), cluster.producer()
    slow.begin()
    send(slow, tp, b"open")
    (offset,) = commit(fast, tp, b"committed")
    ranges = cluster.ranges()
    with pytest.raises(DeadlineExceededError, match=f"offset {offset}"):
        ranges.read(tp, offset, offset, timeout_s=0.5)
    slow.abort()
    assert [message.value for message in ranges.read(tp, offset, offset)] == [b"committed"]


@pytest.mark.parametrize("last", [1, 2, 3])
def test_range_whose_end_is_a_marker_or_aborted_is_an_error(cluster: KafkaCluster, last: int):
    tp = cluster.partition()
    producer = cluster.producer()
    commit(producer, tp, b"a")
    abort(producer, tp, b"gone")
    with pytest.raises(OffsetOutOfRangeError, match=f"no committed message at {last}"):
        cluster.ranges().read(tp, 0, last)


def test_range_that_was_deleted_is_an_error(cluster: KafkaCluster):
    tp = cluster.partition()
    commit(cluster.producer(), tp, b"a", b"b", b"c")
    cluster.admin().delete_records({tp: 1})
    ranges = cluster.ranges()
    with pytest.raises(OffsetOutOfRangeError):
        ranges.read(tp, 0, 2)
    assert [message.value for message in ranges.read(tp, 1, 2)] == [b"b", b"c"]


def test_range_beyond_the_end_is_an_error(cluster: KafkaCluster):
    tp = cluster.partition()
    commit(cluster.producer(), tp, b"a")
    with pytest.raises(OffsetOutOfRangeError):
        cluster.ranges().read(tp, 50, 50, timeout_s=60.0)


def test_large_range_is_whole(cluster: KafkaCluster):
    tp = TopicPartition(cluster.topic(max_message_bytes="2100000"), 0)
    producer = cluster.producer()
    values = [bytes([number]) * 700_000 for number in range(12)]
    offsets = [commit(producer, tp, value)[0] for value in values]
    messages = cluster.ranges().read(tp, offsets[0], offsets[-1])
    assert [message.value for message in messages] == values


def test_topics_are_created_once_and_described(cluster: KafkaCluster):
    admin = cluster.admin()
    name = f"{cluster.unique}-created"
    spec = TopicSpec(name, 3, 1, {"retention.ms": "-1", "max.message.bytes": "70000"})
    assert admin.partitions(name) is None
    with pytest.raises(MissingTopicError):
        admin.describe(name)
    admin.create_topics([spec])
    admin.create_topics([spec, spec])
    assert admin.partitions(name) == 3
    described = admin.describe(name)
    assert (described.name, described.partitions, described.replication_factor) == (name, 3, 1)
    assert described.config["retention.ms"] == "-1"
    assert described.config["max.message.bytes"] == "70000"
    with pytest.raises(MissingTopicError):
        admin.configure_topic(f"{name}-none", {"retention.ms": "7000"})
    admin.configure_topic(name, {"retention.ms": "7000", "segment.ms": "6000"})
    deadline = time.monotonic() + 60
    while admin.describe(name).config["retention.ms"] != "7000":
        assert time.monotonic() < deadline, "the settings are not there after 60 s"
        time.sleep(0.1)
    settings = admin.describe(name).config
    assert (settings["segment.ms"], settings["max.message.bytes"]) == ("6000", "70000")
    assert admin.topic_settings([name, f"{name}-none"]) == {name: settings}
    assert admin.topic_settings([]) == {}
    with pytest.raises(KafkaConfigError, match="has 3 partitions and 4 are wanted"):
        admin.create_topics([TopicSpec(name, 4, 1)])


def test_delete_records_takes_explicit_offsets_up_to_the_end(cluster: KafkaCluster):
    tp = cluster.partition()
    commit(cluster.producer(), tp, b"a", b"b", b"c")
    admin = cluster.admin()
    assert admin.start_offset(tp) == 0
    assert admin.delete_records({tp: 2}) == {tp: 2}
    assert admin.delete_records({tp: 1}) == {tp: 2}
    assert admin.start_offset(tp) == admin.start_offset(tp, timeout_s=1.0) == 2
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({tp: 99})
    with pytest.raises(KafkaConfigError, match="explicit offset"):
        admin.delete_records({tp: -1})
    reader = cluster.reader()
    reader.assign({tp: OFFSET_BEGINNING})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"c"]


def test_offsets_for_time(cluster: KafkaCluster):
    tp = cluster.partition()
    producer, reader = cluster.producer(), cluster.reader()
    reader.assign({tp: OFFSET_BEGINNING})
    commit(producer, tp, b"a")
    # A marker has a time, too, and a busy broker writes it after the commit was answered.
    cluster.read_until(reader, 1)
    cluster.clock.sleep(0.05)
    between_ms = cluster.clock.now_ms()
    cluster.clock.sleep(0.05)
    commit(producer, tp, b"b")
    cluster.read_until(reader, 1)
    admin = cluster.admin()
    assert admin.offsets_for_time([tp], 0) == {tp: 0}
    assert admin.offsets_for_time([tp], between_ms) == {tp: 2}
    assert admin.offsets_for_time([tp], cluster.clock.now_ms() + 3_600_000) == {tp: 4}


def test_plain_producer_chooses_partitions_by_key(cluster: KafkaCluster):
    topic = cluster.topic(partitions=4)
    producer = cluster.plain()
    keys = [b"key%d" % number for number in range(40)]
    assert producer.produce_batch(topic, [(key, b"v" + key) for key in keys]) == 40
    producer.produce(topic, b"placed", b"key0", partition=3, headers=(("h", b"1"),))
    producer.flush()
    reader = cluster.reader()
    reader.assign({TopicPartition(topic, partition): 0 for partition in range(4)})
    messages = cluster.read_until(reader, 41)
    placed = [message for message in messages if message.value == b"placed"]
    assert [(message.partition, message.headers) for message in placed] == [(3, (("h", b"1"),))]
    by_key = {message.key: message.partition for message in messages if message.value != b"placed"}
    assert by_key == {key: zlib.crc32(key) % 4 for key in keys}


def test_plain_producer_reports_a_failure_at_flush(cluster: KafkaCluster):
    producer = cluster.plain()
    topic = TopicPartition(cluster.topic(), 0).topic
    producer.produce(topic, b"x", partition=7)
    with pytest.raises(MissingTopicError):
        producer.flush()


def test_broker_settings_that_safety_rests_on_are_checked(cluster: KafkaCluster):
    cluster.admin().check_broker()


def test_deleted_topics_are_gone_and_may_come_back_empty(cluster: KafkaCluster):
    name, admin = cluster.topic(2), cluster.admin()
    commit(cluster.producer(), TopicPartition(name, 1), b"a")
    admin.delete_topics([name, f"{cluster.unique}-nowhere"])
    assert admin.partitions(name) is None
    admin.create_topics([TopicSpec(name, 1)])
    assert admin.partitions(name) == 1
    assert admin.end_offset(TopicPartition(name, 0), Isolation.READ_UNCOMMITTED) == 0


def test_a_topic_that_is_made_again_has_another_id_and_one_that_grows_keeps_it(cluster: KafkaCluster):
    name, admin = cluster.topic(partitions=2), cluster.admin()
    first = admin.topic_states([name, f"{name}-none"])
    assert list(first) == [name]
    assert first[name].partitions == 2
    assert first[name].id
    reader = cluster.reader()
    reader.add({TopicPartition(name, 0): 0})
    cluster.grow(name, 3)
    grown = cluster.wait_partitions(name, 3)
    assert grown.id == first[name].id
    producer = cluster.plain()
    producer.produce(name, b"in the new one", partition=2)
    producer.flush()
    reader.add({TopicPartition(name, 2): 0})
    assert [message.value for message in cluster.read_until(reader, 1)] == [b"in the new one"]
    admin.delete_topics([name])
    assert admin.topic_states([name]) == {}
    admin.create_topics([TopicSpec(name, 2, 1)])
    assert admin.topic_states([name])[name].id != first[name].id


def test_ids_of_topics_are_freed(cluster: KafkaCluster):
    name, admin = cluster.topic(), cluster.admin()

    def kept() -> int:
        return sum(type(thing).__name__ == "Uuid" for thing in gc.get_objects())

    admin.topic_states([name])
    before = kept()
    for _ in range(5):
        admin.topic_states([name])
    gc.collect()
    assert kept() <= before
