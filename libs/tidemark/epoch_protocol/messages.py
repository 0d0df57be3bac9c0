"""The messages of one transaction: rows become messages of bounded size, numbered by topic-partition, and the
ranges of offsets that the ledger entry names. Both stages of the assigner use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.batches import BatchHeader, chained_checksum, encode_batch
from tidemark.epoch_protocol.entries import Produced, Topic

Int64Array = npt.NDArray[np.int64]


class EncodedBatch(NamedTuple):
    """The value of one message, its topic and partition, and its number of rows."""

    topic: Topic
    partition: int
    value: bytes
    rows: int


class PartitionRange(NamedTuple):
    """The rows of one partition: the half-open range of them in the order of partitions."""

    partition: int
    start: int
    end: int


def by_partition(partitions: npt.NDArray[np.int32]) -> tuple[Int64Array, list[PartitionRange]]:
    """The positions of the rows in the order of their partitions, and the ranges of that order.

    ``partitions``: that of each row, never negative. Rows of one partition stay in their order.
    """
    # A stable sort makes each partition's rows one range: partitions [2, 0, 2] give the order [1, 0, 2] and
    # the ranges (0, 0, 1) and (2, 1, 3).
    order = np.argsort(partitions, kind="stable")
    in_order = partitions[order]
    # A partition starts where it differs from the one before. None is -1, so the first row starts one.
    starts = np.flatnonzero(np.diff(in_order, prepend=-1))
    ends = np.append(starts[1:], len(order))[: len(starts)]
    ranges = zip(in_order[starts].tolist(), starts.tolist(), ends.tolist(), strict=True)
    return order, [PartitionRange(*span) for span in ranges]


def message_values(
    rows: pa.RecordBatch, batch_bytes: int, value_bytes_max: int, too_large: Callable[[int, int], None]
) -> Iterator[tuple[int, bytes]]:
    """Yields (number of rows, value) of messages of about ``batch_bytes``, none above ``value_bytes_max``.

    ``too_large`` is called with the position and the size of a row that fits into no message; such a row is
    left out.
    """
    rows_each = max(rows.num_rows * batch_bytes // max(rows.nbytes, 1), 1)
    for first in range(0, rows.num_rows, rows_each):
        yield from _halved(rows.slice(first, rows_each), first, value_bytes_max, too_large)


def _halved(
    rows: pa.RecordBatch, first: int, value_bytes_max: int, too_large: Callable[[int, int], None]
) -> Iterator[tuple[int, bytes]]:
    """Encodes the rows as one message, or as halves while that is too large. ``first``: their position."""
    value = encode_batch(rows)
    if value.size > value_bytes_max:
        value = encode_batch(with_own_dictionaries(rows))
    if value.size <= value_bytes_max:
        yield rows.num_rows, value.to_pybytes()
    elif rows.num_rows == 1:
        too_large(first, value.size)
    else:
        half = rows.num_rows // 2
        yield from _halved(rows.slice(0, half), first, value_bytes_max, too_large)
        yield from _halved(rows.slice(half), first + half, value_bytes_max, too_large)


def with_own_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with dictionaries of their own values only.

    A slice of a batch keeps the dictionaries of the whole batch, with the partition paths of other rows.
    """
    columns = [
        column.dictionary_decode().dictionary_encode() if pa.types.is_dictionary(column.type) else column
        for column in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def numbered(batches: Iterable[EncodedBatch], nonce: str, schema_id: str) -> Iterator[BatchHeader]:
    """Yields the header of each batch; batches are numbered from 0 within their topic-partition."""
    sequences: dict[tuple[Topic, int], int] = {}
    for batch in batches:
        place = (batch.topic, batch.partition)
        sequence = sequences.get(place, 0)
        sequences[place] = sequence + 1
        yield BatchHeader(nonce, sequence, batch.rows, schema_id)


def produced_ranges(batches: Sequence[EncodedBatch], offsets: Sequence[int]) -> list[Produced]:
    """The ranges that the ledger entry names, one per topic-partition, in the order of their first batch.

    ``offsets``: the delivered offsets of the batches, in their order.
    """
    by_place: dict[tuple[Topic, int], list[tuple[EncodedBatch, int]]] = {}
    for batch, offset in zip(batches, offsets, strict=True):
        by_place.setdefault((batch.topic, batch.partition), []).append((batch, offset))
    return [
        Produced(
            topic=topic,
            partition=partition,
            first=parts[0][1],
            last=parts[-1][1],
            batches=len(parts),
            records=sum(batch.rows for batch, _ in parts),
            checksum=chained_checksum(batch.value for batch, _ in parts),
        )
        for (topic, partition), parts in by_place.items()
    ]
