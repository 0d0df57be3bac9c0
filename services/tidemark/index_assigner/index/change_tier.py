"""The tier of change runs: RocksDB's entries of a shard move into a file when there are many of them.

The entries of a shard are those in RocksDB over those in its change run. A take-over writes a new change run
from both, while RocksDB goes on; then one batch drops what was in RocksDB, writes again what came since the
take-over began to read, and names the new run in the shard's record. Entries move and never change, so rules
about them (life, stamp, what counts as absent) hold wherever they are. What is uncommitted is not in RocksDB,
so a rewind takes nothing back that is in a run.

Unlike a copy of a base file a change run must not vanish: where the one that a record names is missing or
damaged, the shard's life ends, and it is filled anew. The order of writes and what a loss of power leaves is
in docs/adr/0015-change-runs.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.errors import ErrorKind
from tidemark.hudi_format.columnar import BinaryColumn, gather_rows
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.errors import AssignerError
from tidemark.index_assigner.index.errors import CacheRefusedError
from tidemark.index_assigner.index.mapped_pages import MappedPages
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.rocks import Put, RocksTier
from tidemark.index_assigner.index.rocks_layout import ENTRY, shard_bytes, shard_range
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.shard_records import former_records, read_record, record_puts
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.entries import ABSENT, EXACT, HAS_ORDERING, Entries
from tidemark.index_assigner.runs.errors import RunDamagedError, RunRefusedError
from tidemark.index_assigner.runs.files import RunFolder, change_name, is_change, shard_of
from tidemark.index_assigner.runs.loading import ChangeLoad
from tidemark.index_assigner.runs.run import FoundEntries, Run, RunFile
from tidemark.stream_runtime.ids import IdSource

_log = logging.getLogger("tidemark.assigner")
# A take-over begins when more entries than this, and than the share of the change run, were written since
# the last one: so each entry is written to files about as often as the share's denominator.
_WRITTEN_MIN: Final = 16_384
_SHARE_OF_RUN: Final = 4
# Of an entry that is written meanwhile, beside its key: two objects, in two lists.
_SINCE_BYTES: Final = 136
_ITEMS_AT_ONCE: Final = 8_192
_KEY_BYTES_AT_ONCE: Final = 1 << 21
_ITEMS_A_STEP: Final = 256
# Bytes of an entry in a change run, its key included, for the room that it needs on the disk.
_BYTES_OF_ENTRY: Final = 64


class ChangesLostError(AssignerError):
    """The change run that a shard's record names is missing or damaged: the shard has to be filled anew."""

    kind = ErrorKind.RETRYABLE

    def __init__(self, shard: ShardId) -> None:
        super().__init__(f"shard {shard}: its change run is missing or damaged")
        self.shard = shard


class TooFewChangesError(Exception):
    """RocksDB has fewer entries of a shard than were written: a take-over is not worth its work yet."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} entries")
        self.count = count


class ChangeTier:
    """The change runs of the open shards. ``taken_over``, ``lost``: counts since the process started."""

    def __init__(
        self,
        rocks: RocksTier,
        stored: StoredLocations,
        locations: Locations,
        folder: RunFolder,
        mapped: MappedPages,
        ids: IdSource,
        since_bytes_max: int,
    ) -> None:
        """``ids``: random ones also where a test repeats others, as for `ShardStore`. ``since_bytes_max``:
        memory for what is written during a take-over. Beyond it the take-over is given up, and tried again.
        """
        self._rocks, self._stored, self._locations = rocks, stored, locations
        self._folder, self._mapped, self._ids = folder, mapped, ids
        self._since_bytes_max = since_bytes_max
        self._runs: dict[ShardId, Run] = {}
        self._lost: set[ShardId] = set()
        self._due: dict[ShardId, OpenShard] = {}
        self.taken_over = self.lost = 0
        self._remove_unnamed()

    # ------------------------------------------------------------------ shards

    def _remove_unnamed(self) -> None:
        """Deletes the files that no record names: a process ended between both. Their shards may never be
        opened here again, and the disk limit takes no change runs.
        """
        for name in filter(is_change, self._folder.names()):
            record = read_record(self._rocks, shard_of(name))
            if record is None or name != change_name(shard_of(name), record.life, record.change):
                self._folder.remove(name)

    def open(self, number: ShardId, life: str, change: str) -> str | None:
        """Maps the change run that the shard's record names; returns its name, None where there is none.

        Raises ChangesLostError, CacheRefusedError.
        """
        name = change_name(number, life, change) if change else None
        mapped = self._runs.get(number)
        if mapped is not None and mapped.name == name:
            return name
        self.close([number])
        if name is None:
            return None
        try:
            self._runs[number] = self._verified(name, number, life, change)
        except RunDamagedError as error:
            self._set_aside(number, name, error)
            raise ChangesLostError(number) from error
        except RunRefusedError as error:
            raise CacheRefusedError(f"shard {number}: its change run is whole, but {error}") from error
        return name

    def _verified(self, name: str, number: ShardId, life: str, change: str) -> Run:
        run = Run(self._folder, name, self._locations, self._mapped)
        identity = run.directory.identity
        if (identity.shard, identity.life, identity.change) != (number, life, change):
            run.close()
            raise RunDamagedError(f"{name} is a copy of another run")
        return run

    def close(self, numbers: Iterable[ShardId]) -> None:
        """Ends the mappings of these shards."""
        for number in numbers:
            self._lost.discard(number)
            run = self._runs.pop(number, None)
            if run is not None:
                self._mapped.closed(run)
                run.close()

    def _set_aside(self, number: ShardId, name: str, error: RunDamagedError) -> None:
        _log.error("a change run is lost, and its shard is filled anew: %s", error)
        self.close([number])
        self._lost.add(number)
        self._folder.set_aside(name)
        self.lost += 1

    # ------------------------------------------------------------------ look-ups

    def find(self, number: ShardId, keys: pa.StringArray) -> FoundEntries | None:
        """What the shard's change run has of each key; None: there is no run. Ask RocksDB before.

        Raises ChangesLostError.
        """
        if number in self._lost:
            raise ChangesLostError(number)
        run = self._runs.get(number)
        if run is None:
            return None
        try:
            found = run.find_entries(keys)
        except RunDamagedError as error:
            self._set_aside(number, run.name, error)
            raise ChangesLostError(number) from error
        self._mapped.used(run)
        return found

    def generation(self, number: ShardId) -> int:
        """The generation of the shard when its change run was made."""
        return self._runs[number].directory.identity.generation

    # ------------------------------------------------------------------ taking over

    def wrote(self, shard: OpenShard, entries: Iterable[Put], count: int) -> Iterable[Put]:
        """Counts entries that are about to be written to RocksDB; returns them. A running take-over keeps
        them, so that they are written again when it has ended.
        """
        if shard.written >= 0:
            shard.written += count
        if shard.written < 0 or shard.written > self._worth(shard.number):
            self._due[shard.number] = shard
        return entries if shard.taken_since is None else self._kept(shard, entries)

    def _kept(self, shard: OpenShard, entries: Iterable[Put]) -> Iterator[Put]:
        for put in entries:
            yield put
            if shard.taken_since is None:
                continue
            shard.taken_bytes += sum(map(len, put[0])) + len(put[0]) * _SINCE_BYTES
            if shard.taken_bytes > self._since_bytes_max:
                shard.taken_since = None
            else:
                shard.taken_since.append(put)

    def _worth(self, number: ShardId) -> int:
        run = self._runs.get(number)
        return max(_WRITTEN_MIN, run.directory.entries // _SHARE_OF_RUN if run is not None else 0)

    def forget_due(self, numbers: set[ShardId] | None) -> None:
        """Forgets that a take-over of these shards (None: of any) is due, because they are opened anew."""
        self._due = {} if numbers is None else {n: s for n, s in self._due.items() if n not in numbers}

    def next_load(self, room: Callable[[int], int | None]) -> tuple[OpenShard, ChangeLoad] | None:
        """The take-over of the shard with the most entries; None: none is due, the disk has no room, or the
        former change run turns out to be lost.

        ``room``: takes the bytes needed, and returns how many there are, or None where they are too few.
        """
        if not self._due:
            return None
        shard = max(self._due.values(), key=lambda due: due.written)
        del self._due[shard.number]
        run = self._runs.get(shard.number)
        size = room((run.size if run is not None else 0) + max(shard.written, 0) * _BYTES_OF_ENTRY)
        if size is None or shard.number in self._lost:
            return None
        former = None
        if run is not None:
            try:
                former = RunFile(self._folder, run.name)
            except RunDamagedError as error:
                self._set_aside(shard.number, run.name, error)
                return None
            except RunRefusedError as error:
                self.failed(shard, error)
                return None
        identity = RunIdentity(shard.number, shard.life, "", "", True, self._ids.uuid(), shard.generation)
        name = change_name(shard.number, shard.life, identity.change)
        # Both see RocksDB as it is now.
        first, end = shard_range(b"", shard.number)
        counted, items = self._rocks.items_from(first, end), self._rocks.items_from(first, end)
        worth = self._worth(shard.number) // 2
        newer = _Newer(counted, items, worth, shard.generation, self._stored)
        shard.taken_since, shard.taken_bytes = [], 0
        return shard, ChangeLoad(self._folder, name, identity, newer, former, size)

    def publish(self, shard: OpenShard, load: ChangeLoad) -> bool:
        """Makes the written run the shard's; returns False where that fails, and all stays as it is."""
        since, shard.taken_since = shard.taken_since, None
        self._due.pop(shard.number, None)
        if since is None:
            _log.warning("shard %d: too much was written during its take-over", shard.number)
            return self._given_up(shard, load)
        count = sum(len(keys) for keys, _ in since)
        try:
            self._folder.publish(load.name)
            run = self._verified(load.name, shard.number, shard.life, load.identity.change)
        except (OSError, RunDamagedError) as error:
            _log.warning("shard %d: its change run cannot be published: %s", shard.number, error)
            self._folder.remove(load.name)
            return self._given_up(shard, load)
        shard.change, shard.written = load.identity.change, count
        first, end = shard_range(b"", shard.number)
        self._rocks.write(
            [*since, *record_puts(shard)], former_records(shard.number, shard.change), [(first, end)]
        )
        # The former run goes last: until here a loss of power leads back to the record that names it.
        self._rocks.sync()
        former = self._runs.get(shard.number)
        self.close([shard.number])
        self._runs[shard.number] = run
        if former is not None:
            self._folder.remove(former.name)
        self._rocks.reclaim(first, end)
        self.taken_over += 1
        _log.info("shard %d: %d entries are in a change run", shard.number, load.entries)
        return True

    def failed(self, shard: OpenShard, error: Exception) -> None:
        """Notes why a take-over failed. It is tried again after as many entries as for the first time."""
        shard.taken_since = None
        self._due.pop(shard.number, None)
        if isinstance(error, TooFewChangesError):
            shard.written = error.count
            return
        shard.written = 0
        run = self._runs.get(shard.number)
        if isinstance(error, RunDamagedError) and run is not None:
            self._set_aside(shard.number, run.name, error)
        else:
            _log.warning("shard %d: its changes stay in RocksDB for now: %s", shard.number, error)

    def _given_up(self, shard: OpenShard, load: ChangeLoad) -> bool:
        self._folder.discard(load.name)
        shard.written = 0
        return False

    def shards(self) -> set[ShardId]:
        """The open shards that have a change run."""
        return set(self._runs)

    def stats(self) -> dict[str, float]:
        """Counters and sizes: name -> value."""
        return {
            "change_run_shards": len(self._runs),
            "change_run_entries": sum(run.directory.entries for run in self._runs.values()),
            "change_run_bytes": sum(run.size for run in self._runs.values()),
            "take_overs": self.taken_over,
            "take_overs_due": len(self._due),
            "change_runs_lost": self.lost,
        }


class _Newer:
    """RocksDB's entries of a shard, as a take-over on another thread reads them."""

    def __init__(
        self,
        counted: Iterator[tuple[bytes, bytes]],
        items: Iterator[tuple[bytes, bytes]],
        worth: int,
        generation: int,
        stored: StoredLocations,
    ) -> None:
        """``worth``: with fewer entries than that TooFewChangesError is raised."""
        self._counted, self._items, self._worth = counted, items, worth
        self._generation, self._stored = generation, stored
        self._ids = np.empty(0, np.int32)

    def __call__(self, locations: Locations) -> Iterator[Entries]:
        try:
            count = 0
            while part := len(_some(self._counted)):
                count += part
                yield self._entries([], locations)
            if count < self._worth:
                raise TooFewChangesError(count)
            while items := _some(self._items):
                yield self._entries(items, locations)
        finally:
            # RocksDB cannot be opened again while there are iterators, and an error keeps its frames.
            self._counted = self._items = iter(())

    def _entries(self, items: list[tuple[bytes, bytes]], locations: Locations) -> Entries:
        keys, values = [list(column) for column in zip(*items, strict=True)] or ([], [])
        rows = np.frombuffer(b"".join(values), ENTRY)
        column = BinaryColumn.from_arrow(pa.array(keys, pa.binary()))
        begins = column.offsets[:-1] + len(shard_bytes(ShardId(0)))
        names = gather_rows(column.data, begins, column.offsets[1:]).view(pa.string())
        present = rows["location"] >= 0
        exact = (rows["flags"] & EXACT > 0) & (rows["generation"] == self._generation)
        flags = rows["flags"] & HAS_ORDERING | EXACT * exact
        return Entries(
            names,
            self._located(rows["location"], locations),
            rows["ordering"].astype(np.int64),
            np.where(present, flags, ABSENT).astype(np.uint8),
        )

    def _located(self, stored: Int32Array, locations: Locations) -> Int32Array:
        """Ids of these locations for stored ones; each is interned once."""
        distinct = np.unique(stored[stored >= 0])
        if distinct.size and distinct[-1] >= len(self._ids):
            grown = np.full(2 * int(distinct[-1]) + 1, NO_LOCATION, np.int32)
            grown[: len(self._ids)] = self._ids
            self._ids = grown
        new = distinct[self._ids[distinct] < 0] if distinct.size else distinct
        for number, (path, file_id) in zip(new.tolist(), self._stored.names(new.tolist()), strict=True):
            self._ids[number] = locations.intern(path, file_id)
        if not distinct.size:
            return np.full(len(stored), NO_LOCATION, np.int32)
        return np.where(stored >= 0, self._ids[stored], NO_LOCATION).astype(np.int32)


def _some(items: Iterator[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The next items, some thousand or some MiB of them; none at the end."""
    some: list[tuple[bytes, bytes]] = []
    size = 0
    while len(some) < _ITEMS_AT_ONCE and size < _KEY_BYTES_AT_ONCE:
        more = list(islice(items, min(_ITEMS_A_STEP, _ITEMS_AT_ONCE - len(some))))
        if not more:
            break
        some += more
        size += sum(len(key) for key, _ in more)
    return some
