"""Compares every row with every index entry, key by key.

1. Read the keys of all file slices, one slice in memory at a time, and group them by shard. Above a limit
   the keys are in temporary files, in the folder that TMPDIR names.
2. Compare shard after shard with the record index, one shard in memory at a time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation, ShardId, shard_ids
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.table_verification.digests import Digests
from tidemark.table_verification.findings import Findings, Kind
from tidemark.table_verification.index_check import IndexCheck
from tidemark.table_verification.live_keys import LiveKeys

PENDING_BYTES_MAX: Final = 256 << 20
_SCHEMA: Final = pa.schema([pa.field("key", pa.large_string()), pa.field("slice", pa.int32())])
SAY_EVERY: Final = 50
Say = Callable[[str], None]


@dataclass(frozen=True)
class Compared:
    """``rows``, ``entries``: numbers of the whole table. ``file_groups``, ``shards``: how many were read
    for it. ``digests``: of the rows' keys, by file group.
    """

    rows: int
    entries: int
    file_groups: int
    shards: int
    digests: Digests


def compare_all(
    snapshot: MetadataTableSnapshot,
    slices: Sequence[FileSlice],
    live: LiveKeys | None,
    findings: Findings,
    say: Say,
) -> Compared:
    """Compares everything, and adds all differences to ``findings``. ``live`` may be None without slices."""
    digests = Digests()
    check = IndexCheck(slices, snapshot.num_shards, findings)
    with tempfile.TemporaryDirectory(prefix="tidemark-verify-") as folder:
        by_shard = KeysByShard(snapshot.num_shards, Path(folder))
        for number, file_slice in enumerate(slices):
            if number and number % SAY_EVERY == 0:
                say(f"read {number} of {len(slices)} file groups")
            keys = live.of(file_slice, findings) if live is not None else None
            if keys is not None:
                by_shard.add(keys, number)
                digests.add(RecordLocation(file_slice.partition_path, file_slice.file_id), keys)
        for shard in shard_ids(snapshot.num_shards):
            if shard and shard % SAY_EVERY == 0:
                say(f"compared {shard} of {snapshot.num_shards} shards")
            try:
                entries = snapshot.shard(shard).entries()
            except (HudiFormatError, OSError) as error:
                findings.add_one(Kind.UNREADABLE, f"shard {shard} of the record index: {error}")
                continue
            check.compare(shard, by_shard.rows_of(shard), entries)
    return Compared(check.rows, check.entries, len(slices), snapshot.num_shards, digests)


class KeysByShard:
    """The record keys of all rows, grouped by the shard that they hash to, in limited memory. Rows are read
    file group by file group, but the index is compared shard by shard; in between the keys are in memory, and
    above a limit in temporary files.

    First call `add` for all slices, then `rows_of` for each shard.

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
