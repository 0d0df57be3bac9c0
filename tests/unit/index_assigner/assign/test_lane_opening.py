"""What a lane's opening reads: what it cannot read is named by its place."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.kafka.readers import MemoryPartitionReader
from tidemark.epoch_protocol.batches import TOMBSTONE_COLUMNS, BatchHeader, encode_batch
from tidemark.epoch_protocol.errors import UnknownEntryError
from tidemark.epoch_protocol.state import FoldState
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.kafka.ports import TopicPartition, TopicSpec

NAMES = TopicNames("orders")
TOMBSTONES = TopicPartition(NAMES.tombstones, 1)
EMPTY = encode_batch(pa.RecordBatch.from_pylist([], schema=TOMBSTONE_COLUMNS)).to_pybytes()
HEADERS = BatchHeader("n", 0, 0, "").encode()


class Loaded:
    """An index that holds nothing and takes what it is given."""

    def __init__(self) -> None:
        self.batches: list[Any] = []

    def open_lane(self, *_: object) -> None: ...

    def tombstones_position(self, _: int) -> int:
        return 0

    def load_tombstones(self, _: int, batches: list[Any], __: int) -> None:
        self.batches += batches


class Rig:
    def __init__(self) -> None:
        clock, self.index = ManualClock(), Loaded()
        self.broker = MemoryBroker(clock, SeededIds(1))
        client = MemoryKafkaClient(self.broker)
        client.admin().create_topics([TopicSpec(name, 2) for name in (NAMES.tombstones, NAMES.index)])
        snapshot: Any = lambda: None  # noqa: E731
        index: Any = self.index
        self.opener = LaneOpener(index, client, NAMES, snapshot, clock, ordered=True)

    def open(self) -> None:
        state = FoldState()
        # A former version kept no ranges: all that lies there counts.
        state.tombstones.whole = False
        self.opener.open([1], state)


def test_tombstones_of_a_former_version_are_loaded() -> None:
    rig = Rig()
    rig.broker.produce(TOMBSTONES, None, EMPTY, HEADERS)
    rig.open()
    assert [batch.num_rows for batch in rig.index.batches] == [0]


@pytest.mark.parametrize(
    ("value", "headers", "words"),
    [(EMPTY, (), "not a Tidemark batch"), (b"no stream", HEADERS, "does not hold an Arrow stream")],
)
def test_a_tombstone_message_that_cannot_be_read_is_named_by_its_place(
    value: bytes, headers: tuple[tuple[str, bytes], ...], words: str
) -> None:
    rig = Rig()
    rig.broker.produce(TOMBSTONES, None, EMPTY, HEADERS)
    rig.broker.produce(TOMBSTONES, None, value, headers)
    with pytest.raises(UnknownEntryError, match=rf"orders\.tombstones\[1\] offset 1: .*{words}.*Run the"):
        rig.open()


def test_tombstones_that_end_while_they_are_looked_for_are_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker deletes them between the look at where the topic starts and the first read."""
    rig = Rig()
    for _ in range(3):
        rig.broker.produce(TOMBSTONES, None, EMPTY, HEADERS)
    poll, polled = MemoryPartitionReader.poll, 0

    def late(self: MemoryPartitionReader, messages: int, timeout_s: float) -> Any:
        nonlocal polled
        polled += 1
        if polled == 1:
            rig.broker.log(TOMBSTONES).delete_below(2)
        return poll(self, messages, timeout_s)

    monkeypatch.setattr(MemoryPartitionReader, "poll", late)
    rig.open()
    assert polled > 1
    assert [batch.num_rows for batch in rig.index.batches] == [0]
