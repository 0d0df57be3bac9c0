"""The record index entries of a file slice's live rows, divided by shard.

The entry's instant is that of the slice: which commit inserted a row into its file group is not stored with
the row, and the instant informs people only (METADATA_TABLE.md, section 6.1). Hudi does the same when it
builds an index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.columnar import concat_rows
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.base_file import RECORD_KEY
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.model import RecordLocation, instant_to_ms
from tidemark.hudi_format.ordering import table_ordering
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries

SHARD_BYTES: Final = 2
"""Before each key stands its shard, big-endian: entries of one shard are neighbours once they are sorted."""
_ROWS_AT_ONCE: Final = 200_000


@dataclass(frozen=True)
class SliceEntries:
    """Reads slices of one table. ``shards``: how many the new index has. ``schema``: the table's."""

    storage: Storage
    config: TableConfig
    schema: TableSchema
    shards: int

    def of(self, file_slice: FileSlice) -> Iterator[tuple[int, Entries]]:
        """(shard, its entries) again and again: the slice's live keys behind their shard's number, and the
        values of the index, in no particular order. Holds the keys of one slice in memory.

        Raises FileMissingError (cleaned since it was listed), CorruptFileError, HudiFormatError.
        """
        mode, ordering = table_ordering(self.config, self.schema)
        rows = read_slice(self.storage, file_slice, self.schema, mode, ordering, [RECORD_KEY])
        location = RecordLocation(file_slice.partition_path, file_slice.file_id)
        instant_ms = _instant_ms(file_slice)
        for first in range(0, rows.num_rows, _ROWS_AT_ONCE):
            keys = rows.column(RECORD_KEY).slice(first, _ROWS_AT_ONCE).combine_chunks()
            yield from _by_shard(keys.cast(pa.string()), location, instant_ms, self.shards)


def _by_shard(
    keys: pa.StringArray, location: RecordLocation, instant_ms: int, shards: int
) -> Iterator[tuple[int, Entries]]:
    of_key = record_index_shard(keys, shards)
    # Sorted by shard, each shard's keys are one range of the order.
    order = np.argsort(of_key, kind="stable")
    numbers, starts = np.unique(of_key[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    ordered = keys.take(pa.array(order)).cast(pa.binary())
    [value] = encode_values(np.zeros(1, np.int32), [location], np.array([instant_ms], np.int64)).to_pylist()
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends.tolist(), strict=True):
        some = ordered[start:end]
        values = pa.array([value], pa.binary()).take(pa.array(np.zeros(len(some), np.int64)))
        yield number, Entries(_behind(number, some), values)


def _behind(shard: int, keys: pa.Array) -> pa.BinaryArray:
    return concat_rows(shard.to_bytes(SHARD_BYTES, "big"), keys).cast(pa.binary())


def _instant_ms(file_slice: FileSlice) -> int:
    try:
        return instant_to_ms(file_slice.base_instant)
    except HudiFormatError:
        return 0  # an old table's instants of 14 digits
