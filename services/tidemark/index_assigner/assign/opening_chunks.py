"""How many transactions of a former owner are read at once when a lane is opened.

Their rows are in memory together: as messages, then as batches. An entry of the ledger says how many rows a
transaction has in the lane, but not their bytes: its own are those of all lanes, and mostly of the rows for
the writers. So the size is what the last rows that were read took for each row, and never more than four
times the mean of the entry's rows. Example: a transaction of 16 MiB has 1 000 of its 32 000 rows in the
lane's index, so they take 2 MiB at most, and are believed to take 60 KB once such rows were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import inf
from typing import Final

import pyarrow as pa

from tidemark.epoch_protocol.state import CountedTagged

_ROWS_MAX: Final = 200_000
_BYTES_MAX: Final = 16 << 20
# What they may take where all of them have wider rows than those before.
_SURPRISE_MAX: Final = 64 << 20
# Rows of the index are narrower than those for the writers, but for wide keys and many columns.
_WIDER: Final = 4


class OpeningChunks:
    """The chunks of one lane. A transaction that is larger than a chunk is alone in one."""

    def __init__(self) -> None:
        self._row_bytes = inf

    def of(
        self, tagged: Sequence[CountedTagged], rows_of: Callable[[CountedTagged], int]
    ) -> Iterator[list[CountedTagged]]:
        """Yields the transactions that changed the lane's index, in order. ``rows_of``: their rows in the
        lane. Call `was_read` before the next chunk.
        """
        chunk, rows, size, possible = list[CountedTagged](), 0, 0.0, 0
        for counted in tagged:
            if not (more := rows_of(counted)):
                continue
            most = _at_most(counted, more)
            over = rows + more > _ROWS_MAX or possible + most > _SURPRISE_MAX
            if chunk and (over or size + self._size(more, most) > _BYTES_MAX):
                yield chunk
                chunk, rows, size, possible = [], 0, 0.0, 0
            chunk.append(counted)
            rows, size, possible = rows + more, size + self._size(more, most), possible + most
        if chunk:
            yield chunk

    def _size(self, rows: int, most: int) -> float:
        return min(float(most), rows * self._row_bytes)

    def was_read(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Takes note of the rows of a chunk. Narrow rows after wide ones are believed bit by bit."""
        counted = [(batch.num_rows, batch.nbytes) for batch in batches]
        rows = sum(count for count, _ in counted)
        if rows:
            row_bytes = sum(size for _, size in counted) / rows
            former = self._row_bytes / 2 if self._row_bytes < inf else 0.0
            self._row_bytes = max(row_bytes, former)


def _at_most(counted: CountedTagged, rows: int) -> int:
    """Bytes that so many of the transaction's rows take at most."""
    entry = counted.entry
    of_all = max(sum(produced.records for produced in entry.produced), rows)
    return min(entry.bytes, _WIDER * entry.bytes * rows // of_all)
