"""Keyed rows of a batch of input records, in parts and as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.batches import encode_batch
from tidemark.record_formats.decoder import Int64Array, merged_positions
from tidemark.record_formats.refusals import Refusal
from tidemark.stream_runtime.kafka.ports import Message

Int32Array = npt.NDArray[np.int32]
PlacedRows = tuple[pa.RecordBatch, Int64Array]
"""Rows, and which record of those given each of them is."""
BYTES_AT_ONCE: Final = 4 << 20


@dataclass(frozen=True)
class KeyedRows:
    """``rows`` in order of arrival; per row its lane, and which record of those given it is."""

    rows: pa.RecordBatch
    lanes: Int32Array
    positions: Int64Array
    refused: list[Refusal]
    passed_over: int = 0
    """Records that are about no row (PostgreSQL's logical messages): neither rows nor dead letters."""
    dropped: Mapping[str, Int64Array] = field(default_factory=dict)
    """By the name of a field that the table's schema lacks: positions of records taken without it."""
    records: int = 0
    """How many of the records given these are, from the first on; the others are to be given again."""


def chunks(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Ranges of positions with about `BYTES_AT_ONCE` of keys and values, or one record each."""
    sizes = np.fromiter(
        (len(message.value or b"") + len(message.key or b"") for message in messages), np.int64, len(messages)
    )
    ends = np.cumsum(sizes)
    first = 0
    while first < len(messages):
        taken = int(ends[first - 1]) if first else 0
        after = max(int(np.searchsorted(ends, taken + BYTES_AT_ONCE, side="right")), first + 1)
        yield first, after
        first = after
    if not messages:
        yield 0, 0


def shifted(keyed: KeyedRows, by: int) -> KeyedRows:
    """The rows of a part of a batch that begins at ``by``, with positions in the batch."""
    if not by:
        return keyed
    refused = [each._replace(position=each.position + by) for each in keyed.refused]
    dropped = {name: at + by for name, at in keyed.dropped.items()}
    return replace(keyed, positions=keyed.positions + by, refused=refused, dropped=dropped)


def joined(parts: Sequence[KeyedRows]) -> KeyedRows:
    """The parts of one batch, in order, as one."""
    table = pa.Table.from_batches([part.rows for part in parts]).unify_dictionaries().combine_chunks()
    batches = table.to_batches()
    return KeyedRows(
        batches[0] if batches else parts[0].rows,
        np.concatenate([part.lanes for part in parts]),
        np.concatenate([part.positions for part in parts]),
        [refusal for part in parts for refusal in part.refused],
        sum(part.passed_over for part in parts),
        merged_positions([part.dropped for part in parts]),
    )


def large_rows(rows: pa.RecordBatch, most: int) -> dict[int, int]:
    """Rows that take more than ``most`` bytes as a message of their own, and how many they take."""
    found: dict[int, int] = {}
    encoded = [at for at, each in enumerate(rows.schema) if pa.types.is_dictionary(each.type)]
    plain = rows.select([at for at in range(rows.num_columns) if at not in encoded])
    beside = sum(_longest(rows.column(at).dictionary) for at in encoded)
    parts = [(0, rows.num_rows)]
    while parts:
        first, count = parts.pop()
        # A message has more bytes than its columns: of those near the limit it is made.
        if not count or plain.slice(first, count).nbytes + beside <= most // 2:
            continue
        if count > 1:
            parts += [(first, count // 2), (first + count // 2, count - count // 2)]
            continue
        row = with_own_dictionaries(rows.slice(first, 1))
        size = row.nbytes if row.nbytes > 2 * most else encode_batch(row).size
        if size > most:
            found[first] = size
    return dict(sorted(found.items()))


def _longest(texts: pa.Array) -> int:
    return pc.max(pc.binary_length(texts)).as_py() or 0


def with_own_dictionaries(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without the partitions of others: part of a batch has the dictionaries of the whole one."""
    columns = [
        each.dictionary_decode().dictionary_encode() if pa.types.is_dictionary(each.type) else each
        for each in rows.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def of_taken(dropped: Mapping[str, Int64Array], refused: Sequence[Refusal]) -> dict[str, Int64Array]:
    """Without records that go to the dead letters: nothing of those is dropped."""
    if not dropped:
        return {}
    letters = np.fromiter((refusal.position for refusal in refused), np.int64, len(refused))
    kept = {name: at[~np.isin(at, letters)] for name, at in dropped.items()}
    return {name: at for name, at in kept.items() if len(at)}


def in_arrival_order(parts: list[PlacedRows]) -> PlacedRows:
    """Rows of several kinds of records of one batch as one."""
    filled = [part for part in parts if part[0].num_rows] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    positions = np.concatenate([at for _, at in filled])
    order = np.argsort(positions, kind="stable")
    table = pa.Table.from_batches([rows for rows, _ in filled]).unify_dictionaries().combine_chunks()
    rows = table.take(pa.array(order)).combine_chunks().to_batches()[0]
    return rows, positions[order]


def repeated_deletes(messages: Sequence[Message], empty: Int64Array, known: dict[int, int]) -> dict[int, int]:
    """Null values right behind the delete of their key, with its ordering value: they say the same again."""
    repeated = {}
    for position in empty.tolist():
        if position - 1 in known:
            before, this = messages[position - 1], messages[position]
            if before.topic_partition == this.topic_partition and before.key == this.key:
                repeated[position] = known[position - 1]
    return repeated
