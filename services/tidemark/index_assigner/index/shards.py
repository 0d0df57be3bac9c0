"""The content of each record index shard in RocksDB, and how it is kept up to date.

Invariant of an open shard with stamp S and a snapshot whose base file is B; all as of S:

* A key that has an entry in RocksDB is where the entry says; one that has none there, but one in the shard's
  change run, is where that says. Both together are called the shard's entries.
* A key that has no entry is where B says, and where any base file says that was B since the shard's life
  began, or a run made of it.

The invariant holds because

* the changes in log files are stored when a life begins;
* every later change is stored in one batch with the new stamp, or, if it does not fit into one, in several
  while the shard has no record, so that after a kill between two of them a new life begins;
* single entries are never removed, but move into a change run (`ChangeTier`). What removes all of
  them begins a new life (a new random name), and no run of another life is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import ChangesGoneError, CorruptFileError
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.metadata_table.shard_changes import ChangeStream
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.key_stretches import stretches, widths_of
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.index.change_tier import ChangesLostError
from tidemark.index_assigner.index.foreign_deletes import ForeignDeletes
from tidemark.index_assigner.index.kept_changes import KeptChanges, SharedReads
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.rocks import Put, RocksTier
from tidemark.index_assigner.index.rocks_layout import (
    ENTRY,
    EntryArray,
    ShardRecord,
    composite_keys,
    pack,
    shard_range,
)
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.shard_records import (
    all_records,
    former_records,
    read_record,
    record_puts,
)
from tidemark.index_assigner.index.shown_timeline import ShownTimeline, commits_after
from tidemark.index_assigner.runs.block_values import BlockValues
from tidemark.stream_runtime.ids import IdSource

_log = logging.getLogger("tidemark.assigner")
# Entries are Python objects for so long as they are written.
_AT_ONCE: Final = 1 << 16
_KEY_BYTES_AT_ONCE: Final = 1 << 22


class ShardStore:
    """The shards' content in RocksDB."""

    def __init__(
        self,
        rocks: RocksTier,
        locations: Locations,
        stored: StoredLocations,
        foreign: ForeignDeletes,
        runs: RunTier,
        ids: IdSource,
        limits: IndexLimits,
    ) -> None:
        """``ids``: random ones, also where a test repeats others: what follows a loss of power must not get
        the name of what that took back.
        """
        self._changes_kept = limits.caught_up_changes
        self.shared_reads = SharedReads(limits.shared_reads)
        self._rocks, self._locations, self._stored = rocks, locations, stored
        self._foreign, self._runs, self._ids = foreign, runs, ids
        self._values = BlockValues(locations)
        self.blocks_read = 0
        self.shards_dropped = 0

    def open(
        self, number: ShardId, fresh: ShardSnapshot, snapshot: MetadataTableSnapshot, shown: ShownTimeline
    ) -> OpenShard:
        """Brings the shard to the snapshot: by the changes since its stamp, or filled anew if it cannot be.

        ``fresh``: the snapshot's shard. Raises FileMissingError when index files were cleaned away,
        CacheCorruptError for a damaged record.
        """
        try:
            shard = self._opened(number, fresh, snapshot, shown)
        except (ChangesLostError, ChangesGoneError):
            self.forget(number)
            shard = self._opened(number, fresh, snapshot, shown)
        self._runs.opened(shard)
        fresh.forget_tail()
        return shard

    def _opened(
        self, number: ShardId, fresh: ShardSnapshot, snapshot: MetadataTableSnapshot, shown: ShownTimeline
    ) -> OpenShard:
        record = read_record(self._rocks, number)
        if record is None:
            return self._take_over(number, fresh, snapshot.index_life, shown, 0)
        fresh.check_base()
        life = snapshot.index_life
        is_another = bool(record.index and life) and record.index != life
        # The former index may have been wrong, and its successor is not what changes to it would give.
        changes = None if is_another else _changes_since(record, fresh, shown)
        if changes is None:
            why = "the index was built anew" if is_another else f"changes after {record.stamp} are gone"
            _log.info("shard %d: %s, it is filled again", number, why)
            self.forget(number)
            return self._take_over(number, fresh, life, shown, record.generation + 1)
        moved_on = commits_after(snapshot.data_timeline, record.stamp) or snapshot.changes.any_after(
            record.stamp
        )
        shard = OpenShard(
            number,
            fresh,
            shown.stamp,
            record.generation + moved_on,
            record.life or self._ids.uuid(),
            _fold_generation(shown),
            shown.unseen,
            change=record.change,
            written=record.written,
            index=life or record.index,
        )
        self._runs.open(number, shard.life, shard.change)
        if shard.record() != record or changes:
            # All notes come before the first change: they say where keys were without it.
            kept = KeptChanges(changes.parts if changes else tuple, self._changes_kept)
            notes = self._foreign.notes(fresh, number, kept)
            self._write([shard], self._with_room(chain(notes, self._changed(shard, kept()))))
        self._runs.changes.wrote(shard, [], 0)
        return shard

    def _changed(self, shard: OpenShard, changes: Iterable[RecordIndexEntries]) -> Iterator[Put]:
        """The puts of the changes, a part of them in memory at a time. Of a key that is in several the last
        one counts, as it is written last.
        """
        for part in changes:
            yield from self._runs.changes.wrote(shard, self._located(shard.number, part), len(part))

    def drop(self, number: ShardId) -> None:
        """Removes the shard to free disk space; `shards_dropped` counts it."""
        self.forget(number)
        self.shards_dropped += 1

    def forget(self, number: ShardId) -> None:
        """Ends the shard's life: removes its entries, record and runs, and frees their disk space."""
        first, end = shard_range(b"", number)
        self._rocks.write([], all_records(number), [(first, end)])
        # What is filled in next may reach the disk before this does, and must not lie over the former record.
        self._rocks.sync()
        self._rocks.reclaim(first, end)
        self._runs.drop(number)

    def promote(
        self,
        shard: OpenShard,
        parts: Iterator[tuple[list[bytes], EntryArray]],
        count: int,
        completion: str,
        extra: Iterator[Put],
    ) -> None:
        """Writes committed entries, then the shard's new stamp.

        ``parts``: keys and rows, ``count`` in all, with this process's location ids. ``extra``: written
        behind them, before the stamp.
        """
        shard.stamp = max(shard.stamp, completion)
        entries = self._runs.changes.wrote(shard, self._packed(shard, parts), count)
        self._write([shard], chain(entries, extra))

    def promote_together(
        self,
        shards: Sequence[OpenShard],
        parts: Iterator[tuple[list[bytes], EntryArray]],
        counts: Sequence[int],
        completion: str | None,
    ) -> None:
        """As `promote` for several shards, in one batch if it fits: each write has a price, however small.

        ``counts``: of each shard's entries, which have its generation. ``completion``: None changes no stamp.
        A shard of which a take-over is running must come alone.
        """
        if len(shards) == 1:
            self.promote(shards[0], parts, counts[0], completion or shards[0].stamp, iter(()))
            return
        # A running take-over keeps what is written meanwhile, and here the entries of the shards are mixed.
        assert all(shard.taken_since is None for shard in shards)
        for shard, count in zip(shards, counts, strict=True):
            shard.stamp = max(shard.stamp, completion or shard.stamp)
            self._runs.changes.wrote(shard, [], count)
        self._write(shards, self._stored_parts(parts))

    def _write(self, shards: Sequence[OpenShard], puts: Iterator[Put]) -> None:
        """Writes changes and the records of the shards. Of changes that do not fit into one batch a part may
        be there without records: then the next openings fill the shards anew.
        """
        former = [key for shard in shards for key in former_records(shard.number, shard.change)]
        records = [key for shard in shards for key in all_records(shard.number)]
        # A record counts what was written, so it is made when the puts are.
        made = (put for shard in shards for put in record_puts(shard))
        self._rocks.write_in_parts(puts, made, records, former)

    def _with_room(self, puts: Iterable[Put]) -> Iterator[Put]:
        """These puts, for which run files leave the disk: an opening may write all of an index's changes, and
        the promotions that keep to the limit come after it.
        """
        for put in puts:
            yield put
            self._runs.make_room(self._runs.disk.limit())

    def _packed(self, shard: OpenShard, parts: Iterator[tuple[list[bytes], EntryArray]]) -> Iterator[Put]:
        for keys, rows in parts:
            rows["generation"] = shard.generation
            yield from self._stored_parts([(keys, rows)])

    def _stored_parts(self, parts: Iterable[tuple[list[bytes], EntryArray]]) -> Iterator[Put]:
        for keys, rows in parts:
            rows["location"] = self._stored.to_stored(rows["location"])
            yield keys, pack(rows)

    def find_in_base(self, shard: OpenShard, keys: pa.StringArray) -> Int32Array:
        """The location of each key in the base file, NO_LOCATION where it has none.

        Raises FileMissingError when the base file was deleted, or is another one of the same name.
        """
        located = np.full(len(keys), NO_LOCATION, np.int32)
        base = shard.snapshot.base
        if base is None:
            return located
        try:
            found = base.find(keys, self._runs.inflating)
            located[found.positions] = self._values.locations(found.values, base.schema, base.name)
            # Thousands of units may be open.
            base.forget_tail()
        except CorruptFileError:
            shard.snapshot.check_base()
            raise
        shard.snapshot.check_base()
        self.blocks_read += found.blocks_read
        self._runs.was_read(shard, keys, found.blocks_read)
        return located

    def _local_ids(self, entries: RecordIndexEntries) -> Int32Array:
        """The entries' locations as this process's ids, -1 for deletes."""
        ids = [self._locations.intern(place.partition_path, place.file_id) for place in entries.locations]
        # A delete has the id -1, which picks the last cell: ids [7, 9] and location ids [1, -1] give [9, -1].
        return np.array([*ids, -1], np.int32)[entries.location_ids]

    def _take_over(
        self, number: ShardId, fresh: ShardSnapshot, life: str, shown: ShownTimeline, generation: int
    ) -> OpenShard:
        """Fills the shard with the changes in the log files of its slice. ``life``: of the record index.

        The record is written last: without it an interrupted filling starts over. A shard may have a hundred
        log files of some hundred entries each: they are read once, and nothing is synced for any of them.
        """
        self._runs.drop(number)
        self._rocks.clear(*shard_range(b"", number))
        shard = OpenShard(
            number,
            fresh,
            shown.stamp,
            generation,
            self._ids.uuid(),
            _fold_generation(shown),
            shown.unseen,
            index=life,
        )
        changes = self.shared_reads.log_parts(fresh, self._changes_kept)
        notes = self._foreign.notes(fresh, number, changes)
        self._write([shard], self._with_room(chain(notes, self._filled(shard, changes()))))
        self.shared_reads.keep(fresh, changes)
        return shard

    def _filled(self, shard: OpenShard, changes: Iterable[RecordIndexEntries]) -> Iterator[Put]:
        """The puts of a slice's log files, oldest first: of a key that is in several the last one counts."""
        count = 0
        for part in changes:
            count += len(part)
            yield from self._located(shard.number, part)
        shard.snapshot.check_base()
        self._runs.changes.wrote(shard, [], count)

    def _located(self, number: ShardId, entries: RecordIndexEntries) -> Iterator[Put]:
        """The puts of record index entries: a location or absent, without an ordering value."""
        located = self._local_ids(entries)
        for first, end in stretches(widths_of(entries.keys), _AT_ONCE, _KEY_BYTES_AT_ONCE):
            keys = entries.keys.slice(first, end - first)
            rows = np.zeros(len(keys), ENTRY)
            rows["location"] = self._stored.to_stored(located[first:end])
            yield composite_keys(keys, np.full(len(keys), number, np.int32)), pack(rows)


def _changes_since(
    record: ShardRecord, fresh: ShardSnapshot, shown: ShownTimeline
) -> ChangeStream | tuple[()] | None:
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
    return () if record.stamp == newest else fresh.changes_after(record.stamp)


def _base_instant(name: str | None) -> str:
    parsed = BaseFileName.parse(name) if name is not None else None
    return parsed.instant if parsed is not None else ""


def _fold_generation(shown: ShownTimeline) -> int:
    return shown.known.generation if shown.known is not None else 0
