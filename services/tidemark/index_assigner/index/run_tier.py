"""The tier of run files: which shards have one, the load of one more, and room on the disk.

A run is a copy of the base file of a shard's slice. It serves as long as the shard's life goes on, also after
the base file was compacted or cleaned: its content and RocksDB's entries, which are newer, are together what
the table says. The rules that keep it true through ended lives, losses of power and damaged files are in
docs/adr/0014-run-files.md. All methods are called on the index's own thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from itertools import count
from typing import Final

import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Int32Array, Locations
from tidemark.index_assigner.index.change_tier import ChangeTier
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.mapped_pages import MappedPages
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.index.ports import WarmProgress
from tidemark.index_assigner.index.rocks import RUNS_FOLDER, RocksTier
from tidemark.index_assigner.index.rocks_locations import StoredLocations
from tidemark.index_assigner.runs.directory import RunIdentity
from tidemark.index_assigner.runs.errors import RunDamagedError
from tidemark.index_assigner.runs.files import RunFolder, is_change, run_name, shard_of
from tidemark.index_assigner.runs.loading import ChangeLoad, Load, Loads, RunLoad
from tidemark.index_assigner.runs.run import Run
from tidemark.stream_runtime.ids import IdSource

_log = logging.getLogger("tidemark.assigner")
# A shard is loaded once look-ups have read more than this share of its blocks.
_READ_SHARE: Final = 0.02
# Bytes of an entry in a run beside its key: tag, location, end and what rounding adds.
_BYTES_BESIDE_KEY: Final = 16


class RunTier:
    """The runs of the open shards. ``loaded``, ``evicted``: counts since the process started."""

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
        self._rocks, self._locations, self._limits, self._loads = rocks, locations, limits, loads
        self._folder = RunFolder(rocks.path / RUNS_FOLDER)
        self._runs: dict[ShardId, Run] = {}
        self._used: dict[str, int] = {}
        self._mapped = MappedPages(limits.mapped_bytes)
        self.changes = ChangeTier(rocks, stored, locations, self._folder, self._mapped, ids)
        self._ticks = count(1)
        self._cold: dict[ShardId, OpenShard] = {}
        self._loading: tuple[OpenShard, Load] | None = None
        self._published_bytes = self._folder.disk_bytes()
        self._wanted = False
        self.loaded = self.evicted = 0

    # ------------------------------------------------------------------ shards

    def open(self, number: ShardId, life: str, change: str) -> None:
        """Maps the run of the shard's life, if there is one, and its change run, and deletes all others.

        Raises ChangesLostError.
        """
        self.end_load([number])
        of_changes = self.changes.open(number, life, change)
        own = run_name(number, life)
        for name in self._folder.names():
            if shard_of(name) == number and name not in (own, of_changes):
                self._remove(name)
        mapped = self._runs.get(number)
        if mapped is not None and mapped.name == own:
            return
        self._unmap(number)
        if self._folder.size(own):
            self._map(number, life)

    def _map(self, number: ShardId, life: str) -> None:
        name = run_name(number, life)
        try:
            run = Run(self._folder, name, self._locations)
        except RunDamagedError as error:
            self._set_aside(name, error)
            return
        identity = run.directory.identity
        if (identity.shard, identity.life) != (number, life):
            run.close()
            self._set_aside(name, RunDamagedError(f"{name} is a copy of shard {identity.shard}'s run"))
            return
        self._runs[number] = run
        self._used[name] = next(self._ticks)

    def close(self, numbers: Iterable[ShardId]) -> None:
        """Ends the mappings of these shards and the load of one of them; published files stay."""
        shards = list(numbers)
        self.end_load(shards)
        self.changes.close(shards)
        for number in shards:
            self._unmap(number)

    def _unmap(self, number: ShardId) -> None:
        run = self._runs.pop(number, None)
        if run is not None:
            self._mapped.closed(run)
            run.close()

    def drop(self, number: ShardId) -> None:
        """Deletes the shard's runs: its life has ended."""
        self.close([number])
        for name in self._folder.names():
            if shard_of(name) == number:
                self._remove(name)

    def end_load(self, numbers: Iterable[ShardId] | None = None) -> None:
        """Gives the load up if it is of one of these shards (None: of any)."""
        shards = None if numbers is None else set(numbers)
        self._cold = {} if shards is None else {n: s for n, s in self._cold.items() if n not in shards}
        self.changes.forget_due(shards)
        if self._loading is not None and (shards is None or self._loading[0].number in shards):
            self._loading[0].taken_since = None
            self._loading = None
            self._loads.end()

    def stop(self) -> None:
        """Ends everything, because the process ends. Waits for the end of the load."""
        self.close({*self._runs, *self.changes.shards()})
        self._loading = None
        self._loads.close()

    # ------------------------------------------------------------------ look-ups

    def find(self, number: ShardId, keys: pa.StringArray) -> Int32Array | None:
        """The place of each key in the base file that the shard's run was made of, NO_LOCATION where it has
        none. None: there is no run, or it is damaged, and is set aside now.
        """
        run = self._runs.get(number)
        if run is None:
            return None
        try:
            found = run.find(keys).locations
        except RunDamagedError as error:
            self.end_load([number])
            self._unmap(number)
            self._set_aside(run.name, error)
            return None
        self._used[run.name] = next(self._ticks)
        self._mapped.used(run)
        return found

    def _set_aside(self, name: str, error: RunDamagedError) -> None:
        _log.error("a run file is set aside, and its shard is loaded again: %s", error)
        self._folder.set_aside(name)

    # ------------------------------------------------------------------ loading

    @property
    def inflating(self) -> Executor | None:
        """Threads that inflate blocks for look-ups, which read them where no run answers."""
        return self._loads.inflating

    def was_read(self, shard: OpenShard, blocks: int) -> None:
        """Counts blocks of the shard's base file that a look-up has read."""
        shard.blocks_read += blocks
        if shard.blocks_read > shard.snapshot.block_count * _READ_SHARE and shard.may_load:
            self._cold[shard.number] = shard

    def want(self, shards: Iterable[OpenShard]) -> None:
        """Loads all of these shards that have no run, whatever look-ups read of them."""
        for shard in shards:
            if shard.snapshot.base is not None and shard.number not in self._runs:
                shard.may_load = True
                self._cold[shard.number] = shard
        self._wanted = True

    def load_on(self) -> None:
        """Polls while a load that `want` asked for is left, also if nobody looks a key up."""
        if self._wanted:
            self.poll()
            self._wanted = bool(self._cold) or self._loading is not None

    def progress(self, shards: Sequence[OpenShard]) -> WarmProgress:
        """How much of these shards is in runs."""
        bases = {shard.number: shard.snapshot.base for shard in shards}
        sizes = {number: base.entry_count for number, base in bases.items() if base is not None}
        runs = {number: self._runs[number].directory.entries for number in bases if number in self._runs}
        loading = self._loading[1].entries if self._loading is not None else 0
        left = self._cold.keys() | ({self._loading[0].number} if self._loading is not None else set())
        return WarmProgress(
            len(bases),
            sum(number in runs or number not in sizes for number in bases),
            len(left & (sizes.keys() - runs.keys())),
            sum(runs.values()) + loading,
            sum(runs.get(number, size) for number, size in {**sizes, **runs}.items()),
        )

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
        if self._cold and self._loading is None and not self._loads.is_busy:
            self._start_next()
        if self._loading is None and not self._loads.is_busy:
            started = self.changes.next_load(self._room)
            if started is not None:
                self._loading = started
                self._loads.start(started[1])

    def _take_over(self, shard: OpenShard, load: ChangeLoad) -> None:
        if load.error is not None:
            self.changes.failed(shard, load.error)
        else:
            self.changes.publish(shard, load)
        self._published_bytes = self._folder.disk_bytes()

    def _publish(self, shard: OpenShard, load: Load) -> None:
        # RocksDB first: after a loss of power a run must not be ahead of the entries that lie over it.
        self._rocks.sync()
        try:
            self._folder.publish(load.name)
        except OSError as error:
            self._failed(shard, error)
            return
        self._published_bytes = self._folder.disk_bytes()
        self._map(shard.number, shard.life)
        self.loaded += 1
        _log.info("shard %d: %d entries are in a run file", shard.number, load.entries)

    def _failed(self, shard: OpenShard, error: Exception) -> None:
        shard.may_load = False
        level = logging.INFO if isinstance(error, FileMissingError) else logging.WARNING
        _log.log(level, "shard %d is not loaded, look-ups read its HFile: %s", shard.number, error)

    def _start_next(self) -> None:
        """Loads the shard of which look-ups have read the greatest share, if the disk has room for it."""
        shard = max(self._cold.values(), key=lambda one: one.blocks_read / one.snapshot.block_count)
        del self._cold[shard.number]
        base = shard.snapshot.base
        if base is None or shard.number in self._runs or not shard.may_load:
            return
        room = self._room(base.entry_count * (len(base.first_key(0)) + _BYTES_BESIDE_KEY))
        if room is None:
            return
        name = run_name(shard.number, shard.life)
        identity = RunIdentity(
            shard.number, shard.life, shard.snapshot.base_name or "", shard.snapshot.base_mark, False
        )
        snapshot = shard.snapshot
        load = RunLoad(self._folder, name, identity, snapshot.open_base, snapshot.check_base, room)
        self._loading = shard, load
        self._loads.start(load)

    def _room(self, needed: int) -> int | None:
        """Bytes that a run may take which needs so many; None when there are fewer.

        Runs of shards that are not open here make room. Those of open ones do not: shards that do not fit in
        together would be loaded again and again.
        """
        while True:
            room = self._limits.disk_for_runs - self._rocks.disk_bytes() - self._published_bytes
            if room >= needed:
                return room
            if not self._evict(only_closed=True):
                return None

    # ------------------------------------------------------------------ disk

    @property
    def disk_bytes(self) -> int:
        """Bytes of all run files, of the one being written as well."""
        return self._published_bytes + (self._loading[1].size if self._loading is not None else 0)

    def evict(self) -> bool:
        """Deletes what is needed least: damaged files, else the run that was used least lately. False: there
        is nothing left to delete. Change runs go with their shards alone.
        """
        if self._folder.damaged():
            self._folder.remove_damaged()
            self._published_bytes = self._folder.disk_bytes()
            return True
        self.end_load()
        return self._evict(only_closed=False)

    def _evict(self, only_closed: bool) -> bool:
        opened = {run.name for run in self._runs.values()}
        runs = [name for name in self._folder.names() if not is_change(name)]
        names = [name for name in runs if not only_closed or name not in opened]
        if not names:
            return False
        name = min(names, key=lambda run: self._used.get(run, 0))
        for number in [number for number, run in self._runs.items() if run.name == name]:
            self._unmap(number)
        self._remove(name)
        self.evicted += 1
        return True

    def _remove(self, name: str) -> None:
        self._folder.remove(name)
        self._used.pop(name, None)
        self._published_bytes = self._folder.disk_bytes()

    def stats(self) -> dict[str, float]:
        """Counters and sizes: name -> value. ``run_damaged_shard_<n>``: a file of shard n was set aside."""
        load = self._loading[1] if self._loading is not None else None
        damaged = {shard_of(name) for name in self._folder.damaged()}
        return {
            "run_shards": len(self._runs),
            "run_entries": sum(run.directory.entries for run in self._runs.values()),
            "run_bytes": self.disk_bytes,
            "run_bytes_max": self._limits.disk_for_runs,
            "run_mapped_bytes": self._mapped.nbytes,
            "run_mapped_bytes_max": self._limits.mapped_bytes,
            "run_mapped_given_back": self._mapped.given_back,
            **self.changes.stats(),
            "runs_loaded": self.loaded,
            "runs_evicted": self.evicted,
            "run_loading_entries": load.entries if load is not None else 0,
            "run_loading_entries_max": load.entries_total if load is not None else 0,
            "runs_damaged": len(damaged),
            # Names of former versions: nothing of decoded blocks is kept any more.
            "block_cache_bytes": 0,
            "block_cache_bytes_max": 0,
            **{f"run_damaged_shard_{number}": 1.0 for number in sorted(damaged)},
        }
