"""Compares every row with every index entry, key by key.

1. Read the keys of all file slices, one slice in memory at a time, and group them by shard. Above a limit
   the keys are in temporary files, in the folder that TMPDIR names.
2. Compare shard after shard with the record index, one shard in memory at a time.

A partitioned index is compared data partition by data partition: a row is identified by (partition, key), so
the rows of a partition have to do with the shards of that partition alone.
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
from tidemark.hudi_format.metadata_table.begun_groups import hidden_groups
from tidemark.hudi_format.metadata_table.partitioned_index import layout_of
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RecordIndexEntries,
)
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
    part = _Part(None, slices, snapshot.num_shards)
    digests = Digests()
    check = _compare(part, snapshot, live, digests, findings, say)
    return Compared(check.rows, check.entries, len(slices), part.shards, digests)


def compare_partitioned(
    snapshot: MetadataTableSnapshot,
    slices: Sequence[FileSlice],
    live: LiveKeys | None,
    findings: Findings,
    say: Say,
) -> Compared:
    """As `compare_all`, with a partitioned index. Raises as `layout_of`.

    Adds the groups that we read and Hudi does not: a write that began them was given up.
    """
    names = snapshot.storage.names(RECORD_INDEX_FOLDER)
    for file_id, first in hidden_groups(names, snapshot.validity.is_valid).items():
        findings.add_one(Kind.INDEX_GROUP_HIDDEN, f"{file_id}: begins with {first}")
    shards = layout_of(snapshot).shards
    of_partition: dict[str, list[FileSlice]] = {path: [] for path in shards}
    for file_slice in slices:
        of_partition.setdefault(file_slice.partition_path, []).append(file_slice)
    digests = Digests()
    checks = []
    for number, path in enumerate(sorted(of_partition)):
        if number and number % SAY_EVERY == 0:
            say(f"compared {number} of {len(of_partition)} partitions")
        part = _Part(path, of_partition[path], shards.get(path, 0))
        checks.append(_compare(part, snapshot, live, digests, findings, say))
    rows, entries = sum(check.rows for check in checks), sum(check.entries for check in checks)
    return Compared(rows, entries, len(slices), sum(shards.values()), digests)


@dataclass(frozen=True)
class _Part:
    """What is compared at a time: a whole table with a global index, or one data partition. ``shards``: how
    many its index has; 0 where a partition has rows and no shards.
    """

    partition_path: str | None
    slices: Sequence[FileSlice]
    shards: int

    def entries(self, snapshot: MetadataTableSnapshot, shard: ShardId) -> RecordIndexEntries:
        """The shard's entries. Raises HudiFormatError, OSError."""
        return (
            snapshot.shard(shard, self.partition_path).entries() if self.shards else RecordIndexEntries.none()
        )

    def name(self, shard: ShardId) -> str:
        """What findings call the shard."""
        return (
            f"shard {shard}" if self.partition_path is None else f"shard {shard} of {self.partition_path!r}"
        )


def _compare(
    part: _Part,
    snapshot: MetadataTableSnapshot,
    live: LiveKeys | None,
    digests: Digests,
    findings: Findings,
    say: Say,
) -> IndexCheck:
    """Compares a part, and adds its digests. Rows of a part without shards count as those of one that has no
    entries.
    """
    slices, shards = part.slices, max(part.shards, 1)
    check = IndexCheck(slices, shards, findings, part.name)
    with tempfile.TemporaryDirectory(prefix="tidemark-verify-") as folder:
        by_shard = KeysByShard(shards, Path(folder))
        for number, file_slice in enumerate(slices):
            if number and number % SAY_EVERY == 0:
                say(f"read {number} of {len(slices)} file groups")
            keys = live.of(file_slice, findings) if live is not None else None
            if keys is not None:
                by_shard.add(keys, number)
                digests.add(RecordLocation(file_slice.partition_path, file_slice.file_id), keys)
        for shard in shard_ids(shards):
            if shard and shard % SAY_EVERY == 0:
                say(f"compared {shard} of {shards} shards")
            try:
                entries = part.entries(snapshot, shard)
            except (HudiFormatError, OSError) as error:
                findings.add_one(Kind.UNREADABLE, f"{part.name(shard)} of the record index: {error}")
                continue
            check.compare(shard, by_shard.rows_of(shard), entries)
    return check


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
