"""What a lane's opening reads: what it cannot read is named by its place."""

from __future__ import annotations

import threading
from typing import Any

import pyarrow as pa
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from testing.kafka.readers import MemoryPartitionReader, MemoryRangeReader
from tidemark.epoch_protocol.batches import (
    EXACT,
    INDEX_COLUMNS,
    KEY,
    OP,
    SHARD,
    TOMBSTONE_COLUMNS,
    BatchHeader,
    chained_checksum,
    encode_batch,
)
from tidemark.epoch_protocol.entries import Counts, Produced, Topic, TransactionTagged
from tidemark.epoch_protocol.errors import UnknownEntryError
from tidemark.epoch_protocol.state import CountedTagged, FoldState
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.index.errors import IndexStopsError
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
    def __init__(self, stop: threading.Event | None = None) -> None:
        clock, self.index = ManualClock(), Loaded()
        self.broker = MemoryBroker(clock, SeededIds(1))
        client = MemoryKafkaClient(self.broker)
        client.admin().create_topics([TopicSpec(name, 2) for name in (NAMES.tombstones, NAMES.index)])
        snapshot: Any = lambda: None  # noqa: E731
        index: Any = self.index
        self.opener = LaneOpener(index, client, NAMES, snapshot, clock, ordered=True, stop=stop)

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


class Counting(Loaded):
    """``rows``: of each transaction that was loaded, by its offset in the ledger."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, int] = {}

    def load_counted(self, _: int, offset: int, rows: list[pa.RecordBatch], *__: object) -> None:
        self.rows[offset] = sum(batch.num_rows for batch in rows)


class TakenLane(Rig):
    """Lane 1 of a former owner. ``read``: bytes of each read of the index topic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop: threading.Event | None = None) -> None:
        super().__init__(stop)
        self.taken = Counting()
        self.opener._index = self.taken  # type: ignore[assignment]
        self.state, self.read = FoldState(), list[int]()
        self.state.tombstones.whole = True
        real = MemoryRangeReader.read

        def read(reader: MemoryRangeReader, *arguments: Any) -> Any:
            messages = real(reader, *arguments)
            self.read.append(sum(len(message.value or b"") for message in messages))
            return messages

        monkeypatch.setattr(MemoryRangeReader, "read", read)

    def produce(self, key_bytes: int, messages: int = 1, data_bytes: int = 0, other_rows: int = 0) -> None:
        """One transaction, 100 rows a message. ``data_bytes``: of its rows for the writers, and of those of
        other lanes; ``other_rows``: how many these are.
        """
        number = len(self.state.tagged)
        rows = [{KEY: f"{row:0{key_bytes}}", SHARD: 1, EXACT: False, OP: 0} for row in range(100)]
        value = encode_batch(pa.RecordBatch.from_pylist(rows, INDEX_COLUMNS)).to_pybytes()
        partition, nonce = TopicPartition(NAMES.index, 1), f"n{number}"
        offsets = [
            self.broker.produce(partition, None, value, BatchHeader(nonce, sequence, 100, "").encode())
            for sequence in range(messages)
        ]
        checksum = chained_checksum([value] * messages)
        made = Produced(Topic.INDEX, 1, offsets[0], offsets[-1], messages, 100 * messages, checksum)
        size = len(value) * messages + data_bytes
        others = [Produced(Topic.DATA, 0, 0, 0, 1, other_rows, 0)] if other_rows else []
        entry = TransactionTagged(0, nonce, 0, {}, [], [made, *others], Counts(), size, "")
        self.state.tagged.append(CountedTagged(number, entry))

    def open(self) -> None:
        self.opener.open([1], self.state)
        assert list(self.taken.rows) == list(range(len(self.state.tagged)))


def test_wide_rows_of_a_lane_are_read_some_mib_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of 8 KiB: fewer rows than are read at once of narrow ones would be all that the lane has."""
    lane = TakenLane(monkeypatch)
    for _ in range(40):
        lane.produce(10_000)
    lane.open()
    assert sum(lane.read) > 38 << 20
    assert len(lane.read) == 3
    assert max(lane.read) <= 16 << 20


def test_narrow_rows_of_wide_records_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry says how many bytes its transaction has, most of which are the writers'."""
    lane = TakenLane(monkeypatch)
    for _ in range(60):
        lane.produce(20, data_bytes=3 << 20)
    lane.open()
    # Before anything is known of the rows, and from then on.
    assert len(lane.read) == 1 + -(-55 // 21)
    assert set(lane.taken.rows.values()) == {100}


def test_a_lane_with_few_of_many_rows_is_read_in_few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of 16 MiB, of which the lane has a row in three hundred: four of them would be a part."""
    lane = TakenLane(monkeypatch)
    for _ in range(60):
        lane.produce(20, data_bytes=16 << 20, other_rows=32_000)
    lane.open()
    assert len(lane.read) == 1


def test_rows_that_become_wide_all_at_once_are_bounded_by_what_their_entries_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lane = TakenLane(monkeypatch)
    lane.produce(20, data_bytes=16 << 20)
    for _ in range(20):
        lane.produce(10_000, messages=4)
    lane.open()
    assert sum(lane.read) > 76 << 20
    assert max(lane.read) <= 64 << 20
    assert sorted(lane.read)[-2] <= 16 << 20, "once they are known to be wide"


def test_an_opening_ends_between_two_reads_when_the_process_is_told_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = threading.Event()
    lane = TakenLane(monkeypatch, stop)
    for _ in range(40):
        lane.produce(10_000)
    monkeypatch.setattr(Counting, "load_counted", lambda *_: stop.set())
    with pytest.raises(IndexStopsError):
        lane.open()
    assert len(lane.read) == 1
    with pytest.raises(IndexStopsError):
        lane.open()
    assert len(lane.read) == 1
