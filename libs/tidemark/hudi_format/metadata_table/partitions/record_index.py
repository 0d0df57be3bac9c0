"""The `record_index` partition of the metadata table: in which file group each record key is
(METADATA_TABLE.md, section 6). Its entries as columns, their merging, its file ids, a commit's log file.

A commit writes an upsert for each key that is new in its file group, a delete for each key that is gone, and
nothing for a key that it updates in place. A key has at most one entry per commit and shard. Of several
entries of a key the newest counts:

    base file       log of T1        log of T2      merged
    k1: group A     k1: group B      -              k1: group B
    k2: group A     -                k2 deleted     k2 deleted
    -               k3: group A      k3: group C    k3: group C

Ids of file groups (section 6.2):

    global index        record-index-<shard>-0
    partitioned index   record-index-<escaped data partition>-<shard>-0

A shard's number is the position of its id in the sorted list of ids. That is the number in the id, as long
as there are at most 10 000.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import CorruptFileError, HudiFormatError, UnsupportedTableError
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.log_file import BlockType, HeaderKey, encode_deletes, frame_block
from tidemark.hudi_format.metadata_table.partitions.partition import (
    METADATA_TABLE_PATH,
    MetadataLogFile,
    StoredEntries,
)
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import decode_values, encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import RecordLocation, ShardId
from tidemark.hudi_format.storage.base import join_path

RECORD_INDEX_PARTITION: Final = "record_index"
RECORD_INDEX_FOLDER: Final = join_path(METADATA_TABLE_PATH, RECORD_INDEX_PARTITION)
SHARDS_MAX: Final = 10_000
DELETED: Final = -1
_FILE_ID: Final = re.compile(r"^record-index-(?:(?P<partition>[^-]*)-)?(?P<shard>\d{4,})-0$")
PARTITION_BYTES_MAX: Final = 150
"""Of an escaped partition path: the rest of a file's name, which has 255 bytes, takes up to 105."""
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^_-\x7f") | {chr(code) for code in range(0x20)}


@dataclass(frozen=True, slots=True)
class RecordIndexEntries:
    """n entries as columns: the row of key i is at `locations[location_ids[i]]`; a `location_ids[i]` of -1
    says that the key is deleted.

    `instant_ms` (milliseconds since the Unix epoch) is the instant that inserted the key into its file
    group, 0 for a delete; it informs people only. Keys are in no particular order unless a function says so.
    """

    keys: pa.StringArray
    location_ids: npt.NDArray[np.int32]
    locations: list[RecordLocation]
    instant_ms: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        if not len(self.keys) == len(self.location_ids) == len(self.instant_ms):
            raise HudiFormatError(
                f"{len(self.keys)} keys, {len(self.location_ids)} locations, {len(self.instant_ms)} instants"
            )

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held by the columns, in bytes; the list of locations is not counted."""
        return int(self.keys.nbytes) + self.location_ids.nbytes + self.instant_ms.nbytes

    @classmethod
    def none(cls) -> RecordIndexEntries:
        """No entries."""
        return cls(pa.array([], pa.string()), np.empty(0, np.int32), [], np.empty(0, np.int64))

    @classmethod
    def of_deletes(cls, keys: pa.StringArray) -> RecordIndexEntries:
        """Deletes of these keys."""
        return cls(keys, np.full(len(keys), DELETED, np.int32), [], np.zeros(len(keys), np.int64))

    @classmethod
    def concat(cls, parts: Sequence[RecordIndexEntries]) -> RecordIndexEntries:
        """All entries, one part after the other. A location that several parts name is listed once."""
        numbers: dict[RecordLocation, int] = {}
        ids: list[npt.NDArray[np.int32]] = []
        for part in parts:
            # `mapped` gives a part's number of a location its number in the result: [A, B] after a part with
            # [B] is [1, 0]. The extra last cell is what index -1 reads, so that deletes stay -1.
            mapped = [numbers.setdefault(location, len(numbers)) for location in part.locations]
            ids.append(np.array([*mapped, DELETED], dtype=np.int32)[part.location_ids])
        if not parts:
            return cls.none()
        return cls(
            pa.concat_arrays([part.keys for part in parts]),
            np.concatenate(ids),
            list(numbers),
            np.concatenate([part.instant_ms for part in parts]),
        )

    @classmethod
    def newest_wins(cls, parts: Sequence[RecordIndexEntries]) -> RecordIndexEntries:
        """One entry per key: its last one in the order of the parts. Deletes stay, with location id -1."""
        merged = cls.concat(parts)
        encoded = merged.keys.dictionary_encode()
        if len(encoded.dictionary) == len(merged):
            return merged
        last = np.zeros(len(encoded.dictionary), np.int64)
        # Numpy assigns repeated indices in order, so each key's last position is left: keys a, b, a have the
        # codes 0, 1, 0 and leave [2, 1].
        last[encoded.indices.to_numpy()] = np.arange(len(merged))
        return merged.take(np.sort(last))

    def take(self, positions: npt.NDArray[np.int64]) -> RecordIndexEntries:
        """The entries at these positions."""
        return RecordIndexEntries(
            self.keys.take(pa.array(positions)),
            self.location_ids[positions],
            self.locations,
            self.instant_ms[positions],
        )

    def live(self) -> RecordIndexEntries:
        """The entries that are not deletes."""
        return self.take(np.flatnonzero(self.location_ids >= 0))

    def sorted_by_key(self) -> RecordIndexEntries:
        """The entries in the order of their keys' UTF-8 bytes. Raises HudiFormatError for a key that has
        two.
        """
        if len(self) < 2 or pc.all(pc.less(self.keys[:-1], self.keys[1:])).as_py():
            return self
        order = pc.sort_indices(self.keys).to_numpy().astype(np.int64)
        ordered = self.take(order)
        doubled = pc.equal(ordered.keys[:-1], ordered.keys[1:])
        if pc.any(doubled).as_py():
            key = ordered.keys[pc.index(doubled, True).as_py()].as_py()
            raise HudiFormatError(
                f"record key {key!r} has two index entries in one commit: keep the newest only"
            )
        return ordered


def over_base(base: RecordIndexEntries, changes: RecordIndexEntries) -> RecordIndexEntries:
    """The living entries of a base file (one per key, none deleted) under its log files' merged changes."""
    if not len(changes):
        return base
    is_changed = pc.is_in(base.keys, value_set=changes.keys).to_numpy(zero_copy_only=False)
    return RecordIndexEntries.concat([base.take(np.flatnonzero(~is_changed)), changes.live()])


def decode_entries(stored: StoredEntries) -> RecordIndexEntries:
    """The entries of a base file, a part of one, or a log block. Raises CorruptFileError."""
    if stored.values is None:
        return RecordIndexEntries.of_deletes(stored.keys)
    location_ids, locations, instant_ms = decode_values(stored.values, stored.schema, stored.source)
    return RecordIndexEntries(stored.keys, location_ids, locations, instant_ms)


def write_record_index_log(entries: RecordIndexEntries, instant: str) -> bytes:
    """The bytes of a shard's log file: an HFILE block of the upserts, then a DELETE block of the deletes.

    Entries may come in any order; a block without entries is left out. Equal input gives equal bytes. Raises
    HudiFormatError for no entries at all and for a key that has two.
    """
    if not len(entries):
        raise HudiFormatError(f"instant {instant}: a record index log without entries; leave the file out")
    schema = metadata_record_schema()
    ordered = entries.sorted_by_key()
    is_live = ordered.location_ids >= 0
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    blocks: list[bytes] = []
    if is_live.any():
        live = ordered if is_live.all() else ordered.take(np.flatnonzero(is_live))
        values = encode_values(live.location_ids, live.locations, live.instant_ms)
        blocks.append(frame_block(BlockType.HFILE_DATA, headers, write_hfile(live.keys, values, schema)))
    if not is_live.all():
        deleted = ordered.keys.take(pa.array(np.flatnonzero(~is_live)))
        blocks.append(frame_block(BlockType.DELETE, headers, encode_deletes(deleted, RECORD_INDEX_PARTITION)))
    return b"".join(blocks)


class RecordIndexPartition:
    """The partition `record_index` as a global index, whose file groups are not divided by data partition."""

    name: Final = RECORD_INDEX_PARTITION
    shards_max: Final = SHARDS_MAX
    newest_wins: Final = True
    fold: Final = None

    def file_id(self, shard: ShardId) -> str:
        """`record-index-<shard>-0`. Raises UnsupportedTableError."""
        return record_index_file_id(shard)

    def log_file(
        self, changes: RecordIndexEntries, instant: str, shard: ShardId
    ) -> tuple[MetadataLogFile, bytes]:
        """The shard's log file and its bytes. Raises HudiFormatError as `write_record_index_log`."""
        data = write_record_index_log(changes, instant)
        deletes = int((changes.location_ids < 0).sum())
        return record_index_log(instant, shard, len(data), len(changes) - deletes, deletes), data

    def merge(self, parts: Iterable[StoredEntries]) -> RecordIndexEntries:
        """One entry per key, the newest; deletes stay, with location id -1. Raises CorruptFileError."""
        return RecordIndexEntries.newest_wins([decode_entries(part) for part in parts])

    def base_records(self, parts: Iterable[StoredEntries]) -> Mapping[str, bytes]:
        """Key -> value of all living keys, encoded anew. Raises CorruptFileError."""
        live = self.merge(parts).live().sorted_by_key()
        values = encode_values(live.location_ids, live.locations, live.instant_ms)
        return dict(zip(live.keys.to_pylist(), values.to_pylist(), strict=True))


RECORD_INDEX: Final = RecordIndexPartition()


def record_index_log(instant: str, shard: ShardId, size: int, upserts: int, deletes: int) -> MetadataLogFile:
    """The log file of a shard in the deltacommit `instant`, whoever writes it. `size` is in bytes."""
    file_id = record_index_file_id(shard)
    return MetadataLogFile.of_commit(RECORD_INDEX_PARTITION, shard, file_id, instant, size, upserts, deletes)


def record_index_log_path(instant: str, shard: ShardId) -> str:
    """The path of that log file, relative to the data table's base."""
    return record_index_log(instant, shard, 0, 0, 0).path


@dataclass(frozen=True, slots=True)
class RecordIndexFileId:
    """The parts of a file id; `partition_path` is None in a global index."""

    partition_path: str | None
    shard: ShardId

    def __str__(self) -> str:
        if self.partition_path is None:
            return f"record-index-{self.shard:04d}-0"
        return f"record-index-{escape_partition(self.partition_path)}-{self.shard:04d}-0"


def record_index_file_id(shard: ShardId, partition_path: str | None = None) -> str:
    """The file id of a shard. `partition_path` is the data partition's in a partitioned index ('' in a table
    without partitions), None in a global one. Raises UnsupportedTableError.
    """
    if not 0 <= shard < SHARDS_MAX:
        raise UnsupportedTableError(f"shard {shard} is not in 0 to {SHARDS_MAX - 1}", "Use fewer shards")
    return str(RecordIndexFileId(partition_path, shard))


def parse_record_index_file_id(file_id: str) -> RecordIndexFileId:
    """The parts of a file id. Raises CorruptFileError when it is no record index file group."""
    match = _FILE_ID.match(file_id)
    if match is None:
        raise CorruptFileError(f"file group {file_id!r} does not belong in the record index")
    escaped = match["partition"]
    return RecordIndexFileId(None if escaped is None else unquote(escaped), ShardId(int(match["shard"])))


def index_partition_problem(partition_path: str) -> str | None:
    """Why a partitioned index cannot have this data partition; None when it can."""
    if "." in partition_path:
        return "it has a '.', and Hudi 1.2.0 cannot read back the names of its index files"
    if len(escape_partition(partition_path).encode()) > PARTITION_BYTES_MAX:
        return (
            f"it takes more than {PARTITION_BYTES_MAX} bytes in the names of its index files, where '/', "
            "'=', '_', '-' and others take three each"
        )
    return None


def escape_partition(partition_path: str) -> str:
    """A data partition's path as part of a file id: Hive's escaping, and of '_' and '-' too.

    Raises UnsupportedTableError for a '.', which Hudi 1.2.0 itself cannot read back from a log file's name.
    """
    if "." in partition_path:
        raise UnsupportedTableError(
            f"partition path {partition_path!r} has a '.': Hudi's partitioned record index cannot hold it",
            "Use a global record index, or other partition values",
        )
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in partition_path)
