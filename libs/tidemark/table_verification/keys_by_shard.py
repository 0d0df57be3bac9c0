"""Groups the record keys of all rows by the shard that they hash to, in limited memory.

Rows are read file group by file group, but the index is compared shard by shard. In between the keys are in
memory, and above a limit in temporary files outside the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.model import ShardId, shard_ids
from tidemark.hudi_format.record_index_hash import record_index_shard

PENDING_BYTES_MAX: Final = 256 << 20
_SCHEMA: Final = pa.schema([pa.field("key", pa.large_string()), pa.field("slice", pa.int32())])


class KeysByShard:
    """The keys of all slices by shard: first call `add` for all slices, then `rows_of` for each shard.

    ``folder``: exists and is empty; the caller removes it.
    """

    def __init__(self, num_shards: int, folder: Path, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        self._num_shards = num_shards
        self._folder = folder
        self._bytes_max = pending_bytes_max
        self._pending: list[tuple[pa.Table, npt.NDArray[np.int32]]] = []
        self._bytes = 0
        self._spills = 0

    def add(self, keys: pa.ChunkedArray, slice_number: int) -> None:
        """Adds the keys of all live rows of one file slice."""
        for chunk in keys.chunks:
            if not len(chunk):
                continue
            numbers = pa.array(np.full(len(chunk), slice_number, np.int32))
            rows = pa.table([chunk.cast(pa.large_string()), numbers], schema=_SCHEMA)
            self._pending.append((rows, record_index_shard(chunk, self._num_shards)))
            self._bytes += rows.nbytes
        if self._bytes > self._bytes_max:
            self._spill()

    def rows_of(self, shard: ShardId) -> pa.Table:
        """The rows of the shard in no particular order, with the columns ``key`` and ``slice`` (number)."""
        parts = [_SCHEMA.empty_table()]
        for number in range(self._spills):
            path = self._path(shard, number)
            if path.exists():
                with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
                    parts.append(reader.read_all())
        parts += [rows.filter(pa.array(shards == shard)) for rows, shards in self._pending]
        return pa.concat_tables(parts).combine_chunks()

    def _spill(self) -> None:
        rows = pa.concat_tables([rows for rows, _ in self._pending])
        shards = np.concatenate([shards for _, shards in self._pending])
        # Sorted by shard, each shard's rows are one range of the order: shards [1, 0, 1] have the order [1,
        # 0, 2] and the bounds [0, 1, 3] for the shards 0 and 1.
        order = np.argsort(shards, kind="stable")
        bounds = np.searchsorted(shards[order], np.arange(self._num_shards + 1))
        for shard in shard_ids(self._num_shards):
            chosen = order[bounds[shard] : bounds[shard + 1]]
            if len(chosen):
                path = str(self._path(shard, self._spills))
                with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
                    writer.write_table(rows.take(pa.array(chosen)))
        self._pending, self._bytes = [], 0
        self._spills += 1

    def _path(self, shard: ShardId, spill: int) -> Path:
        return self._folder / f"shard-{shard}-{spill}.arrow"
