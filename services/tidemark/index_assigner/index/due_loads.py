"""Which shards are to be loaded: those of which look-ups have read much, and those that were asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.open_shard import OpenShard

# A shard is loaded once look-ups have read more than this share of its blocks.
_READ_SHARE: Final = 0.02
# Fewer entries lie in eight blocks or less, or in one that Hudi wrote. Reading these once costs less than a
# run file that is written, synced and mapped: a partitioned index may have thousands of such units. So each
# block of theirs is read some fifty times before, a millisecond or two each time.
_ENTRIES_MIN: Final = 4_000
_SMALL_READ_TIMES: Final = 50


class DueLoads:
    """Open shards by number, each as it was opened last.

    What was asked for stays so until its lane is closed, or until no load of it is to be tried: its shard may
    be opened anew, and may lose its run by that.
    """

    def __init__(self) -> None:
        self._due: dict[ShardId, OpenShard] = {}
        self._wanted: set[ShardId] = set()
        self.first: set[ShardId] = set()
        """The shards that a look-up waits for."""

    def __len__(self) -> int:
        return len(self._due)

    def numbers(self) -> list[ShardId]:
        """The shards' numbers."""
        return list(self._due)

    def shards(self) -> list[OpenShard]:
        """The shards."""
        return list(self._due.values())

    def was_read(self, shard: OpenShard, blocks: int) -> None:
        """Counts blocks of the shard's base file that a look-up has read."""
        shard.was_read(blocks)
        base = shard.snapshot.base
        if base is None or not shard.may_load:
            return
        times = _READ_SHARE if base.entry_count >= _ENTRIES_MIN else _SMALL_READ_TIMES
        if shard.blocks_read > base.block_count * times:
            self._due[shard.number] = shard

    def wanted(self) -> set[ShardId]:
        """What was asked for and is due."""
        return self._wanted & self._due.keys()

    def is_wanted(self, number: ShardId) -> bool:
        """Whether the shard was asked for, due or not."""
        return number in self._wanted

    def want(self, shard: OpenShard, is_served: bool) -> None:
        """Asks for a shard, whatever look-ups read of it. ``is_served``: it lacks no run."""
        self._wanted.add(shard.number)
        if not is_served:
            self.again(shard)

    def again(self, shard: OpenShard) -> None:
        """The shard is to be loaded, whatever became of its last load."""
        shard.may_load = True
        self._due[shard.number] = shard

    def next(self) -> OpenShard:
        """A shard that a look-up waits for, else the one of which most was read."""
        return max(self._due.values(), key=lambda due: (due.number in self.first, _share_read(due)))

    def begun(self, number: ShardId) -> None:
        """The shard is being loaded, or needs no load."""
        del self._due[number]

    def ended(self, numbers: Iterable[ShardId]) -> None:
        """No load of these shards is to be tried."""
        for number in numbers:
            self._due.pop(number, None)
            self._wanted.discard(number)

    def clear(self) -> None:
        """Forgets all, because the disk has no room."""
        self._due.clear()
        self._wanted.clear()

    def forget(self, numbers: set[ShardId] | None) -> None:
        """Forgets these openings (None: all). Their shards may be opened anew."""
        self._due = {} if numbers is None else {n: s for n, s in self._due.items() if n not in numbers}


def _share_read(shard: OpenShard) -> float:
    return shard.blocks_read / shard.snapshot.block_count
