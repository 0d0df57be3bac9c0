"""Which shards are to be loaded: those of which look-ups have read much, and those that were asked for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.open_shard import OpenShard

# A shard is loaded once look-ups have read more than this share of its blocks.
_READ_SHARE: Final = 0.02


class DueLoads:
    """Open shards by number, each as it was opened last."""

    def __init__(self) -> None:
        self._due: dict[ShardId, OpenShard] = {}
        self._wanted: set[ShardId] = set()

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
        if shard.blocks_read > shard.snapshot.block_count * _READ_SHARE and shard.may_load:
            self._due[shard.number] = shard

    def want(self, shard: OpenShard) -> None:
        """Adds a shard, whatever look-ups read of it."""
        shard.may_load = True
        self._due[shard.number] = shard
        self._wanted.add(shard.number)

    def next(self) -> OpenShard:
        """The shard of which most was read."""
        return max(self._due.values(), key=lambda due: due.blocks_read / due.snapshot.block_count)

    def tried(self, numbers: Iterable[ShardId]) -> None:
        """Forgets these: their load begins, or cannot begin."""
        for number in numbers:
            del self._due[number]
            self._wanted.discard(number)

    def forget(self, numbers: set[ShardId] | None) -> None:
        """Forgets these shards (None: all), because they are opened anew or closed."""
        self._due = {} if numbers is None else {n: s for n, s in self._due.items() if n not in numbers}

    def wanted(self) -> set[ShardId]:
        """What was asked for and is not tried yet."""
        self._wanted &= self._due.keys()
        return set(self._wanted)
