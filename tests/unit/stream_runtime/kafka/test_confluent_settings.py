"""The real adapter's settings, without a broker."""

from __future__ import annotations

import json
import pickle

import pytest

from testing.clock import ManualClock
from tidemark.config import load_config
from tidemark.stream_runtime.kafka.confluent import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.confluent.connection_log import ConnectionLog, Repeats
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.ports import (
    Isolation,
    KafkaConfigError,
    KafkaUnavailableError,
    TopicPartition,
)

NOBODY = {"bootstrap.servers": "127.0.0.1:1"}


def test_section_reaches_every_client_and_our_own_settings_stand():
    settings = ClientSettings({**NOBODY, "compression.type": "zstd", "socket.keepalive.enable": "true"})
    for made in (
        settings.transactional_producer("x"),
        settings.plain_producer(),
        settings.partition_reader(Isolation.READ_UNCOMMITTED, "g"),
        settings.range_reader(),
        settings.admin(),
    ):
        assert made["bootstrap.servers"] == "127.0.0.1:1"
        assert made["socket.keepalive.enable"] == "true"
    producer = settings.transactional_producer("x")
    assert producer["compression.type"] == "zstd"
    assert (producer["acks"], producer["enable.idempotence"], producer["transactional.id"]) == (
        "all",
        True,
        "x",
    )
    reader = settings.range_reader()
    assert (reader["isolation.level"], reader["auto.offset.reset"]) == ("read_committed", "error")
    assert reader["receive.message.max.bytes"] > 2 * settings.message_bytes_max


def test_a_fetch_brings_little_since_it_is_unpacked_at_once():
    """600 KB of gzip may be 600 MB, and who asked for one batch must not get the next one soon."""
    settings = ClientSettings(NOBODY)
    reader = settings.partition_reader(Isolation.READ_COMMITTED, "g")
    assert (reader["fetch.message.max.bytes"], reader["fetch.max.bytes"]) == (1 << 20, 4 << 20)
    few, one = settings.few_batches_reader("g"), settings.one_batch_reader("g")
    assert (one["fetch.message.max.bytes"], one["queued.min.messages"]) == (1, 1)
    assert one["fetch.queue.backoff.ms"] >= 1_000 > few["fetch.queue.backoff.ms"]
    assert few["isolation.level"] == "read_committed"


def test_a_reader_that_follows_asks_seldom_and_gets_messages_at_once():
    """By a broker's default a fetch is answered as soon as there is one byte."""
    settings = ClientSettings(NOBODY)
    short, follows = (
        settings.partition_reader(Isolation.READ_COMMITTED, "g", each) for each in (False, True)
    )
    assert follows["fetch.wait.max.ms"] >= 5 * short["fetch.wait.max.ms"]
    assert "fetch.min.bytes" not in follows


@pytest.mark.parametrize("key", ["acks", "isolation.level", "enable.idempotence", "transactional.id"])
def test_setting_that_correctness_rests_on_is_refused(key):
    with pytest.raises(KafkaConfigError, match=f"kafka.{key} is set by Tidemark"):
        ConfluentKafkaClient({**NOBODY, key: "x"})


@pytest.mark.parametrize("servers", ["", "embedded"])
def test_broker_without_address_is_refused(servers):
    with pytest.raises(KafkaConfigError, match="host:port of a running broker"):
        ConfluentKafkaClient({"bootstrap.servers": servers})


def test_unknown_setting_is_named():
    client = ConfluentKafkaClient({**NOBODY, "no.such.setting": "1"})
    makers = [client.admin, client.plain_producer, client.range_reader, lambda: client.producer("x")]
    for make in makers:
        with pytest.raises(KafkaConfigError, match=r"no\.such\.setting"):
            make()


def test_client_can_be_sent_to_another_process():
    client = pickle.loads(pickle.dumps(ConfluentKafkaClient(NOBODY)))
    producer = client.producer("x")
    assert producer.transactional_id == "x"
    producer.close()


def test_configuration_gives_servers_limits_and_timeout(tmp_path):
    (tmp_path / "s.avsc").write_text(json.dumps({"type": "record", "fields": [{"name": "k"}]}))
    (tmp_path / "c.yaml").write_text(
        "table: {name: t, path: ./t, record_key: [k], schema: s.avsc}\ninput: {topics: [a]}\n"
        "kafka: {bootstrap.servers: embedded, client.rack: r1}\nstate: {path: ./state}\n"
        "limits: {message_bytes: 8MiB, transaction_timeout: 4s}\n"
    )
    config = load_config(tmp_path / "c.yaml", {})
    with pytest.raises(KafkaConfigError):
        ConfluentKafkaClient.from_config(config)
    settings = ConfluentKafkaClient.from_config(config, "127.0.0.1:1")._settings.transactional_producer("x")
    assert settings["message.max.bytes"] == 8 * 2**20
    assert settings["transaction.timeout.ms"] == 4_000
    assert settings["socket.timeout.ms"] == 2_000
    assert (settings["bootstrap.servers"], settings["client.rack"]) == ("127.0.0.1:1", "r1")


def poll_until_it_raises(reader):
    for _ in range(20):
        assert reader.poll(1, 0.1) == []


def test_absent_broker_is_unavailable_within_the_deadline():
    client = ConfluentKafkaClient(NOBODY)
    producer = client.producer("x")
    with pytest.raises(KafkaUnavailableError):
        producer.init(0.4)
    producer.close()
    reader = client.partition_reader()
    reader.assign({})
    with pytest.raises(KafkaUnavailableError):
        poll_until_it_raises(reader)
    reader.close()


@pytest.mark.parametrize(
    ("facility", "line", "losses"),
    [
        ("FAIL", "broker:1/1: Disconnected (after 1ms in state UP)", 1),
        ("REQTMOUT", "broker:1/1: Timed out EndTxnRequest in flight (after 5000ms)", 1),
        ("REQTMOUT", "broker:1/1: 1 requests timed out", 1),
        ("GETPID", "Failed to acquire PID", 0),
        ("FAIL", "broker:1/1: Connection closed", 1),
    ],
)
def test_lost_connections_are_counted(facility, line, losses):
    log = ConnectionLog("x")
    log.log(40, "%s [%s] %s", facility, "handle", line)
    assert log.losses == losses


def test_lines_that_are_alike_are_forwarded_once_with_their_number(caplog: pytest.LogCaptureFixture):
    clock = ManualClock()
    repeats = Repeats(clock)
    logs = [ConnectionLog("a", repeats), ConnectionLog("b", repeats)]
    with caplog.at_level("DEBUG"):
        for number in range(500):
            line = f"[thrd:h:9/1]: Connect to ipv4#1.2.3.4:9 failed: Connection refused (after {number}ms)"
            logs[number % 2].log(40, "%s", "FAIL", "handle", line)
            clock.advance(0.1)
        logs[0].log(40, "%s", "FAIL", "handle", "another matter")
    said = [each.getMessage() for each in caplog.records]
    assert len(said) == 3
    assert "Connection refused (after 0ms)" in said[0]
    assert said[1].endswith("(299 lines like this one since the last)")
    assert "another matter" in said[2]


def test_topic_partition_orders_by_topic_then_number():
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 2), TopicPartition("a", 1)])[0] == ("a", 1)
