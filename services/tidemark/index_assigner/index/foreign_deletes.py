"""Makes tombstones for deletes that another writer made with an ordering value.

The record index tells that a key was deleted, but not with which ordering value; that is in the file slice.

1. When a shard is caught up, a note is stored for each key that its changes delete: the key's former
   location.
2. The note is resolved when the key is looked up again, or after one of the next promotions. If the winning
   delete in that file slice has an ordering value, it becomes a tombstone. If it has none (Hudi's DELETE
   operation), every later event of the key counts, so no tombstone is made.
3. The note is removed.

Our own deletes get notes as well, because the record index does not tell who made a delete; they lead to the
tombstone that exists already. No tombstone can be made when the former location is neither in the record
index's files, nor in RocksDB or a run, or when the data was compacted before step 2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.file_group.changes import positions_in
from tidemark.hudi_format.metadata_table import RecordIndexEntries
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.ordering import NO_ORDERING
from tidemark.index_assigner.domain.key_stretches import stretches, widths_of
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.cache_keys import CacheKeys
from tidemark.index_assigner.index.gone_keys import Changes, gone_keys
from tidemark.index_assigner.index.rocks import Put, RocksTier
from tidemark.index_assigner.index.rocks_layout import (
    ENTRY,
    FOREIGN_DELETE,
    FOREIGN_PREFIX,
    TOMBSTONE,
    composite_keys,
    pack,
    shard_range,
    unpack,
)
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.run_tier import RunTier
from tidemark.index_assigner.index.slice_deletes import SliceDeletes
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tombstones import TombstoneStore
from tidemark.stream_runtime.clock import Clock

_NOTES_PER_STEP: Final = 2_000
_SLICES_PER_STEP: Final = 8
# At most so many keys of a shard without a run are looked up in its base file when it is caught up.
_BASE_KEYS_MAX: Final = 5_000
# Notes are Python objects for so long as they are made.
_AT_ONCE: Final = 1 << 14
_KEY_BYTES_AT_ONCE: Final = 1 << 22
_HEAD: Final = len(FOREIGN_PREFIX)
_END: Final = FOREIGN_PREFIX[:1] + bytes([FOREIGN_PREFIX[1] + 1])


class ForeignDeletes:
    """Stores and resolves the notes. Does nothing for tables whose deletes do not stay in slices
    (`deletes_stay`).
    """

    def __init__(
        self,
        rocks: RocksTier,
        locations: Locations,
        stored: StoredLocations,
        tombstones: TombstoneStore,
        deletes: SliceDeletes,
        runs: RunTier,
        parts: OrderingParts,
        clock: Clock,
        names: CacheKeys,
        bytes_max: int,
    ) -> None:
        """``names``: the keys of notes and tombstones. ``bytes_max``: for the deleted keys of which notes are
        made at a time.
        """
        self._names, self._bytes_max = names, bytes_max
        self._rocks, self._locations, self._stored = rocks, locations, stored
        self._tombstones, self._deletes, self._runs = tombstones, deletes, runs
        self._parts, self._clock = parts, clock
        self._in_use: dict[ShardId, bool] = {}
        self._cursor = FOREIGN_PREFIX
        self.found = 0

    # ------------------------------------------------------------ notes

    def notes(self, shard: ShardSnapshot, number: ShardId, read: Changes) -> Iterator[Put]:
        """Yields the notes to write before a shard's changes, made of a limited number of keys at a time.

        ``read``: reads the changes that the shard is caught up by, or filled with, oldest first; RocksDB must
        not have them before the last note was made.
        """
        if not self._parts.deletes_stay:
            return
        base = _BaseFile(shard, self._locations)
        for gone in gone_keys(read, self._bytes_max):
            where = self._last_places(read(), gone)
            for first, end in stretches(widths_of(gone), _AT_ONCE, _KEY_BYTES_AT_ONCE):
                some = gone.slice(first, end - first)
                yield from self._noted(number, some, self._former(base, number, some, where[first:end]))

    def _noted(self, number: ShardId, gone: pa.StringArray, where: Int32Array) -> Iterator[Put]:
        known = np.flatnonzero(where != NO_LOCATION)
        if not known.size:
            return
        mine, noted = self._names.of_shard(number, gone.take(pa.array(known)))
        rows = np.zeros(len(noted), FOREIGN_DELETE)
        rows["location"] = self._stored.to_stored(where[known[mine]])
        self._in_use[self._names.prefix_of(number)] = True
        yield [FOREIGN_PREFIX + key for key in noted], pack(rows)

    def _last_places(self, parts: Iterable[RecordIndexEntries], keys: pa.StringArray) -> Int32Array:
        """The last location that the parts, oldest first, have of each of these keys."""
        where = np.full(len(keys), NO_LOCATION, np.int32)
        for part in parts:
            _fill(where, keys, part.live(), self._locations)
        return where

    def _former(
        self, base: _BaseFile, number: ShardId, gone: pa.StringArray, where: Int32Array
    ) -> Int32Array:
        """The former location of each key: from the changes (``where``), else from RocksDB or the change
        run, else from the shard's run, or from the base file where it has none.
        """
        values = self._rocks.get_many(composite_keys(gone, np.full(len(gone), number, np.int32)))
        present, entries = unpack(values, ENTRY)
        local = self._stored.to_local(entries["location"])
        where[present] = np.where(where[present] == NO_LOCATION, local, where[present])
        nowhere = where == NO_LOCATION
        nowhere[present] = False
        rest = np.flatnonzero(nowhere)
        changed = self._runs.changes.find(number, gone.take(pa.array(rest)))
        if changed is not None:
            where[rest] = changed.locations
            rest = rest[~changed.known]
        if not rest.size:
            return where
        in_run = self._runs.find(number, gone.take(pa.array(rest)))
        if in_run is not None:
            where[rest] = in_run.locations
            rest = rest[~in_run.known]
        where[rest] = base.places(gone.take(pa.array(rest)))
        return where

    # ------------------------------------------------------------ what the slices say

    def settle(
        self, keys: list[bytes], names: pa.StringArray, shards: Int32Array, absent: Int64Array
    ) -> None:
        """Resolves the notes of the absent keys at these positions. ``shards``: the keys' prefixes.

        Raises TimelineConflictError when files keep vanishing.
        """
        used = [number for number in np.unique(shards[absent]).tolist() if self._has_any(number)]
        if not used:
            return
        asked = absent[np.isin(shards[absent], used)].tolist()
        present, rows = unpack(
            self._rocks.get_many([FOREIGN_PREFIX + keys[position] for position in asked]), FOREIGN_DELETE
        )
        if present.size:
            at = np.asarray(asked, np.int64)[present]
            where = self._stored.to_local(rows["location"])
            self._end([keys[position] for position in at.tolist()], names.take(pa.array(at)), where)

    def step(self, shards: Collection[ShardId]) -> None:
        """Resolves some notes of these shards; repeated calls go over all notes again and again."""
        if not any(self._has_any(number) for number in shards):
            return
        items = list(islice(self._rocks.items_from(self._cursor, _END), _NOTES_PER_STEP))
        full = len(items) == _NOTES_PER_STEP
        self._cursor = items[-1][0] + b"\0" if full else FOREIGN_PREFIX
        mine = [(key[_HEAD:], value) for key, value in items if int.from_bytes(key[2:4], "big") in shards]
        if not mine:
            return
        _, rows = unpack([value for _, value in mine], FOREIGN_DELETE)
        where = self._stored.to_local(rows["location"])
        few = np.flatnonzero(np.isin(where, np.unique(where)[:_SLICES_PER_STEP]))
        keys = [mine[position][0] for position in few.tolist()]
        try:
            self._end(keys, self._names.record_keys(keys), where[few])
        except TimelineConflictError:
            return  # files keep vanishing just now; a later round resolves these notes

    def _end(self, keys: list[bytes], names: pa.StringArray, where: Int32Array) -> None:
        values = self._deletes.values(names, where)
        typed = np.flatnonzero(values != NO_ORDERING)
        tombstones = np.zeros(len(typed), TOMBSTONE)
        tombstones["ordering"] = values[typed]
        tombstones["expires_ms"] = self._clock.latest_ms() + self._parts.tombstone_ttl_ms
        tombstones["location"] = where[typed]
        put = self._tombstones.merged([keys[position] for position in typed.tolist()], tombstones)
        self._rocks.write([put], [FOREIGN_PREFIX + key for key in keys])
        self.found += len(typed)

    def _has_any(self, number: ShardId) -> bool:
        """Whether the shard ever had a note. Without one, lookups save a read per key."""
        if number not in self._in_use:
            first = next(self._rocks.items_from(*shard_range(FOREIGN_PREFIX, number)), None)
            self._in_use[number] = first is not None
        return self._in_use[number]


class _BaseFile:
    """The base file of a shard, which is asked for some thousand keys."""

    def __init__(self, shard: ShardSnapshot, locations: Locations) -> None:
        self._shard, self._locations, self._left = shard, locations, _BASE_KEYS_MAX

    def places(self, keys: pa.StringArray) -> Int32Array:
        """The location of each key in the file; NO_LOCATION where it has none, or was asked for enough."""
        where = np.full(len(keys), NO_LOCATION, np.int32)
        asked = keys.slice(0, self._left)
        if len(asked):
            self._left -= len(asked)
            _fill(where[: len(asked)], asked, self._shard.base_places(asked), self._locations)
        return where


def _fill(where: Int32Array, keys: pa.StringArray, places: RecordIndexEntries, locations: Locations) -> None:
    """Notes where the places say that a key is."""
    at = positions_in(keys, places.keys)
    hits = np.flatnonzero(at >= 0)
    if hits.size:
        ids = [locations.intern(place.partition_path, place.file_id) for place in places.locations]
        where[hits] = np.array([*ids, NO_LOCATION], np.int32)[places.location_ids[at[hits]]]
