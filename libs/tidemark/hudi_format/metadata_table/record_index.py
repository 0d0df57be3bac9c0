"""Record index entries as columns, and the log file that brings a shard from one commit to the next.

A commit writes an upsert for each key that is new in its file group, a delete for each key that is gone,
nothing for keys updated in place (METADATA_TABLE.md, section 6.5). A key has at most one entry per
commit and shard.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.hfile import DEFAULT_OPTIONS, HFileOptions, write_hfile
from tidemark.hudi_format.log_file import BlockType, HeaderKey, encode_deletes, frame_block
from tidemark.hudi_format.metadata_table.file_ids import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.record_index_codec import decode_values, encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.storage.base import join_path

RECORD_INDEX_PARTITION: Final = "record_index"
RECORD_INDEX_FOLDER: Final = join_path(METADATA_TABLE_PATH, RECORD_INDEX_PARTITION)
DELETED: Final = -1


@dataclass(frozen=True, slots=True)
class RecordIndexEntries:
    """n entries: key i lives at `locations[location_ids[i]]`, or is deleted where `location_ids[i]` is -1.

    `instant_ms` (milliseconds since the Unix epoch) is the instant that inserted the key into its file
    group, 0 for a delete; it informs only. Keys are in no particular order unless a function says so.
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
        """All entries, one part after the other; equal locations become one."""
        numbers: dict[RecordLocation, int] = {}
        ids: list[npt.NDArray[np.int32]] = []
        for part in parts:
            # The extra last cell keeps -1 at -1.
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
        """One entry per key, the last in the parts' order; deletes stay, with location -1."""
        merged = cls.concat(parts)
        encoded = merged.keys.dictionary_encode()
        if len(encoded.dictionary) == len(merged):
            return merged
        last = np.zeros(len(encoded.dictionary), np.int64)
        # Numpy assigns repeated indices in order: what is left is each key's last position.
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
        """The entries in the order of their keys' UTF-8 bytes. Raises HudiFormatError for a key that is
        there twice.
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


def decode_entries(
    keys: pa.StringArray, values: pa.BinaryArray, schema: str, name: str
) -> RecordIndexEntries:
    """The entries of an HFile's keys and values, written under `schema`; `name` is what errors call the
    file.
    """
    location_ids, locations, instant_ms = decode_values(values, schema, name)
    return RecordIndexEntries(keys, location_ids, locations, instant_ms)


def write_record_index_log(
    entries: RecordIndexEntries,
    instant: str,
    options: HFileOptions = DEFAULT_OPTIONS,
    schema: str | None = None,
) -> bytes:
    """The log file of one shard for one commit: an HFILE block of the upserts, then a DELETE block of the
    deletes.

    Entries may come in any order; a block without entries is left out. Equal input gives equal bytes. Raises
    HudiFormatError for no entries at all and for a key that is there twice.
    """
    if not len(entries):
        raise HudiFormatError(f"instant {instant}: a record index log without entries; leave the file out")
    schema = schema or metadata_record_schema()
    ordered = entries.sorted_by_key()
    is_live = ordered.location_ids >= 0
    headers = {HeaderKey.INSTANT_TIME: instant, HeaderKey.SCHEMA: schema}
    blocks: list[bytes] = []
    if is_live.any():
        live = ordered if is_live.all() else ordered.take(np.flatnonzero(is_live))
        values = encode_values(live.location_ids, live.locations, live.instant_ms)
        blocks.append(
            frame_block(BlockType.HFILE_DATA, headers, write_hfile(live.keys, values, schema, options))
        )
    if not is_live.all():
        deleted = ordered.keys.take(pa.array(np.flatnonzero(~is_live)))
        blocks.append(frame_block(BlockType.DELETE, headers, encode_deletes(deleted, RECORD_INDEX_PARTITION)))
    return b"".join(blocks)
