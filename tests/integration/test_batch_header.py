"""Where a record batch ends, by its header, from brokers with and without TLS and SCRAM; and the end of a
batch of 100 000 records that nobody has the memory to read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from tests.raw_producer import Codec, RawProducer, RawRecord, RefusedBatchError, batch
from tests.secured_kafka import Grant, SecuredKafka
from tidemark.stream_runtime.kafka.confluent import batch_header, batch_probe
from tidemark.stream_runtime.kafka.confluent.batch_header import (
    BatchOffsets,
    HeaderUnavailableError,
    batch_offsets,
)
from tidemark.stream_runtime.kafka.confluent.batch_probe import BatchProbe, Probe
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.confluent.settings import ClientSettings
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka
from tidemark.stream_runtime.platform.java import JavaRuntime

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS = 100_000
MEMORY = 64 << 20
GOOD = batch([RawRecord(b"good")])


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy broker may need longer for an answer than an assigner waits."""
    monkeypatch.setattr(batch_header, "_TIMEOUT_S", 120.0)


def made_topic(
    bootstrap: str, topic: str, *contents: bytes, timestamp_type: str = "CreateTime"
) -> ConfluentKafkaClient:
    """With these batches in its one partition, through a listener that asks nobody who they are."""
    client = ConfluentKafkaClient({"bootstrap.servers": bootstrap})
    admin = client.admin()
    settings = {"max.message.bytes": str(16 << 20), "message.timestamp.type": timestamp_type}
    admin.create_topics([TopicSpec(topic, 1, 1, {**settings, "retention.ms": "-1"})])
    admin.close()
    with RawProducer(bootstrap) as raw:
        for content in contents:
            soon(partial(raw.send, topic, 0, content), RefusedBatchError)
    return client


def soon(action: Callable[[], Any], refused: type[Exception]) -> Any:
    """As soon as the broker knows the topic's leader, or the user."""
    deadline = time.monotonic() + 60.0
    while True:
        try:
            return action()
        except refused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_the_end_of_a_deadly_batch_of_100_000_records_is_one_request(
    kafka: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    ask = BatchProbe.ask

    def counted(self: BatchProbe, offset: int) -> Probe:
        asked.append(offset)
        return ask(self, offset)

    monkeypatch.setattr(batch_probe, "spare_memory_bytes", lambda: MEMORY)
    monkeypatch.setattr(BatchProbe, "ask", counted)
    deadly = batch([RawRecord(b" " * 900)] * RECORDS, Codec.LZ4)
    contents = (GOOD, deadly, GOOD, deadly, GOOD)
    client = made_topic(kafka.bootstrap_servers, "large-batches", *contents)
    place = TopicPartition("large-batches", 0)
    for at in (1, RECORDS // 2, RECORDS):
        assert client.last_of_batch(place, at) == RECORDS, "the good record behind it is not passed over"
    assert client.last_of_batch(place, RECORDS + 2) == 2 * RECORDS + 1
    assert len(asked) == 4


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_the_header_says_first_and_last_offset_whatever_the_codec_and_whoever_sets_times(
    kafka: EmbeddedKafka, timestamp_type: str
) -> None:
    contents = [batch([RawRecord(b"x")] * 7, codec) for codec in Codec]
    topic = f"headers-{timestamp_type}"
    client = made_topic(kafka.bootstrap_servers, topic, *contents, timestamp_type=timestamp_type)
    place, admin = TopicPartition(topic, 0), client.admin()
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    leader = admin.leader(place)
    admin.close()
    for offset in range(7 * len(Codec)):
        first = offset - offset % 7
        assert batch_offsets(settings, leader, place, offset) == BatchOffsets(first, first + 6)
    for lacking in (TopicPartition("nobody", 0), TopicPartition(topic, 5)):
        with pytest.raises(HeaderUnavailableError, match="error 3"):
            batch_offsets(settings, leader, lacking, 0)
    with pytest.raises(HeaderUnavailableError, match="no record batch|error 1"):
        batch_offsets(settings, leader, place, 7 * len(Codec))
    with pytest.raises(HeaderUnavailableError, match="ssl.keystore.location is not supported"):
        batch_offsets({**settings, "ssl.keystore.location": "x"}, leader, place, 0)
    with pytest.raises(HeaderUnavailableError):
        batch_offsets(settings, ("127.0.0.1", 1), place, 0)


def test_over_tls_with_scram(tmp_path: Path, java: JavaRuntime) -> None:
    authority = Authority(tmp_path / "ca")
    own = authority.issue("reader")
    kafka = SecuredKafka(tmp_path / "kafka", java, authority)
    with kafka:
        made_topic(kafka.bootstrap_servers, "secured", GOOD, batch([RawRecord(b"x")] * 50, Codec.ZSTD))
        for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
            user = f"reader,{mechanism[-3:]}="
            kafka.add_user(user, "hush-hush", [Grant("topic", "secured", ("READ",))], mechanism)
            section = {
                "bootstrap.servers": kafka.secured_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": mechanism,
                "sasl.username": user,
                "sasl.password": "hush-hush",
                "ssl.ca.location": str(authority.ca),
                "ssl.certificate.location": str(own.certificate),
                "ssl.key.location": str(own.key),
            }
            settings = ClientSettings(section).one_batch_reader("tidemark-probe")
            header = partial(secured_header, kafka)
            assert soon(partial(header, settings), HeaderUnavailableError) == BatchOffsets(1, 50)
            with pytest.raises(HeaderUnavailableError, match="SASL") as told:
                header({**settings, "sasl.password": "hush-wrong"})
            assert "hush" not in str(told.value)
            with pytest.raises(HeaderUnavailableError, match="GSSAPI is not supported"):
                header({**settings, "sasl.mechanism": "GSSAPI"})


def secured_header(kafka: SecuredKafka, settings: dict[str, Any]) -> BatchOffsets:
    host, port = kafka.secured_servers.split(":")
    return batch_offsets(settings, (host, int(port)), TopicPartition("secured", 0), 20)
