"""The content of each record index shard in RocksDB, and how it is kept up to date.

Invariant of an open shard with stamp S and a snapshot whose base file is B; all as of S:

* A key that has an entry in RocksDB is where the entry says.
* A key that has no entry is where B says. If its block of B was stored as a whole, it is absent.

The invariant holds because

* the changes in log files are stored when a shard is first used;
* every later change is stored in one batch with the new stamp;
* single entries are never removed;
* storing a block never overwrites an entry, since entries are newer than base files.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.block_values import BlockValues
from tidemark.index_assigner.index.foreign_deletes import ForeignDeletes
from tidemark.index_assigner.index.rocks import Puts, RocksTier
from tidemark.index_assigner.index.rocks_layout import (
    COVERAGE_PREFIX,
    ENTRY,
    STATE_PREFIX,
    ShardRecord,
    composite_keys,
    pack,
    shard_bytes,
    shard_range,
)
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.shown_timeline import ShownTimeline, commits_after

_log = logging.getLogger("tidemark.assigner")
_ENTRIES_PER_FILE: Final = 200_000
_STATE_END: Final = STATE_PREFIX[:1] + bytes([STATE_PREFIX[1] + 1])


@dataclass(slots=True)
class OpenShard:
    """A shard in use. ``covered[i]``: block i of the snapshot's base file is stored as a whole."""

    number: ShardId
    snapshot: ShardSnapshot
    stamp: str
    generation: int
    covered: BoolArray
    fold_generation: int
    unseen: tuple[str, ...] = ()

    def record(self) -> ShardRecord:
        """The record that RocksDB keeps of the shard."""
        return ShardRecord(
            self.stamp,
            self.generation,
            self.snapshot.base_name,
            len(self.covered),
            self.snapshot.base_mark,
            self.fold_generation,
            self.unseen,
        )


@dataclass(frozen=True, slots=True)
class BlockEntries:
    """Blocks of a base file and all of their entries.

    ``numbers``: of the blocks, ascending. ``locations[i]``: the location of ``keys[i]``, an id of this
    process.
    """

    numbers: Sequence[int]
    keys: pa.StringArray
    locations: Int32Array

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held by the entries, in bytes."""
        return int(self.keys.nbytes) + self.locations.nbytes

    @property
    def are_dense(self) -> bool:
        """Whether they are at least half of all blocks from the first to the last of them."""
        return self.numbers[-1] - self.numbers[0] < 2 * len(self.numbers)


class ShardStore:
    """The shards' content in RocksDB."""

    def __init__(
        self, rocks: RocksTier, locations: Locations, stored: StoredLocations, foreign: ForeignDeletes
    ) -> None:
        self._rocks, self._locations, self._stored = rocks, locations, stored
        self._foreign = foreign
        self._values = BlockValues(locations)
        self.blocks_read = 0
        self.shards_dropped = 0

    def open(self, number: ShardId, snapshot: MetadataTableSnapshot, shown: ShownTimeline) -> OpenShard:
        """Brings the shard to the snapshot: by the changes since its stamp, or filled anew if it cannot be.

        Raises FileMissingError when index files were cleaned away, CacheCorruptError for a damaged record.
        """
        value = self._rocks.get(STATE_PREFIX + shard_bytes(number))
        if value is None:
            return self._take_over(number, snapshot, shown, 0)
        record = self._decoded(value, number)
        fresh = snapshot.shard(number)
        changes = _changes_since(record, fresh, shown)
        if changes is None:
            _log.info("shard %d: changes after %s are gone, it is filled again", number, record.stamp)
            self._forget(number)
            return self._take_over(number, snapshot, shown, record.generation + 1)
        moved_on = commits_after(snapshot.data_timeline, record.stamp) or snapshot.changes.any_after(
            record.stamp
        )
        shard = OpenShard(
            number,
            fresh,
            shown.stamp,
            record.generation + moved_on,
            self._coverage(number, record, fresh),
            _fold_generation(shown),
            shown.unseen,
        )
        if shard.record() != record or changes:
            parts = [entries for _, entries in changes]
            notes = self._foreign.notes(fresh, number, parts)
            entries = self._located(number, RecordIndexEntries.newest_wins(parts))
            self._rocks.write([*notes, *entries, *self._bookkeeping(shard)])
        return shard

    def _decoded(self, value: bytes, number: ShardId) -> ShardRecord:
        try:
            return msgspec.json.decode(value, type=ShardRecord)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise self._rocks.damaged(f"the record of shard {number} cannot be read: {error}") from error

    def drop(self, number: ShardId) -> None:
        """Removes the shard to free disk space; `shards_dropped` counts it."""
        self._forget(number)
        self.shards_dropped += 1

    def _forget(self, number: ShardId) -> None:
        """Removes the shard's entries, record and coverage, and frees their disk space."""
        key = shard_bytes(number)
        first, end = shard_range(b"", number)
        self._rocks.write([], [STATE_PREFIX + key, COVERAGE_PREFIX + key], [(first, end)])
        self._rocks.reclaim(first, end)

    def stored_shards(self) -> list[ShardId]:
        """The numbers of the shards that RocksDB has a record of."""
        keys = self._rocks.keys_between(STATE_PREFIX, _STATE_END)
        return [ShardId(int.from_bytes(key[2:], "big")) for key in keys]

    def promote(
        self, shard: OpenShard, keys: list[bytes], rows: npt.NDArray[np.void], completion: str, extra: Puts
    ) -> None:
        """Writes committed entries and the shard's new stamp in one batch.

        ``rows``: `ENTRY`, with this process's location ids. ``extra``: written in the same batch.
        """
        values = rows.copy()
        values["location"] = self._stored.to_stored(rows["location"])
        values["generation"] = shard.generation
        shard.stamp = max(shard.stamp, completion)
        self._rocks.write([(keys, pack(values)), *extra, *self._state(shard)])

    def read_blocks(self, shard: OpenShard, numbers: Sequence[int]) -> Iterator[BlockEntries]:
        """Yields the entries of these blocks of the base file (ascending numbers), several blocks at a
        time. Raises FileMissingError when the base file was deleted, or is another one of the same name.
        """
        base = shard.snapshot.base
        assert base is not None
        try:
            for run in base.runs(numbers):
                self.blocks_read += len(run.numbers)
                locations = self._values.locations(run.content.values, base.schema, base.name)
                shard.snapshot.check_base()
                yield BlockEntries(run.numbers, run.content.keys, locations)
        except CorruptFileError:
            shard.snapshot.check_base()
            raise

    def take_over_blocks(self, shard: OpenShard, blocks: BlockEntries) -> None:
        """Stores whole blocks of the base file, and in the same batch marks them as covered."""
        covered = shard.covered.copy()
        covered[blocks.numbers] = True
        puts = self._new_entries(shard.number, blocks)
        self._rocks.write([*puts, self._coverage_put(shard.number, covered)])
        shard.covered = covered

    def _local_ids(self, entries: RecordIndexEntries) -> Int32Array:
        """The entries' locations as this process's ids, -1 for deletes."""
        ids = [self._locations.intern(place.partition_path, place.file_id) for place in entries.locations]
        # A delete has the id -1, which picks the last cell: ids [7, 9] and location ids [1, -1] give [9, -1].
        return np.array([*ids, -1], np.int32)[entries.location_ids]

    def _take_over(
        self, number: ShardId, snapshot: MetadataTableSnapshot, shown: ShownTimeline, generation: int
    ) -> OpenShard:
        """Fills the shard with the changes in the log files of its slice.

        The record is written last: without it an interrupted filling starts over.
        """
        first = snapshot.shard(number)
        changes = first.log_changes().sorted_by_key()
        self._rocks.clear(*shard_range(b"", number))
        self._rocks.write(self._foreign.notes(first, number, None))
        for at in range(0, len(changes), _ENTRIES_PER_FILE):
            part = changes.take(np.arange(at, min(at + _ENTRIES_PER_FILE, len(changes))))
            for keys, values in self._located(number, part):
                self._rocks.load(keys, values)
        # The shard is loaded again, because the first snapshot keeps the merged log files in memory.
        fresh = snapshot.shard(number)
        uncovered = np.zeros(fresh.block_count, np.bool_)
        shard = OpenShard(
            number, fresh, shown.stamp, generation, uncovered, _fold_generation(shown), shown.unseen
        )
        self._rocks.write(self._bookkeeping(shard))
        return shard

    def _coverage(self, number: ShardId, record: ShardRecord, fresh: ShardSnapshot) -> BoolArray:
        blocks = fresh.block_count
        of_other = record.base_name != fresh.base_name or record.base_mark != fresh.base_mark
        if of_other or record.blocks != blocks or not record.base_mark:
            return np.zeros(blocks, np.bool_)
        value = self._rocks.get(COVERAGE_PREFIX + shard_bytes(number)) or b""
        bits = np.unpackbits(np.frombuffer(value, np.uint8), count=blocks)
        return bits.astype(np.bool_)

    def _bookkeeping(self, shard: OpenShard) -> Puts:
        return [*self._state(shard), self._coverage_put(shard.number, shard.covered)]

    def _state(self, shard: OpenShard) -> Puts:
        return [([STATE_PREFIX + shard_bytes(shard.number)], [msgspec.json.encode(shard.record())])]

    def _coverage_put(self, number: ShardId, covered: BoolArray) -> tuple[list[bytes], list[bytes]]:
        return [COVERAGE_PREFIX + shard_bytes(number)], [np.packbits(covered).tobytes()]

    def _located(self, number: ShardId, entries: RecordIndexEntries) -> Puts:
        """The puts of record index entries: a location or absent, without an ordering value."""
        if not len(entries):
            return []
        keys = composite_keys(entries.keys, np.full(len(entries), number, np.int32))
        return [(keys, self._packed(self._local_ids(entries)))]

    def _packed(self, locations: Int32Array) -> list[bytes]:
        rows = np.zeros(len(locations), ENTRY)
        rows["location"] = self._stored.to_stored(locations)
        return pack(rows)

    def _new_entries(self, number: ShardId, blocks: BlockEntries) -> Puts:
        """The puts of those entries of the blocks for which RocksDB has no entry; one it has would be
        newer.
        """
        if not len(blocks):
            return []
        keys = composite_keys(blocks.keys, np.full(len(blocks), number, np.int32))
        values = self._packed(blocks.locations)
        new = self._new_keys(keys, blocks.are_dense)
        if len(new) == len(keys):
            return [(keys, values)]
        return [([keys[position] for position in new], [values[position] for position in new])]

    def _new_keys(self, keys: list[bytes], are_dense: bool) -> list[int]:
        """Positions of the keys for which RocksDB has no entry.

        ``are_dense``: few other keys are between them, so one range scan is faster than a read per key.
        """
        if not are_dense:
            return [position for position, value in enumerate(self._rocks.get_many(keys)) if value is None]
        known = set(self._rocks.keys_between(min(keys), max(keys) + b"\0"))
        return [position for position, key in enumerate(keys) if key not in known]


def _changes_since(
    record: ShardRecord, fresh: ShardSnapshot, shown: ShownTimeline
) -> list[tuple[str, RecordIndexEntries]] | None:
    """The changes that the shard lacks; None when they cannot be known, and the shard has to be filled
    anew.
    """
    if not shown.can_catch_up(record.stamp, record.fold_generation):
        return None
    if shown.lacks(record.unseen):
        # A commit was undone before the coordinator saw it. No rewind came for it, and our entries may
        # include it.
        return None
    if _base_instant(fresh.base_name) < _base_instant(record.base_name):
        # A restore removed the base file on which our entries build, and an older one is the newest again.
        # Changes that were compacted into the removed file are neither in the older one nor in our entries.
        return None
    if record.base_mark and record.base_name == fresh.base_name and record.base_mark != fresh.base_mark:
        # Another engine built the index anew: bootstrap instants are constants, so the name is the same. It
        # may have done so because the former index was wrong.
        return None
    newest = shown.stamp if shown.known is None else None
    return [] if record.stamp == newest else fresh.changes_after(record.stamp)


def _base_instant(name: str | None) -> str:
    parsed = BaseFileName.parse(name) if name is not None else None
    return parsed.instant if parsed is not None else ""


def _fold_generation(shown: ShownTimeline) -> int:
    return shown.known.generation if shown.known is not None else 0
