"""Every row against every index entry, key by key: one file slice or shard in memory at a time.

Rows come file group by file group, the index is compared shard by shard. In between the keys wait in memory
up to a limit, then in temporary files outside the table, in the folder that TMPDIR names.
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
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.table_verification.digests import Digests
from tidemark.table_verification.findings import Findings, Kind
from tidemark.table_verification.index_check import IndexCheck
from tidemark.table_verification.live_keys import LiveKeys

PENDING_BYTES_MAX: Final = 256 << 20
_SCHEMA: Final = pa.schema([pa.field("key", pa.large_string()), pa.field("slice", pa.int32())])


class KeysByShard:
    """`add` all slices, then ask for each shard once. `folder` exists, is empty, and is the caller's to
    remove.
    """

    def __init__(self, num_shards: int, folder: Path, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        self._num_shards = num_shards
        self._folder = folder
        self._bytes_max = pending_bytes_max
        self._pending: list[tuple[pa.Table, npt.NDArray[np.int32]]] = []
        self._bytes = 0
        self._spills = 0

    def add(self, keys: pa.ChunkedArray, slice_number: int) -> None:
        """The keys of all live rows of one file slice."""
        for chunk in keys.chunks:
            if not len(chunk):
                continue
            numbers = pa.array(np.full(len(chunk), slice_number, np.int32))
            rows = pa.table([chunk.cast(pa.large_string()), numbers], schema=_SCHEMA)
            self._pending.append((rows, record_index_shard(chunk, self._num_shards)))
            self._bytes += rows.nbytes
        if self._bytes > self._bytes_max:
            self._spill()

    def rows_of(self, shard: int) -> pa.Table:
        """`key` and `slice` number of each row of the shard, in no particular order."""
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
        order = np.argsort(shards, kind="stable")
        bounds = np.searchsorted(shards[order], np.arange(self._num_shards + 1))
        for shard in range(self._num_shards):
            chosen = order[bounds[shard] : bounds[shard + 1]]
            if len(chosen):
                path = str(self._path(shard, self._spills))
                with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, _SCHEMA) as writer:
                    writer.write_table(rows.take(pa.array(chosen)))
        self._pending, self._bytes = [], 0
        self._spills += 1

    def _path(self, shard: int, spill: int) -> Path:
        return self._folder / f"shard-{shard}-{spill}.arrow"


SAY_EVERY: Final = 50
Say = Callable[[str], None]


@dataclass(frozen=True)
class Compared:
    """`rows` and `entries` of the whole table, `file_groups` and `shards` that were read for it. `digests`:
    the rows' keys by file group.
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
    """Adds every difference to `findings`. `live` may be missing when there are no slices."""
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
        for shard in range(snapshot.num_shards):
            if shard and shard % SAY_EVERY == 0:
                say(f"compared {shard} of {snapshot.num_shards} shards")
            try:
                entries = snapshot.shard(shard).entries()
            except (HudiFormatError, OSError) as error:
                findings.add_one(Kind.UNREADABLE, f"shard {shard} of the record index: {error}")
                continue
            check.compare(shard, by_shard.rows_of(shard), entries)
    return Compared(check.rows, check.entries, len(slices), snapshot.num_shards, digests)
