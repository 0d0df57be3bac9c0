"""Finds the batches that counting entries name among the messages of a topic-partition.

A topic-partition may also hold batches of torn or uncounted transactions, and batches of other transactions
between two batches of one. The nonce in the headers tells which batches belong together; the ledger tells
which transactions count. When there are fewer batches than an entry names, their sequence has a gap, or the
checksum differs, the reader stops with an error (ARCHITECTURE.md, "What counts").
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidemark.epoch_protocol.batches import BatchHeader
from tidemark.epoch_protocol.entries import Produced
from tidemark.epoch_protocol.errors import IncompleteRangeError
from tidemark.ledger_client.own_messages import header_of, rows_of
from tidemark.stream_runtime.kafka.ports import Message, OffsetRange, TopicPartition


class NamedRange(NamedTuple):
    """What one counting transaction produced into one topic-partition.

    ``order`` is the transaction's place in the ledger order.
    """

    nonce: str
    order: int
    produced: Produced


class NamedBatch(NamedTuple):
    """A batch of a counting transaction. Sorted by (order, sequence), rows are in arrival order."""

    order: int
    sequence: int
    offset: int
    batch: pa.RecordBatch


def covering_range(topic_partition: TopicPartition, ranges: Sequence[NamedRange]) -> OffsetRange:
    """The one offset range that covers all ``ranges``, which lie close together."""
    return OffsetRange(
        topic_partition,
        min(named.produced.first for named in ranges),
        max(named.produced.last for named in ranges),
    )


def collect_named(messages: Iterable[Message], ranges: Sequence[NamedRange]) -> list[NamedBatch]:
    """The batches of ``ranges`` among the messages, sorted by (order, sequence).

    Raises IncompleteRangeError when a range is not there in full and unchanged, and UnknownEntryError for a
    message that cannot be read. Both errors name topic, partition and offset.
    """
    by_nonce = {named.nonce: named for named in ranges}
    received: dict[str, list[tuple[BatchHeader, Message]]] = {nonce: [] for nonce in by_nonce}
    for message in messages:
        header = header_of(message)
        if header.nonce in received:
            received[header.nonce].append((header, message))
    batches: list[NamedBatch] = []
    for named in sorted(ranges, key=lambda n: n.order):
        batches += _checked(named, received[named.nonce])
    return batches


def _checked(named: NamedRange, received: list[tuple[BatchHeader, Message]]) -> list[NamedBatch]:
    produced = named.produced
    within = [(h, m) for h, m in received if produced.first <= m.offset <= produced.last]
    checksum = 0
    for _, message in within:
        checksum = zlib.crc32(message.value or b"", checksum)
    complete = (
        [h.sequence for h, _ in within] == list(range(produced.batches))
        and sum(h.rows for h, _ in within) == produced.records
        and checksum == produced.checksum
    )
    if not complete:
        raise IncompleteRangeError(
            f"transaction {named.nonce} names {produced.batches} batches with {produced.records} rows at "
            f"offsets {produced.first}..{produced.last} of {produced.topic.value}[{produced.partition}], "
            f"found {len(within)} with {sum(h.rows for h, _ in within)}: torn or lost; the coordinator must "
            "rewind"
        )
    return [NamedBatch(named.order, h.sequence, m.offset, rows_of(m)) for h, m in within]
