"""What log files say about a file group, in bounded memory: collected as one `LogContent`, or divided by keys
among files on disk.

Contents are added oldest first, and reduced to one change per key whenever they exceed the bound: a row that
was updated a thousand times takes the place of one. Reducing a part first and the whole later gives the same
as reducing the whole. Rows that hold some columns only are not reduced, because the versions before a row
fill its gaps (`file_group/partial_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.file_group.changes import Changes
from tidemark.hudi_format.file_group.log_blocks import LogContent
from tidemark.hudi_format.key_digest import key_hashes
from tidemark.hudi_format.ordering import Int64Array
from tidemark.hudi_format.table_config import MergeMode

PARTS: Final = 16
_PART_BITS: Final = 4
_HAS: Final = "__has"
# What a content takes beside its rows: the objects of a table and its columns.
_CONTENT_BYTES: Final = 16 << 10
_CHANGES: Final = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("ordering", pa.int64()),
        pa.field("is_delete", pa.bool_()),
        pa.field("unconditional", pa.bool_()),
        pa.field("is_row", pa.bool_()),
    ]
)


class LogCollector:
    """Collects contents with the rows' `columns`. `is_full` says that they do not fit."""

    def __init__(self, columns: pa.Schema, mode: MergeMode, held_bytes: int) -> None:
        self._columns, self._mode, self._limit = columns, mode, held_bytes
        self._contents: list[LogContent] = []
        self._bytes = 0

    def add(self, content: LogContent) -> bool:
        """Adds a newer content; whether more can be added. If not, `take` what is there."""
        self._contents.append(content)
        self._bytes += _size(content)
        if self._bytes <= self._limit:
            return True
        whole = self._reduced()
        self._contents, self._bytes = [whole], _size(whole)
        return self._bytes <= self._limit // 2

    def take(self) -> LogContent:
        """What was collected, as one content; afterwards nothing is."""
        whole = LogContent.concat(self._contents, self._columns)
        self._contents, self._bytes = [], 0
        return whole

    def _reduced(self) -> LogContent:
        whole = LogContent.concat(self._contents, self._columns)
        if whole.has is not None:
            return whole
        changes = whole.changes.reduce(self._mode)
        return _of_changes(whole, changes)


class SpilledLogs:
    """Contents on disk, each key's in one of `PARTS` parts, in their order."""

    def __init__(self, folder: Path, columns: pa.Schema, depth: int) -> None:
        self._columns, self._depth = columns, depth
        stored = pa.schema([*(field.with_nullable(True) for field in columns), pa.field(_HAS, pa.binary())])
        self._rows = [PartFile(folder / f"rows-{number}", stored) for number in range(PARTS)]
        self._changes = [PartFile(folder / f"changes-{number}", _CHANGES) for number in range(PARTS)]

    def add(self, content: LogContent) -> None:
        """Appends a newer content to the parts of its keys."""
        for number, positions in enumerate(positions_of_parts(content.changes.keys, self._depth)):
            if not len(positions):
                continue
            part = _of_changes(content, content.changes.take(positions))
            changes = part.changes
            columns = [
                changes.keys.cast(pa.string()),
                changes.ordering,
                changes.is_delete,
                changes.unconditional,
                changes.row >= 0,
            ]
            self._changes[number].write(pa.table([pa.array(column) for column in columns], schema=_CHANGES))
            has = pa.nulls(part.rows.num_rows, pa.binary()) if part.has is None else _packed(part.has)
            columns_of_rows = [*part.rows.columns, pa.chunked_array([has])]
            self._rows[number].write(pa.table(columns_of_rows, schema=self._rows[number].schema))

    def part(self, number: int) -> Iterator[LogContent]:
        """The contents of one part, oldest first. Its files are gone afterwards."""
        pairs = zip(self._rows[number].tables(), self._changes[number].tables(), strict=True)
        for stored, changes in pairs:
            rows = pa.table(stored.columns[:-1], schema=self._columns)
            is_row = _bools(changes, "is_row")
            # Rows are stored in the order of the changes that have one: [True, False, True] gives 0, -1, 1.
            row = np.where(is_row, np.cumsum(is_row) - 1, -1).astype(np.int64)
            yield LogContent(
                rows,
                Changes(
                    _one(changes, "key"),
                    np.asarray(_one(changes, "ordering")).astype(np.int64),
                    _bools(changes, "is_delete"),
                    _bools(changes, "unconditional"),
                    row,
                ),
                has=_unpacked(_one(stored, _HAS), len(self._columns)),
            )


class PartFile:
    """Tables of one schema on disk, one after the other: written first, then read once."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.schema = schema
        self._path = path
        self._file: Any = None
        self._writer: Any = None

    def write(self, rows: pa.Table) -> None:
        """Appends a table. Its chunks become one, so that it is read back as one."""
        if self._writer is None:
            self._file = pa.OSFile(str(self._path), "wb")
            options = pa.ipc.IpcWriteOptions(compression="lz4")
            self._writer = pa.ipc.new_stream(self._file, self.schema, options=options)
        batches = rows.combine_chunks().to_batches()
        empty = pa.RecordBatch.from_pylist([], self.schema)
        self._writer.write_batch(batches[0] if batches else empty)

    def tables(self) -> Iterator[pa.Table]:
        """The tables in their order. The file is gone afterwards."""
        if self._writer is None:
            return
        self._writer.close()
        self._file.close()
        with pa.OSFile(str(self._path), "rb") as file, pa.ipc.open_stream(file) as reader:
            for batch in reader:
                yield pa.Table.from_batches([batch], self.schema)
        self._path.unlink()


def positions_of_parts(keys: pa.Array | pa.ChunkedArray, depth: int) -> list[Int64Array]:
    """Per part the positions of its keys, ascending. Parts of parts (`depth` 1, 2, …) are divided by other
    bits of the keys' hashes.

    A stable sort by part puts the positions of each part next to each other: parts 1, 0, 1 of three keys give
    the order 1, 0, 2, cut behind its first position: part 0 has position 1, part 1 has 0 and 2.
    """
    bits = key_hashes(keys) >> np.uint64(depth * _PART_BITS)
    part = (bits & np.uint64(PARTS - 1)).astype(np.int64)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(1, PARTS))
    return np.split(order, ends)


def _of_changes(content: LogContent, changes: Changes) -> LogContent:
    """The content with these changes of it alone, and with their rows alone.

    The rows are numbered anew: changes with the rows 7, -1, 9 get the rows 0, -1, 1.
    """
    is_row = changes.row >= 0
    positions = changes.row[is_row]
    row = np.where(is_row, np.cumsum(is_row) - 1, -1).astype(np.int64)
    return LogContent(
        content.rows.take(pa.array(positions)),
        Changes(changes.keys, changes.ordering, changes.is_delete, changes.unconditional, row),
        has=None if content.has is None else content.has[positions],
    )


def _size(content: LogContent) -> int:
    has = 0 if content.has is None else content.has.size
    return _CONTENT_BYTES + int(content.rows.nbytes) + content.changes.nbytes + has


def _packed(has: npt.NDArray[np.bool_]) -> pa.Array:
    """Per row a bit for each column, in whole bytes: True, False, True is the byte 0xA0."""
    return pa.array([row.tobytes() for row in np.packbits(has, axis=1)], pa.binary())


def _unpacked(stored: pa.Array, columns: int) -> npt.NDArray[np.bool_] | None:
    if stored.null_count or not len(stored):
        return None
    rows = np.stack([np.frombuffer(packed, np.uint8) for packed in stored.to_pylist()])
    return np.unpackbits(rows, axis=1)[:, :columns].astype(np.bool_)


def _one(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _bools(rows: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(_one(rows, name)).astype(np.bool_)
