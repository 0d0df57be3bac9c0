"""Batches that counting entries name, taken out of what a topic-partition holds.

A topic-partition may hold batches of torn or uncounted transactions and, between two batches of one
transaction, batches of others: what belongs together is told by the nonce in the headers, what exists at
all by the ledger. Fewer batches than an entry names, a gap in their sequence or another checksum stops the
reader loudly (ARCHITECTURE.md, "What counts").
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
    """What one counting transaction put into one topic-partition; ``order`` = its place in the ledger."""

    nonce: str
    order: int
    produced: Produced


class NamedBatch(NamedTuple):
    """A batch that exists; rows are in arrival order when sorted by (order, sequence)."""

    order: int
    sequence: int
    offset: int
    batch: pa.RecordBatch


def covering_range(topic_partition: TopicPartition, ranges: Sequence[NamedRange]) -> OffsetRange:
    """The offsets to read for all the ranges at once (they lie close together)."""
    return OffsetRange(
        topic_partition,
        min(named.produced.first for named in ranges),
        max(named.produced.last for named in ranges),
    )


def collect_named(messages: Iterable[Message], ranges: Sequence[NamedRange]) -> list[NamedBatch]:
    """The named batches among the messages, in (order, sequence).

    Raises IncompleteRangeError when any range is not there in full and unchanged, UnknownEntryError for a
    message that cannot be read; both name the place.
    """
    by_nonce = {named.nonce: named for named in ranges}
    found: dict[str, list[tuple[BatchHeader, Message]]] = {nonce: [] for nonce in by_nonce}
    for message in messages:
        header = header_of(message)
        if header.nonce in found:
            found[header.nonce].append((header, message))
    batches: list[NamedBatch] = []
    for named in sorted(ranges, key=lambda n: n.order):
        batches += _checked(named, found[named.nonce])
    return batches


def _checked(named: NamedRange, found: list[tuple[BatchHeader, Message]]) -> list[NamedBatch]:
    produced = named.produced
    within = [(h, m) for h, m in found if produced.first <= m.offset <= produced.last]
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
