"""The mapped copies of base files: what they answer, how much their key ranges are used, and which of these
are given back to the disk.

A copy may lack ranges: when the disk had no room for all of them, or since they left it. Keys in them are
asked of the base file. See docs/adr/0014-run-files.md, "Room on the disk".
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from tidemark.hudi_format.hfile import HFileReader
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.index.key_ranges import KeyRanges, RangeTable
from tidemark.index_assigner.index.mapped_pages import MappedPages
from tidemark.index_assigner.index.open_shard import OpenShard
from tidemark.index_assigner.runs.errors import RunDamagedError
from tidemark.index_assigner.runs.files import RunFolder, run_name
from tidemark.index_assigner.runs.run import FoundInBase, Run

_log = logging.getLogger("tidemark.assigner")
# Bytes of an entry in a run beside its key: tag, location, end and what rounding adds.
_BYTES_BESIDE_KEY: Final = 16
# Bytes of a block in the directory, beside its first key.
_BYTES_OF_BLOCK: Final = 32
# A shard that has some ranges is loaded again when the new ones get more than this share of its look-ups.
_GAIN_MIN: Final = 1 / 8
# Counts are halved after so many keys for each range: what was used long ago counts less and less.
_KEYS_PER_RANGE: Final = 128


@dataclass(frozen=True, slots=True)
class _Copy:
    """``of_block``: the key range of each block of the run."""

    run: Run
    of_block: Int64Array


class Copies:
    """The copies of the open shards' base files. ``entries_evicted``: a count since the process started."""

    def __init__(self, folder: RunFolder, locations: Locations, mapped: MappedPages) -> None:
        self._folder, self._locations, self._mapped = folder, locations, mapped
        self._copies: dict[ShardId, _Copy] = {}
        self._ranges: dict[ShardId, KeyRanges] = {}
        self._entries: dict[ShardId, int] = {}
        self._counted = 0
        self.entries_evicted = 0

    def __contains__(self, number: ShardId) -> bool:
        return number in self._copies

    def shards(self) -> set[ShardId]:
        """The shards that have a copy."""
        return set(self._copies)

    def name(self, number: ShardId) -> str | None:
        """The name of the shard's copy."""
        copy = self._copies.get(number)
        return copy.run.name if copy is not None else None

    def is_whole(self, number: ShardId) -> bool:
        """Whether the shard has a copy that lacks nothing."""
        copy = self._copies.get(number)
        return copy is not None and bool(copy.run.held.all())

    def entries(self, number: ShardId) -> int:
        """The entries that the shard's copy has."""
        copy = self._copies.get(number)
        return copy.run.held_entries if copy is not None else 0

    def lacking(self, number: ShardId) -> int:
        """About how many entries of the shard's base file no copy has. 0 before a look-up has read it."""
        copy = self._copies.get(number)
        if copy is None:
            return self._entries.get(number, 0)
        held = float(copy.run.held.mean())
        return round(copy.run.held_entries * (1 - held) / held)

    def stats(self) -> dict[str, float]:
        """Counters and sizes: name -> value."""
        return {
            "run_shards": len(self._copies),
            "run_entries": sum(map(self.entries, self._copies)),
            "run_entries_evicted": self.entries_evicted,
        }

    def held_bytes(self) -> int:
        """Bytes of all images."""
        return sum(copy.run.held_bytes for copy in self._copies.values())

    # ------------------------------------------------------------------ shards

    def map(self, number: ShardId, life: str) -> bool:
        """Maps the copy of the shard's life; False: it is damaged and set aside, or nothing is left in it.

        Raises RunRefusedError.
        """
        name = run_name(number, life)
        try:
            run = Run(self._folder, name, self._locations, self._mapped)
        except RunDamagedError as error:
            self._set_aside(name, error)
            return False
        identity = run.directory.identity
        if (identity.shard, identity.life) != (number, life):
            run.close()
            self._set_aside(name, RunDamagedError(f"{name} is a copy of shard {identity.shard}'s run"))
            return False
        if not run.held.any():
            run.close()
            self._folder.remove(name)
            return False
        first_keys = run.directory.first_keys
        ranges = self._ranges.get(number)
        if ranges is None or len(first_keys) > 2 * ranges.blocks:
            ranges = self._ranges[number] = KeyRanges(first_keys)
        self._copies[number] = _Copy(run, ranges.of(pa.array(first_keys, pa.binary())))
        return True

    def unmap(self, number: ShardId) -> None:
        """Ends the mapping of the shard's copy, if it has one."""
        copy = self._copies.pop(number, None)
        if copy is not None:
            self._mapped.closed(copy.run)
            copy.run.close()

    def close(self, numbers: Iterable[ShardId]) -> None:
        """Ends the mappings of these shards, and forgets how much their ranges were used."""
        for number in numbers:
            self.unmap(number)
            self._ranges.pop(number, None)
            self._entries.pop(number, None)

    def _set_aside(self, name: str, error: RunDamagedError) -> None:
        _log.error("a run file is set aside, and its shard is loaded again: %s", error)
        self._folder.set_aside(name)

    # ------------------------------------------------------------------ look-ups

    def find(self, number: ShardId, keys: pa.StringArray) -> FoundInBase | None:
        """What the shard's copy says of each key. None: there is none, or it is damaged and set aside now."""
        copy = self._copies.get(number)
        if copy is None:
            return None
        try:
            found = copy.run.find(keys)
        except RunDamagedError as error:
            self.unmap(number)
            self._set_aside(copy.run.name, error)
            return None
        self._mapped.used(copy.run)
        self._count(self._ranges[number], copy.of_block[found.blocks[found.blocks >= 0]])
        return found

    def was_read(self, shard: OpenShard, keys: pa.StringArray) -> None:
        """Counts keys that were looked up in the base file of a shard without a copy."""
        if shard.number in self._copies or (base := shard.snapshot.base) is None or not base.block_count:
            return
        self._entries[shard.number] = base.entry_count
        if shard.number not in self._ranges:
            self._ranges[shard.number] = KeyRanges(_first_keys(base))
        ranges = self._ranges[shard.number]
        self._count(ranges, ranges.of(keys))

    def _count(self, ranges: KeyRanges, used: Int64Array) -> None:
        ranges.used(used)
        self._counted += len(used)
        if self._counted > _KEYS_PER_RANGE * sum(map(len, self._ranges.values())):
            self._counted = 0
            for counted in self._ranges.values():
                counted.uses /= 2

    # ------------------------------------------------------------------ room on the disk

    def table(self, cold: Iterable[OpenShard] = ()) -> RangeTable:
        """The ranges of all copies, and of these shards, which lack some or all of theirs."""
        shards = {shard.number: shard for shard in cold}
        parts = []
        for number in sorted(self._copies.keys() | shards.keys()):
            ranges, copy = self._ranges.get(number), self._copies.get(number)
            if ranges is None:
                continue
            count = len(ranges)
            sizes, held = np.zeros(count), np.zeros(count, np.bool_)
            if copy is not None:
                run = copy.run
                sizes = np.bincount(copy.of_block[run.held], run.file_bytes[run.held], count).astype(
                    np.float64
                )
                held = np.bincount(copy.of_block[run.held], minlength=count) > 0
            if number in shards:
                sizes = np.where(held, sizes, copy_bytes(shards[number]) / count)
            parts.append((number, ranges.uses, sizes, held))
        return RangeTable.of(parts)

    def gain(self, number: ShardId, table: RangeTable, worth: BoolArray) -> float:
        """The uses of what the shard would get with its ranges that are ``worth`` a place; -1: too few for a
        load.
        """
        mine = table.shards == number
        new = mine & worth & ~table.held
        gained = float(table.uses[new].sum())
        least = _GAIN_MIN * float(table.uses[mine].sum()) if number in self._copies else -1.0
        return gained if new.any() and gained > least else -1.0

    def blocks_in(self, shard: OpenShard, ranges: Int64Array) -> BoolArray:
        """Which blocks of the shard's base file lie in these ranges."""
        base = shard.snapshot.base
        first_keys = pa.array(_first_keys(base) if base is not None else [], pa.binary())
        wanted: BoolArray = np.isin(self._ranges[shard.number].of(first_keys), ranges)
        return wanted

    def evict(self, table: RangeTable, among: BoolArray, size: float) -> list[str]:
        """Gives the least used ranges ``among`` those of the table back to the disk, ``size`` bytes or all.

        Returns the names of copies which are to be deleted, because nothing is left in them, or because the
        file system cannot take parts back.
        """
        rows = table.least_used(among, size)
        over = []
        for number in map(ShardId, np.unique(table.shards[rows]).tolist()):
            copy = self._copies[number]
            ranges = table.ranges[rows[table.shards[rows] == number]]
            before = copy.run.held_entries
            done = copy.run.evict(np.isin(copy.of_block, ranges))
            self.entries_evicted += before - copy.run.held_entries
            if not done or not copy.run.held.any():
                over.append(copy.run.name)
                self.unmap(number)
        return over


def _first_keys(base: HFileReader) -> list[bytes]:
    return [base.first_key(block) for block in range(base.block_count)]


def copy_bytes(shard: OpenShard) -> int:
    """About how many bytes a whole copy of the shard's base file takes: as if all keys were as long as the
    first, or as a former load found.
    """
    base = shard.snapshot.base
    if base is None or not base.block_count:
        return 0
    width = len(base.first_key(0))
    return round(base.entry_count * entry_bytes(shard)) + base.block_count * (width + _BYTES_OF_BLOCK)


def entry_bytes(shard: OpenShard) -> float:
    """About how many bytes an entry of the shard's base file, which has one, takes in a copy."""
    base = shard.snapshot.base
    assert base is not None
    return max(len(base.first_key(0)) + _BYTES_BESIDE_KEY, shard.entry_bytes)
