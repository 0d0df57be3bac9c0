"""Keyed rows of a batch of input records: splitting the batch into parts that are decoded at a time, by the
memory that they will take, and joining the parts' rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.batches import encode_batch
from tidemark.epoch_protocol.messages import with_own_dictionaries
from tidemark.record_formats.decoded_memory import TOGETHER_MAX, memory_max, parts_within
from tidemark.record_formats.decoder import DecodedRecords, Int64Array, RecordDecoder, merged_positions
from tidemark.record_formats.refusals import Refusal
from tidemark.stream_runtime.kafka.ports import Message

Int32Array = npt.NDArray[np.int32]
PlacedRows = tuple[pa.RecordBatch, Int64Array]
"""Rows, and per row the position of its record among the records given."""
BYTES_AT_ONCE: Final = 4 << 20
"""About how many bytes of keys and values are decoded at a time."""


@dataclass(frozen=True)
class KeyedRows:
    """``rows`` are in order of arrival. ``lanes``, ``positions``: per row its lane, and the position of its
    record among the records given. ``refused``: the records that became no row, by position.
    """

    rows: pa.RecordBatch
    lanes: Int32Array
    positions: Int64Array
    refused: list[Refusal]
    passed_over: int = 0
    """Number of records that are about no row (PostgreSQL's logical messages): neither rows nor dead
    letters.
    """
    dropped: Mapping[str, Int64Array] = field(default_factory=dict)
    """Name of a field that the table's schema lacks -> positions of the records that were taken without it.
    """
    records: int = 0
    """How many of the records given were keyed, from the first on; the others are to be given again."""


def chunks(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Half-open ranges of positions with at most `BYTES_AT_ONCE` of keys and values, or one larger record.

    Yields (0, 0) when there are no messages.
    """
    sizes = np.fromiter(
        (len(message.value or b"") + len(message.key or b"") for message in messages), np.int64, len(messages)
    )
    # The running sum makes each range one binary search. With a limit of 5, sizes 3, 2, 4 have ends 3, 5, 9:
    # the first range ends before the first end above 0 + 5, so it is (0, 2); the next one begins at 2.
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
    """The part with positions of the whole batch; the part begins at position ``by`` of it."""
    if not by:
        return keyed
    refused = [refusal._replace(position=refusal.position + by) for refusal in keyed.refused]
    dropped = {name: at + by for name, at in keyed.dropped.items()}
    return replace(keyed, positions=keyed.positions + by, refused=refused, dropped=dropped)


def joined(parts: Sequence[KeyedRows]) -> KeyedRows:
    """Joins the parts of one batch, given in order."""
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
    """Row -> its size in bytes, of rows that take more than ``most`` bytes as a message of their own.

    Ranges of rows are halved until a range is small enough, or a single row. So a batch without large rows
    costs one look at the size of its columns, and a single large row among 1000 about 20.
    """
    large: dict[int, int] = {}
    encoded = [at for at, field in enumerate(rows.schema) if pa.types.is_dictionary(field.type)]
    plain = rows.select([at for at in range(rows.num_columns) if at not in encoded])
    # The dictionary of a part is the whole batch's: it is counted by its longest text, which one row may
    # have.
    beside = sum(_longest(rows.column(at).dictionary) for at in encoded)
    parts = [(0, rows.num_rows)]
    while parts:
        first, count = parts.pop()
        # A message has more bytes than its columns. So rows near the limit are encoded to know their size.
        if not count or plain.slice(first, count).nbytes + beside <= most // 2:
            continue
        if count > 1:
            parts += [(first, count // 2), (first + count // 2, count - count // 2)]
            continue
        row = with_own_dictionaries(rows.slice(first, 1))
        size = row.nbytes if row.nbytes > 2 * most else encode_batch(row).size
        if size > most:
            large[first] = size
    return dict(sorted(large.items()))


def _longest(texts: pa.Array) -> int:
    return pc.max(pc.binary_length(texts)).as_py() or 0


def of_taken(dropped: Mapping[str, Int64Array], refused: Sequence[Refusal]) -> dict[str, Int64Array]:
    """``dropped`` without records that were refused: their dead letters keep all fields."""
    if not dropped:
        return {}
    refused_rows = np.fromiter((refusal.position for refusal in refused), np.int64, len(refused))
    kept = {name: at[~np.isin(at, refused_rows)] for name, at in dropped.items()}
    return {name: at for name, at in kept.items() if len(at)}


def in_arrival_order(parts: list[PlacedRows]) -> PlacedRows:
    """Joins rows of one batch that were made separately (upserts, deletes) in the order of their records."""
    filled = [part for part in parts if part[0].num_rows] or parts[:1]
    if len(filled) == 1:
        return filled[0]
    # Sorting the positions gives the rows' order: upserts at positions [0, 2] and a delete at [1] are
    # joined to positions [0, 2, 1], whose order [0, 2, 1] takes the rows as record 0, record 1, record 2.
    positions = np.concatenate([at for _, at in filled])
    order = np.argsort(positions, kind="stable")
    table = pa.Table.from_batches([rows for rows, _ in filled]).unify_dictionaries().combine_chunks()
    rows = table.take(pa.array(order)).combine_chunks().to_batches()[0]
    return rows, positions[order]


class DecodeParts:
    """Splits batches of one table. Values above ``record_bytes_max`` are never decoded, so they count as
    empty.
    """

    def __init__(self, decoder: RecordDecoder, record_bytes_max: int) -> None:
        self._decoder = decoder
        self._record_bytes_max = record_bytes_max

    def ranges(self, messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
        """Yields half-open ranges of positions, in order, each to be decoded at a time."""
        for first, after in chunks(messages):
            if after - first <= 1:
                yield first, after
                continue
            memory = self._memory(messages[first:after], TOGETHER_MAX)
            for start, end in parts_within(memory, TOGETHER_MAX):
                yield first + start, first + end

    def why_too_large(self, message: Message) -> str | None:
        """Why a record takes more memory once decoded than one record may; None when it does not.

        To be asked of records that `ranges` put into a part of their own: such a record has no room beside
        others.
        """
        most = memory_max(self._record_bytes_max)
        taken = int(self._memory([message], most)[0])
        if taken <= most:
            return None
        return (
            f"the value has {len(message.value or b'')} bytes and may take {taken} bytes of memory once it "
            f"is decoded, a record may take {most}: it holds very many small values"
        )

    def _memory(self, messages: Sequence[Message], most: int) -> Int64Array:
        values = [message.value or b"" for message in messages]
        small = [value if len(value) <= self._record_bytes_max else b"" for value in values]
        try:
            return self._decoder.memory(small, most)
        except Exception:
            # Parsers may raise errors of any class for bytes from outside. Each record then counts as
            # large, so it is decoded by itself, and the error leads to the record that caused it.
            if len(messages) == 1:
                raise
            return np.full(len(messages), TOGETHER_MAX, np.int64)


def repeated_deletes(messages: Sequence[Message], empty: Int64Array, known: dict[int, int]) -> dict[int, int]:
    """Position of each null value right behind the delete of its key -> that same delete's ordering value."""
    repeated = {}
    for position in empty.tolist():
        if position - 1 in known:
            before, this = messages[position - 1], messages[position]
            if before.topic_partition == this.topic_partition and before.key == this.key:
                repeated[position] = known[position - 1]
    return repeated


def null_values_behind(messages: Sequence[Message], empty: Int64Array, decoded: DecodedRecords) -> Int64Array:
    """The positions of those null values that are right behind the delete of their key in this batch."""
    deletes = [*decoded.positions[decoded.deletes].tolist(), *decoded.by_kafka_key.positions.tolist()]
    return np.array(sorted(repeated_deletes(messages, empty, dict.fromkeys(deletes, 0))), np.int64)
