"""The tier of run files: which shards have one, the load of one more, and room on the disk.

A run is a copy of the base file of a shard's slice. It serves as long as the shard's life goes on, also after
the base file was compacted or cleaned: RocksDB has what is newer. Where the disk has no room for all of it,
the run lacks the key ranges that are used least. The rules that keep it true through ended lives, losses of
power and damaged files are in docs/adr/0014-run-files.md. All methods belong to the index's own thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.domain.reduce import BoolArray
from tidemark.index_assigner.index.change_tier import ChangeTier
from tidemark.index_assigner.index.copies import Copies, copy_bytes, entry_bytes
from tidemark.index_assigner.index.disk_room import DiskRoom
from tidemark.index_assigner.index.due_loads import DueLoads
from tidemark.index_assigner.index.errors import IndexStopsError
from tidemark.index_assigner.index.limits import IndexLimits, share_of_runs
from tidemark.index_assigner.index.mapped_pages import MappedPages
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.ports import WarmProgress
from tidemark.index_assigner.index.rocks import RUNS_FOLDER, RocksTier
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.index.run_room import RunRoom
from tidemark.index_assigner.index.waited_loads import waited_for
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.errors import RunRefusedError, RunTooLargeError
from tidemark.index_assigner.runs.files import RunFolder, run_name, shard_of
from tidemark.index_assigner.runs.loading import ChangeLoad, Load, Loads, RunLoad
from tidemark.index_assigner.runs.run import FoundInBase
from tidemark.stream_runtime.ids import IdSource

_log = logging.getLogger("tidemark.assigner")
# What a shard is thought to take grows by this, at least, with each load that was too large for its room.
_GROWTH: Final = 1.25
# When no load is worth its work, the next is thought of after so many more keys were read from blocks.
_KEYS_PER_PLAN: Final = 10_000


class RunTier:
    """The runs of the open shards. ``loaded``: a count since the process started."""

    def __init__(
        self,
        rocks: RocksTier,
        stored: StoredLocations,
        locations: Locations,
        limits: IndexLimits,
        loads: Loads,
        is_open: Callable[[OpenShard], bool],
        ids: IdSource,
    ) -> None:
        """``is_open``: whether this opening of a shard is the present one. ``ids``: as for `ChangeTier`."""
        self._is_open = is_open
        self._rocks, self._locations, self._loads = rocks, locations, loads
        self._folder = RunFolder(rocks.path / RUNS_FOLDER)
        self._mapped = MappedPages(limits.mapped_bytes)
        self._copies = Copies(self._folder, locations, self._mapped)
        self.changes = ChangeTier(rocks, stored, locations, self._folder, self._mapped, ids, limits.loading)
        self._due = DueLoads()
        self._loading: tuple[OpenShard, Load] | None = None
        self.disk = DiskRoom(rocks, self._folder, limits, self._loading_bytes)
        self._room = RunRoom(self._folder, self._copies, self.disk)
        self._plan_in, self._is_waited_for = 0, False
        self._was_refused = False
        rocks.when_full = self._make_room_at_last
        self.loaded = 0

    # ------------------------------------------------------------------ shards

    def open(self, number: ShardId, life: str, change: str) -> None:
        """Maps the run of the shard's life and its change run; deletes others. Raises ChangesLostError."""
        self.end_load([number])
        of_changes = self.changes.open(number, life, change)
        own = run_name(number, life)
        for name in self._folder.names_of(number):
            if name not in (own, of_changes):
                self._room.remove(name)
        if self._copies.name(number) != own:
            self._copies.unmap(number)
            try:
                self._map(number, life)
            except RunRefusedError as error:
                _log.warning("shard %d: look-ups read its HFile for now: %s", number, error)

    def opened(self, shard: OpenShard) -> None:
        """Takes note of a new opening of a shard: what was asked for is asked for again."""
        if self._due.is_wanted(shard.number):
            self.want([shard])

    def close(self, numbers: Iterable[ShardId]) -> None:
        """Ends the mappings of these shards and the load of one of them; published files stay."""
        shards = list(numbers)
        self._due.ended(shards)
        self._unmap(shards)

    def _unmap(self, shards: list[ShardId]) -> None:
        self.end_load(shards)
        self.changes.close(shards)
        self._copies.close(shards)

    def drop(self, number: ShardId) -> None:
        """Deletes the shard's runs: its life has ended. Look-ups may wait for the runs of the next one."""
        self._is_waited_for = True
        self._unmap([number])
        for name in self._folder.names_of(number):
            self._room.remove(name)

    def end_load(self, numbers: Iterable[ShardId] | None = None) -> None:
        """Gives the load up if it is of one of these shards (None: of any)."""
        shards = None if numbers is None else set(numbers)
        self._due.forget(shards)
        self.changes.forget_due(shards)
        if self._loading is not None and (shards is None or self._loading[0].number in shards):
            self._loading[0].taken_since = None
            self._loading = None
            self._loads.end()

    def stop(self) -> None:
        """Ends everything, because the process ends. Waits for the end of the load."""
        self.close(self._copies.shards() | self.changes.shards())
        self._loading = None
        self._loads.close()

    # ------------------------------------------------------------------ look-ups

    def find(self, number: ShardId, keys: pa.StringArray) -> FoundInBase | None:
        """What the shard's run says of each key. None: there is none, or it is damaged and set aside now."""
        name = self._copies.name(number)
        if name is None:
            return None
        found = self._copies.find(number, keys)
        if found is None:
            self.end_load([number])
        else:
            self._room.was_used(name)
        return found

    # ------------------------------------------------------------------ loading

    @property
    def inflating(self) -> Executor | None:
        """Threads that inflate blocks for look-ups, which read them where no run answers."""
        return self._loads.inflating

    def was_read(self, shard: OpenShard, keys: pa.StringArray, blocks: int) -> None:
        """Counts blocks of the shard's base file that a look-up of these keys has read."""
        self._copies.was_read(shard, keys)
        self._plan_in -= len(keys)
        self._due.was_read(shard, blocks)

    def load_first(self, asked: Iterable[tuple[OpenShard, pa.StringArray]]) -> bool:
        """Loads those of these shards, which have no run, for which a look-up of these keys waits; returns
        whether there are any. No change run is made before the first look-up that waits for nothing.

        Raises IndexStopsError when the process is told to end meanwhile.
        """
        waited = waited_for(asked, self.disk.free(self.disk.limit()))
        self._is_waited_for = bool(waited)
        self.want(waited)
        self._due.first = {shard.number for shard in waited}
        if waited:
            with self._loads.waiting():
                while any(shard.number in self._wanted_left() for shard in waited):
                    if not self._loads.wait():
                        raise IndexStopsError("the assigner ends: it waits for no load any more")
                    self.poll()
        return bool(waited)

    def want(self, shards: Iterable[OpenShard]) -> None:
        """Loads all of these shards that have no run, whatever look-ups read of them."""
        for shard in shards:
            self._due.want(shard, self._is_served(shard))
            shard.snapshot.forget_tail()
        self._plan_in = 0

    def load_on(self) -> None:
        """Polls while a load that `want` asked for is left, also if nobody looks a key up."""
        if self._wanted_left():
            self.poll()

    def progress(self, shards: Sequence[OpenShard]) -> WarmProgress:
        """How much of these shards is in runs."""
        for shard in shards:
            self._copies.was_read(shard, pa.array([], pa.string()))
        numbers = [shard.number for shard in shards]
        entries = sum(map(self._copies.entries, numbers))
        loading = self._loading[1].entries if self._loading is not None else 0
        left = self._wanted_left()
        return WarmProgress(
            len(numbers),
            sum(self._is_served(shard) for shard in shards),
            sum(shard.number in left and not self._is_served(shard) for shard in shards),
            entries + loading,
            entries + self.lacking(numbers),
        )

    def _wanted_left(self) -> set[ShardId]:
        """What `want` asked for and is due, and what is being loaded."""
        loading = {self._loading[0].number} if self._loading is not None else set()
        return self._due.wanted() | loading

    def _is_served(self, shard: OpenShard) -> bool:
        return self._copies.is_whole(shard.number) or not shard.snapshot.block_count

    def lacking(self, numbers: Iterable[ShardId]) -> int:
        """About how many entries of these shards' base files no run has: look-ups read blocks for them."""
        return sum(map(self._copies.lacking, numbers))

    def poll(self) -> None:
        """Publishes the run of a load that has ended, and starts the next load."""
        ended = self._loads.take_ended()
        if ended is not None and self._loading is not None:
            shard, self._loading = self._loading[0], None
            if not self._is_open(shard):
                self._folder.discard(ended.name)
            elif isinstance(ended, ChangeLoad):
                self._take_over(shard, ended)
            elif ended.error is not None:
                self._failed(shard, ended.error)
            else:
                self._publish(shard, ended)
        if self._due and self._loading is None and not self._loads.is_busy:
            self._start_next()
        if self._loading is None and not self._loads.is_busy and not self._is_waited_for:
            self._loading = self.changes.next_load(self._room.for_changes)
            if self._loading is not None:
                self._loads.start(self._loading[1])

    def _take_over(self, shard: OpenShard, load: ChangeLoad) -> None:
        if load.error is not None:
            self.changes.failed(shard, load.error)
        else:
            self.changes.publish(shard, load)

    def _publish(self, shard: OpenShard, load: Load) -> None:
        # RocksDB first: after a loss of power a run must not be ahead of the entries that lie over it.
        self._rocks.sync()
        try:
            self._folder.publish(load.name)
            refused = None
        except OSError as error:
            refused = error
            self._folder.discard(load.name)
        self._copies.unmap(shard.number)
        # Where the disk refused it, the name may be the former file's, the new one's, or nobody's.
        is_mapped = False
        try:
            is_mapped = self._map(shard.number, shard.life)
        except RunRefusedError as error:
            refused = error
        if refused is not None:
            self._failed(shard, refused)
        elif is_mapped:
            self.loaded += 1
            self._forget_base(shard)
            _log.info("shard %d: %d entries are in a run file", shard.number, load.entries)

    def _forget_base(self, shard: OpenShard) -> None:
        """Closes the reader of the base file, which a whole copy needs no more. Units of several lanes share
        one: it stays while another of them is due, since its load begins where no missing file is expected.
        """
        is_due = any(due.snapshot is shard.snapshot for due in self._due.shards())
        if self._copies.is_whole(shard.number) and not is_due:
            shard.snapshot.forget_base()

    def _map(self, number: ShardId, life: str) -> bool:
        """Maps the copy of this life, if there is one that is whole. Raises RunRefusedError."""
        name = run_name(number, life)
        is_mapped = bool(self._folder.size(name)) and self._copies.map(number, life)
        if is_mapped:
            self._room.was_used(name)
        return is_mapped

    def _failed(self, shard: OpenShard, error: Exception) -> None:
        if isinstance(error, RunTooLargeError):
            # It is loaded again by what is known of its size now: in parts, if need be. Ranges with more
            # entries than others are larger however few bytes an entry takes, so the estimate always grows.
            shard.entry_bytes = max(entry_bytes(shard) * _GROWTH, error.entry_bytes)
            self._due.again(shard)
            self._plan_in = 0
            return
        shard.load_failed(error)
        if not shard.is_base_gone:
            self._due.ended([shard.number])
        level = logging.INFO if isinstance(error, FileMissingError) else logging.WARNING
        _log.log(level, "shard %d is not loaded, look-ups read its HFile: %s", shard.number, error)

    def _start_next(self) -> None:
        """Loads the shard of which most was read; without room on the disk the ranges that are worth most."""
        shard = self._due.next()
        if self._copies.is_whole(shard.number) or shard.snapshot.base is None or not shard.may_load:
            self._due.begun(shard.number)
            return
        room = self._room.of(copy_bytes(shard), self.disk.limit())
        if room is not None:
            self._due.begun(shard.number)
            self._start(shard, room, None)
        elif self._plan_in <= 0:
            self._start_part()
        else:
            self._due.ended(self._due.numbers())

    def _start_part(self) -> None:
        """Loads those ranges of one shard that are worth a place on the disk, and makes room for them."""
        limit, table = self.disk.limit(), self._copies.table(self._due.shards())
        worth = table.worth_a_place(self.disk.free(limit) + self._copies.held_bytes())
        gains = [(self._copies.gain(due.number, table, worth), due) for due in self._due.shards()]
        gain, shard = max(gains, key=lambda one: one[0])
        if gain < 0:
            self._due.ended(self._due.numbers())
            self._plan_in = _KEYS_PER_PLAN
            return
        self._due.begun(shard.number)
        mine = table.shards == shard.number
        size = float(table.sizes[mine & worth].sum())
        self._room.evict_ranges(table, ~mine & ~worth, size - self.disk.free(limit))
        if self.disk.free(limit) < size and (former := self._copies.name(shard.number)) is not None:
            self._copies.unmap(shard.number)
            self._room.remove(former)
        wanted = self._copies.blocks_in(shard, table.ranges[mine & worth])
        # Sizes are estimates: what a copy takes beyond its own is left of the other quarter.
        self._start(shard, self.disk.free(limit) + self.disk.spare(limit), wanted)

    def _start(self, shard: OpenShard, room: int, wanted: BoolArray | None) -> None:
        name = run_name(shard.number, shard.life)
        snapshot, life = shard.snapshot, shard.life
        identity = RunIdentity(shard.number, life, snapshot.base_name or "", snapshot.base_mark, False)
        load = RunLoad(self._folder, name, identity, snapshot.open_base, snapshot.check_base, room, wanted)
        self._loading = shard, load
        self._loads.start(load)

    # ------------------------------------------------------------------ disk

    def _loading_bytes(self) -> int:
        return self._loading[1].size if self._loading is not None else 0

    def make_room(self, limit: int) -> bool:
        """Deletes what is needed least until RocksDB and run files are within the limit: damaged files, then
        runs of shards that are not open, then the key ranges that are used least. False: nothing is left.
        Change runs go with their shards alone.
        """
        while self.disk.over(limit) > 0:
            if not self.evict(limit):
                return False
        return True

    def evict(self, limit: int) -> bool:
        """Deletes the next of them. False: nothing is left."""
        if self._room.remove_damaged():
            return True
        self._due.clear()
        # A take-over goes on: it had its room before it began, and makes RocksDB smaller.
        if self._loading is not None and isinstance(self._loading[1], RunLoad):
            self.end_load([self._loading[0].number])
        return self._room.evict(limit)

    def _make_room_at_last(self) -> None:
        """Makes room where the disk has refused a write. RocksDB takes none then until it is opened anew, so
        once more than the limit asks for leaves, an eighth: `df` may not show what the disk has.
        """
        limit = self.disk.limit()
        if not self._was_refused:
            limit = min(limit, self.disk.used - self.disk.used // 8)
        self._was_refused = True
        self.make_room(limit)

    def stats(self) -> dict[str, float]:
        """Counters and sizes: name -> value. ``run_damaged_shard_<n>``: a file of shard n was set aside."""
        load = self._loading[1] if self._loading is not None else None
        damaged = {shard_of(name) for name in self._folder.damaged()}
        return {
            **self._copies.stats(),
            "run_bytes": self.disk.run_bytes,
            "run_bytes_max": share_of_runs(self.disk.limit()),
            **self._mapped.stats(),
            **self.changes.stats(),
            "runs_loaded": self.loaded,
            "runs_evicted": self._room.evicted,
            "run_loading_entries": load.entries if load is not None else 0,
            "run_loading_entries_max": load.entries_total if load is not None else 0,
            "runs_damaged": len(damaged),
            "block_cache_bytes": 0,
            "block_cache_bytes_max": 0,
            **{f"run_damaged_shard_{number}": 1.0 for number in sorted(damaged)},
        }
