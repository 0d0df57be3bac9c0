"""Encodes keyed rows as messages for the lanes of ``<table>.keyed``. Pure functions on columns.

Rows of one lane keep their order of arrival, within a message and from one message to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.epoch_protocol.batches import BatchHeader, chained_checksum, encode_batch
from tidemark.epoch_protocol.entries import Produced, Topic
from tidemark.index_assigner.shuffle.keyed_parts import Int32Array, KeyedRows, with_own_dictionaries
from tidemark.record_formats.decoder import Int64Array
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import TopicPartition

MESSAGE_OVERHEAD_BYTES: Final = 1024
"""Room in a message for Kafka's own fields and our headers."""


class EncodedBatch(NamedTuple):
    """The value of one message, and how many rows it holds."""

    lane: int
    value: bytes
    rows: int


@dataclass
class EncodedLanes:
    """Messages lane by lane, and refusals of the records that fit into no message."""

    batches: list[EncodedBatch] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def encode_lanes(keyed: KeyedRows, batch_bytes: int, message_bytes: int) -> EncodedLanes:
    """Splits the rows by lane and into messages of about ``batch_bytes``, none above ``message_bytes``."""
    encoded = EncodedLanes()
    if not keyed.rows.num_rows:
        return encoded
    # A stable sort makes each lane's rows one slice, still in order of arrival: lanes [1, 0, 1] are taken
    # in the order [1, 0, 2], which gives lane 0 rows [0, 1) and lane 1 rows [1, 3).
    order = np.argsort(keyed.lanes, kind="stable")
    rows = keyed.rows.take(pa.array(order))
    positions = keyed.positions[order]
    lanes, starts = _groups(keyed.lanes[order])
    for lane, start, end in zip(lanes, starts, [*starts[1:], len(order)], strict=True):
        of_lane = rows.slice(start, end - start)
        rows_each = max(of_lane.num_rows * batch_bytes // max(of_lane.nbytes, 1), 1)
        for first in range(0, of_lane.num_rows, rows_each):
            part = of_lane.slice(first, rows_each)
            _encode(int(lane), part, positions[start + first :], message_bytes, encoded)
    return encoded


def _groups(lanes: Int32Array) -> tuple[list[int], list[int]]:
    # A lane starts where it differs from the one before. Lanes are never -1, so the first row starts one as
    # well.
    starts = np.flatnonzero(np.diff(lanes, prepend=-1))
    return lanes[starts].tolist(), starts.tolist()


def _encode(
    lane: int, rows: pa.RecordBatch, positions: Int64Array, message_bytes: int, encoded: EncodedLanes
) -> None:
    """Encodes the rows as one message, or as halves while that is too large.

    ``positions``: of the rows' records, from the first row on.
    """
    value = encode_batch(rows)
    limit = message_bytes - MESSAGE_OVERHEAD_BYTES
    if value.size > limit:
        rows = with_own_dictionaries(rows)
        value = encode_batch(rows)
    if value.size <= limit:
        encoded.batches.append(EncodedBatch(lane, value.to_pybytes(), rows.num_rows))
    elif rows.num_rows == 1:
        detail = f"the record takes {value.size} bytes as a row, limits.message_bytes is {message_bytes}"
        encoded.refused.append(Refusal(int(positions[0]), DeadLetterReason.RECORD_TOO_LARGE, detail))
    else:
        half = rows.num_rows // 2
        _encode(lane, rows.slice(0, half), positions, message_bytes, encoded)
        _encode(lane, rows.slice(half), positions[half:], message_bytes, encoded)


def keyed_messages(
    batches: Iterable[EncodedBatch], topic: str, nonce: str, schema_id: str
) -> list[OutgoingMessage]:
    """The batches with their headers, numbered per lane from 0."""
    sequences: dict[int, int] = {}
    messages = []
    for batch in batches:
        sequence = sequences.get(batch.lane, 0)
        sequences[batch.lane] = sequence + 1
        header = BatchHeader(nonce, sequence, batch.rows, schema_id)
        messages.append(
            OutgoingMessage(TopicPartition(topic, batch.lane), batch.value, None, header.encode())
        )
    return messages


def produced_ranges(batches: Sequence[EncodedBatch], offsets: Sequence[int]) -> list[Produced]:
    """The ranges that the ledger entry names, one per lane; ``offsets``: the batches' delivered ones, in
    order.
    """
    by_lane: dict[int, list[tuple[EncodedBatch, int]]] = {}
    for batch, offset in zip(batches, offsets, strict=True):
        by_lane.setdefault(batch.lane, []).append((batch, offset))
    return [
        Produced(
            topic=Topic.KEYED,
            partition=lane,
            first=parts[0][1],
            last=parts[-1][1],
            batches=len(parts),
            records=sum(batch.rows for batch, _ in parts),
            checksum=chained_checksum(batch.value for batch, _ in parts),
        )
        for lane, parts in sorted(by_lane.items())
    ]
