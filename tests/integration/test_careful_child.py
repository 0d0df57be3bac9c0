"""Record batches of every codec that unpack to more than there is memory, read apart from a real broker.

A good record lies in a batch of its own right before and right behind each of them: it must neither be
blamed nor passed over. The child has so little memory that its interpreter cannot even copy a record of
60 MiB.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.raw_producer import Codec, RawProducer, RawRecord, RefusedBatchError, batch
from tidemark.commit_coordinator.offline.adoption import create_table
from tidemark.config import load_config
from tidemark.index_assigner.input import careful_lanes
from tidemark.index_assigner.input.careful_frames import CarefulSettings, Setup
from tidemark.index_assigner.input.careful_lanes import ChildReader, Found
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent import batch_probe
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec
from tidemark.stream_runtime.platform.embedded_kafka import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "deadly-codecs"
MEMORY = 64 << 20
TOO_LARGE = 95 << 20
"""Less than a Kafka client refuses by itself (100 MB)."""
TOO_LARGE_TO_COPY = 60 << 20
BOMBS = [
    (Codec.LZ4, TOO_LARGE),
    (Codec.SNAPPY, TOO_LARGE),
    (Codec.ZSTD, TOO_LARGE),
    (Codec.GZIP, TOO_LARGE_TO_COPY),
]
SCHEMA = '{"type": "record", "name": "t", "fields": [{"name": "id", "type": "string"}]}'


class Input:
    """The topic, a partition a codec: good, good, bomb, good, bomb, good; each a batch of its own."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        (folder / "t.avsc").write_text(SCHEMA)
        file = folder / "t.yaml"
        file.write_text(
            "table: {name: deadly, path: ./w, record_key: [id], schema: t.avsc}\n"
            f"input: {{topics: [{TOPIC}]}}\nstate: {{path: ./state}}\n"
            f"kafka: {{bootstrap.servers: '{kafka.bootstrap_servers}'}}\n"
        )
        self.config = load_config(file, {})
        create_table(self.config, SystemClock())
        self.client = ConfluentKafkaClient.from_config(self.config)
        settings = {"max.message.bytes": str(16 << 20), "retention.ms": "-1"}
        admin = self.client.admin()
        admin.create_topics([TopicSpec(TOPIC, len(BOMBS), 1, settings)])
        admin.close()
        good = batch([RawRecord(b'{"id": "a"}')])
        with RawProducer(kafka.bootstrap_servers) as raw:
            for partition, (codec, size) in enumerate(BOMBS):
                bomb = batch([RawRecord(b" " * size)], codec)
                for content in (good, good, bomb, good, bomb, good):
                    self._send(raw, partition, content)

    def _send(self, raw: RawProducer, partition: int, content: bytes) -> None:
        """As soon as the partition has its leader."""
        deadline = time.monotonic() + 60.0
        while True:
            try:
                raw.send(TOPIC, partition, content)
                return
            except RefusedBatchError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def reader(self) -> ChildReader:
        settings = CarefulSettings(*self.client.careful_settings())
        return ChildReader(Setup(settings, str(self.config.file), 4, 4, 0), 1 << 30)


@pytest.fixture(scope="module")
def source(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Input:
    return Input(kafka, tmp_path_factory.mktemp("deadly"))


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(careful_lanes, "spare_memory_bytes", lambda: MEMORY)
    monkeypatch.setattr(batch_probe, "spare_memory_bytes", lambda: MEMORY)


def read(lanes: ChildReader, place: TopicPartition, first: int) -> tuple[list[int], Found]:
    """The offsets that came out, and how it ended."""
    lanes.start(place, first)
    offsets: list[int] = []
    end = time.monotonic() + 300
    while time.monotonic() < end:
        found = lanes.found()
        if found is None:
            time.sleep(0.02)
        elif found.messages:
            offsets += [each.offset for each in found.messages]
        else:
            return offsets, found
    raise AssertionError(f"{place} has no end within 300 s; {offsets}")


@pytest.mark.parametrize("partition", range(len(BOMBS)), ids=[f"{codec.name}" for codec, _ in BOMBS])
def test_the_batch_is_named_and_skipped_and_no_record_beside_it(source: Input, partition: int) -> None:
    place = TopicPartition(TOPIC, partition)
    lanes = source.reader()
    try:
        # LZ4 ends the child soonest, so what lies right before such a batch is blamed most easily.
        rounds = [(0, [0, 1], 2), (3, [3], 4)]
        for first, good, deadly in rounds if BOMBS[partition][0] is Codec.LZ4 else rounds[:1]:
            offsets, last = read(lanes, place, first)
            assert (offsets, last.is_deadly, last.next) == (good, True, deadly)
            assert source.client.last_of_batch(place, deadly) == deadly
        offsets, last = read(lanes, place, 5)
        assert (offsets, last.is_over, last.next) == ([5], True, 6)
    finally:
        lanes.close()
