"""A shard in use."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.rocks import Puts
from tidemark.index_assigner.index.rocks_layout import ShardRecord

_READ_AGAIN: Final = 10
"""A load that a disk refused is tried again once look-ups have read all blocks so many times."""


@dataclass(slots=True, eq=False)
class OpenShard:
    """One opening of a shard: another opening, even of the same lane, is another object.

    ``life``: random name of the shard's content in RocksDB; whatever drops that content begins a new one.
    ``blocks_read``: blocks of the base file that look-ups have read since the opening, or since a load of it
    failed. ``may_load``: False after a load failed, until look-ups have read ``again_at`` blocks.
    ``is_base_gone``: a load did not find the snapshot's base file any more: it is to be opened anew.
    ``change``, ``written``, ``index``: as in `ShardRecord`.
    ``entry_bytes``: bytes that an entry is thought to take in a copy of the base file, since a load was too
    large for the room it had; 0: none was. ``taken_since``: what was written since the running take-over
    began to read; None: there is none; ``taken_bytes``: its memory.
    """

    number: ShardId
    snapshot: ShardSnapshot
    stamp: str
    generation: int
    life: str
    fold_generation: int
    unseen: tuple[str, ...] = ()
    blocks_read: int = 0
    may_load: bool = True
    again_at: float = inf
    is_base_gone: bool = False
    entry_bytes: float = 0.0
    change: str = ""
    written: int = 0
    index: str = ""
    taken_since: Puts | None = None
    taken_bytes: int = 0

    def was_read(self, blocks: int) -> None:
        """Counts blocks that a look-up has read."""
        self.blocks_read += blocks
        if self.blocks_read > self.again_at:
            self.may_load, self.again_at = True, inf

    def load_failed(self, error: Exception) -> None:
        """Notes that a load failed. What a disk refused is tried again, much later: each try may write a
        whole file. Nothing else is: the base file is gone or damaged.
        """
        self.may_load, self.blocks_read = False, 0
        self.is_base_gone = isinstance(error, FileMissingError)
        if isinstance(error, OSError):
            self.again_at = _READ_AGAIN * self.snapshot.block_count

    def record(self) -> ShardRecord:
        """The record that RocksDB keeps of the shard."""
        return ShardRecord(
            self.stamp,
            self.generation,
            self.snapshot.base_name,
            0,
            self.snapshot.base_mark,
            self.fold_generation,
            self.unseen,
            self.life,
            self.change,
            self.written,
            self.index,
        )
