"""Batches that exist: named by the ledger, whole and unchanged, or the reader stops."""

from __future__ import annotations

import zlib

import pytest

from tests.unit.ledger_client.memory_cluster import DATA, MemoryCluster
from tidemark.epoch_protocol.batches import BatchHeader
from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.epoch_protocol.errors import IncompleteRangeError, UnknownEntryError
from tidemark.ledger_client.named_batches import NamedRange, collect_named, covering_range
from tidemark.stream_runtime.kafka.ports import Message, OffsetRange


class Written:
    """Batches of several transactions, mixed, and what their entries say of them."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self._offsets: dict[str, list[int]] = {}

    def batch(self, nonce: str, *values: int, sequence: int | None = None) -> None:
        offsets = self._offsets.setdefault(nonce, [])
        number = len(offsets) if sequence is None else sequence
        offsets.append(self.cluster.batch(nonce, number, list(values)))

    def messages(self) -> list[Message]:
        reader = self.cluster.client.partition_reader()
        reader.assign({DATA: 0})
        return reader.poll(1_000, 0.0)

    def named(self, nonce: str, order: int, **changed: int) -> NamedRange:
        found = [m for m in self.messages() if m.offset in self._offsets[nonce]]
        checksum, rows = 0, 0
        for message in found:
            checksum = zlib.crc32(message.value or b"", checksum)
            rows += int(dict(message.headers)["tm-rows"])
        facts = {
            "first": found[0].offset, "last": found[-1].offset,
            "batches": len(found), "records": rows, "checksum": checksum,
        }  # fmt: skip
        return NamedRange(nonce, order, Produced(Topic.DATA, 0, **{**facts, **changed}))

    def values(self, *ranges: NamedRange) -> list[int]:
        batches = collect_named(self.messages(), ranges)
        return [value for each in batches for value in each.batch.column("v").to_pylist()]


@pytest.fixture
def written() -> Written:
    made = Written()
    made.batch("b", 20)
    made.batch("a", 10, 11)
    made.batch("torn", 99)
    made.batch("b", 21, 22)
    made.batch("a", 12)
    return made


def test_batches_come_in_ledger_order_and_sequence_whatever_lies_between(written: Written) -> None:
    a, b = written.named("a", order=0), written.named("b", order=1)
    assert written.values(b, a) == [10, 11, 12, 20, 21, 22]
    assert written.values(b) == [20, 21, 22]
    assert covering_range(DATA, [a, b]) == OffsetRange(DATA, 0, 4)


@pytest.mark.parametrize(
    "changed",
    [{"batches": 3}, {"batches": 1}, {"records": 4}, {"checksum": 1}, {"last": 1}, {"first": 2}],
    ids=str,
)
def test_what_contradicts_the_entry_stops_the_reader(written: Written, changed: dict[str, int]) -> None:
    with pytest.raises(IncompleteRangeError, match="torn or lost"):
        written.values(written.named("a", 0, **changed))


def test_a_gap_and_a_repeat_in_the_sequence_stop_the_reader() -> None:
    for sequence in (0, 2):
        written = Written()
        written.batch("a", 1)
        written.batch("a", 2, sequence=sequence)
        with pytest.raises(IncompleteRangeError):
            written.values(written.named("a", 0))


def test_a_transaction_without_any_batch_stops_the_reader(written: Written) -> None:
    lost = NamedRange("lost", 0, Produced(Topic.DATA, 0, 0, 4, 1, 1, 0))
    with pytest.raises(IncompleteRangeError, match="found 0"):
        written.values(lost)


def test_a_message_that_is_no_batch_is_an_error(written: Written) -> None:
    a = written.named("a", 0)
    offset = written.cluster.broker.produce(DATA, None, b"x", ())
    with pytest.raises(
        UnknownEntryError, match=rf"t\.data\[0\] offset {offset}: not a Tidemark batch.*Run the"
    ):
        collect_named(written.messages(), [a])


def test_a_batch_whose_rows_cannot_be_read_is_named_by_its_place() -> None:
    written = Written()
    written.batch("a", 10)
    header = BatchHeader("a", 1, 1, "s").encode()
    offset = written.cluster.broker.produce(DATA, None, b"no Arrow stream", header)
    written._offsets["a"].append(offset)
    with pytest.raises(UnknownEntryError, match=rf"t\.data\[0\] offset {offset}: .*Arrow stream.*new-ledger"):
        written.values(written.named("a", 0))
