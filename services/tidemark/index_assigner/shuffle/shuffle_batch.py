"""Encodes keyed rows as messages for the lanes of ``<table>.keyed``. Pure functions on columns.

Rows of one lane keep their order of arrival, within a message and from one message to the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from tidemark.epoch_protocol.entries import Topic
from tidemark.epoch_protocol.messages import EncodedBatch, by_partition, message_values, numbered
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.record_formats.decoder import Int64Array
from tidemark.record_formats.refusals import DeadLetterReason, Refusal
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import TopicPartition

MESSAGE_OVERHEAD_BYTES: Final = 1024
"""Room in a message for Kafka's own fields and our headers."""


@dataclass
class EncodedLanes:
    """Messages lane by lane, and refusals of the records that fit into no message."""

    batches: list[EncodedBatch] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def encode_lanes(keyed: KeyedRows, batch_bytes: int, message_bytes: int) -> EncodedLanes:
    """Splits the rows by lane and into messages of about ``batch_bytes``, none above ``message_bytes``."""
    encoded = EncodedLanes()
    order, lanes = by_partition(keyed.lanes)
    in_order, positions = keyed.rows.take(pa.array(order)), keyed.positions[order]
    for lane, start, end in lanes:
        records = positions[start:end]

        def refuse(position: int, size: int, records: Int64Array = records) -> None:
            detail = f"the record takes {size} bytes as a row, limits.message_bytes is {message_bytes}"
            encoded.refused.append(Refusal(int(records[position]), DeadLetterReason.RECORD_TOO_LARGE, detail))

        values = message_values(
            in_order.slice(start, end - start), batch_bytes, message_bytes - MESSAGE_OVERHEAD_BYTES, refuse
        )
        encoded.batches += [EncodedBatch(Topic.KEYED, lane, value, rows) for rows, value in values]
    return encoded


def keyed_messages(
    batches: Sequence[EncodedBatch], topic: str, nonce: str, schema_id: str
) -> list[OutgoingMessage]:
    """The batches with their headers, numbered per lane from 0."""
    headers = numbered(batches, nonce, schema_id)
    return [
        OutgoingMessage(TopicPartition(topic, batch.partition), batch.value, None, header.encode())
        for batch, header in zip(batches, headers, strict=True)
    ]
