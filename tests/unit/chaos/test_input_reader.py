"""The campaign's reader of the input topic, with a client that loses the topic."""

from __future__ import annotations

import json

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tests.chaos import events
from tests.chaos.events import InputReader, decode_in_partition
from tests.input_model import DELETE_FIELD, Delete, Upsert


class Client:
    """The first one knows no partition, and never will."""

    made: list[Client]

    def __init__(self, _: object) -> None:
        self.made.append(self)
        self.closed = False
        self.lanes: list[TopicPartition] = []

    def assign(self, lanes: list[TopicPartition]) -> None:
        self.lanes = lanes

    def get_watermark_offsets(self, lane: TopicPartition, timeout: float) -> tuple[int, int]:
        if self is self.made[0]:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, 7

    def close(self) -> None:
        self.closed = True


def test_a_client_that_lost_the_topic_is_made_anew(monkeypatch):
    monkeypatch.setattr(Client, "made", [], raising=False)
    monkeypatch.setattr(events, "Consumer", Client)
    monkeypatch.setattr(events, "_POLL_S", 0.0)
    reader = InputReader("nowhere:1", "input", 2)
    reader._next[1] = 5
    assert reader.ends(60.0) == {0: 7, 1: 7}
    first, second = Client.made
    assert (first.closed, second.closed) == (True, False)
    assert [each.offset for each in second.lanes] == [OFFSET_BEGINNING, 5]


def test_rows_of_a_partitioned_index_are_known_by_partition_and_key() -> None:
    row = {"id": "k1", "region": "day-1", "ts": 5}
    assert decode_in_partition(b"k1", json.dumps(row).encode()) == Upsert({**row, "id": "day-1|k1"})
    gone = {**row, DELETE_FIELD: True}
    assert decode_in_partition(b"k1", json.dumps(gone).encode()) == Delete("day-1|k1", 5, typed=True)
    del gone["region"]
    assert decode_in_partition(b"k1", json.dumps(gone).encode()) is None
    assert decode_in_partition(b"k1", None) is None
    assert decode_in_partition(b"k1", b"{ not json") is None
