"""Makes base files of shards from entries that come in any order, in bounded memory.

1. Entries are sorted by shard and key; what exceeds the bound goes to disk (`SortedEntries`).
2. Shard after shard is written as an HFile into a local folder. A shard without entries gets a file without
   entries: the number of shards is that of the file groups with files.
3. The file is read back, entry by entry: number, hashes of keys and values, order, shard.
4. It is copied to where it is prepared for the table.

A key that comes twice has rows in two file groups. No index can be right about it, so nothing is built.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.columnar import BinaryColumn, concat_rows, gather_rows
from tidemark.hudi_format.errors import CorruptFileError, UnsupportedTableError
from tidemark.hudi_format.hfile import HFileOptions, HFileReader, HFileWriter
from tidemark.hudi_format.key_digest import EMPTY, Digest, added, key_digest
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.publication.port import GrowingFile, ServiceFiles
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.storage.base import Storage, name_of
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_services.merging.bounds import MergeBounds
from tidemark.hudi_format.table_services.merging.index_shard import merge_index_shard
from tidemark.hudi_format.table_services.merging.sorted_entries import Entries, SortedEntries
from tidemark.hudi_format.table_services.operations import MergeOperation, MergeOutcome
from tidemark.hudi_format.table_services.rebuilding.documents import ShardFile, check_written
from tidemark.hudi_format.table_services.rebuilding.slice_entries import SHARD_BYTES

_PIECE_BYTES: Final = 1 << 20


def entries_digest(entries: Entries) -> Digest:
    """Number and sum of hashes of entries, keys with their shards and values."""
    if not len(entries):
        return EMPTY
    return key_digest(concat_rows(entries.keys, b"\x00", entries.values))


@dataclass(frozen=True)
class ShardWriter:
    """Writes shards of one index. ``shards``: how many the index has. ``grow``: begins the table's file of a
    shard.
    """

    shards: int
    instant: str
    grow: Callable[[int], GrowingFile]
    bounds: MergeBounds

    def write(self, numbers: Sequence[int], incoming: Iterable[Entries]) -> list[ShardFile]:
        """Writes the shards ``numbers``, which ascend, and to which all entries belong.

        Raises UnsupportedTableError where a key comes twice, CorruptFileError where a file that was read
        back is another one than was written, OSError, HudiFormatError for a file of 2 GiB.
        """
        ordered, came = SortedEntries(self.bounds.scratch, "entries", self.bounds.held_bytes), EMPTY
        for entries in incoming:
            came = added(came, entries_digest(entries))
            ordered.add(entries)
        kept: list[int] = []
        written = list(self._files(numbers, _counted(ordered.batches(), kept)))
        if (twice := came[0] - sum(kept)) > 0:
            raise UnsupportedTableError(
                f"{twice} keys have rows in two file groups: no index can say where they are",
                "`tidemark verify --full` names them (key-twice); delete one row of each with Hudi on Spark",
            )
        check_written(written, came)
        return written

    def _files(self, numbers: Sequence[int], batches: Iterator[Entries]) -> Iterator[ShardFile]:
        parts = _by_shard(batches)
        part = next(parts, None)
        for number in numbers:
            path = self.bounds.scratch / "shard.hfile"
            with path.open("wb") as file:
                options = HFileOptions(create_time_ms=instant_to_ms(self.instant))
                writer = HFileWriter(file.write, metadata_record_schema(), options, even=True)
                while part is not None and part[0] == number:
                    writer.append(part[1].keys, part[1].values)
                    part = next(parts, None)
                writer.finish()
            yield self._prepared(number, path)
            path.unlink()
        if part is not None:
            raise CorruptFileError(f"entries of shard {part[0]} came to the task of shards {list(numbers)}")

    def _prepared(self, number: int, path: Path) -> ShardFile:
        count, digest = self._read_back(number, path)
        target = self.grow(number)
        try:
            with path.open("rb") as source:
                while piece := source.read(_PIECE_BYTES):
                    target.write(piece)
            ticket = target.finish()
        finally:
            target.discard()
        return ShardFile(number, count, digest, path.stat().st_size, ticket)

    def _read_back(self, number: int, path: Path) -> Digest:
        found, before = EMPTY, b""
        reader = HFileReader.open(LocalStorage(path.parent), path.name)
        for run in reader.runs(range(reader.block_count)):
            keys = run.content.keys.cast(pa.binary())
            # The key before, and so the order across the files' parts.
            column = pa.concat_arrays([pa.array([before], pa.binary()), keys]) if found[0] else keys
            ascends = len(column) < 2 or pc.all(pc.less(column[:-1], column[1:])).as_py()
            shards = record_index_shard(keys.cast(pa.string()), self.shards)
            if not ascends or not np.all(shards == number):
                raise CorruptFileError(f"{path}: keys of shard {number} are out of order or place")
            before = keys[-1].as_py()
            behind = concat_rows(number.to_bytes(SHARD_BYTES, "big"), keys).cast(pa.binary())
            found = added(found, entries_digest(Entries(behind, run.content.values)))
        return found


def _counted(batches: Iterable[Entries], counts: list[int]) -> Iterator[Entries]:
    """The batches; how many entries each has goes to ``counts``."""
    for batch in batches:
        counts.append(len(batch))
        yield batch


def _by_shard(batches: Iterator[Entries]) -> Iterator[tuple[int, Entries]]:
    """(shard, entries with their bare keys) of sorted entries; a shard comes in parts."""
    for batch in batches:
        column = BinaryColumn.from_arrow(batch.keys)
        first = column.offsets[:-1]
        numbers = column.data[first].astype(np.int32) << 8 | column.data[first + 1]
        keys = gather_rows(column.data, first + SHARD_BYTES, column.offsets[1:])
        starts = np.flatnonzero(np.append(True, numbers[1:] != numbers[:-1])).tolist()
        for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
            yield int(numbers[start]), Entries(keys[start:end], batch.values[start:end])


def compact_others(
    storage: Storage,
    others: Iterable[tuple[int, MergeOperation, str]],
    instant: str,
    files: ServiceFiles,
    bounds: MergeBounds,
) -> list[MergeOutcome]:
    """Merges the file groups of the metadata table's other partitions for the same commit; ``others``: number
    of the operation, the operation, path of its base file.

    Raises FileMissingError, CorruptFileError, FencedOutError.
    """
    outcomes = []
    for number, operation, path in others:
        target = files.grow(path)
        try:
            with tempfile.TemporaryDirectory(dir=bounds.scratch) as scratch:
                of_one = MergeBounds(bounds.memory_bytes, Path(scratch))
                counts = merge_index_shard(storage, operation, instant, target, of_one)
            ticket = target.finish()
        finally:
            target.discard()
        outcomes.append(counts.outcome(number, name_of(path), ticket))
    return outcomes
