"""A shard in use."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.index.rocks import Puts
from tidemark.index_assigner.index.rocks_layout import ShardRecord


@dataclass(slots=True, eq=False)
class OpenShard:
    """One opening of a shard: another opening, even of the same lane, is another object.

    ``life``: random name of the shard's content in RocksDB; whatever drops that content begins a new one.
    ``blocks_read``: blocks of the base file that look-ups have read since the opening. ``may_load``: False
    after a load of this opening failed. ``change``, ``written``, ``index``: as in `ShardRecord`.
    ``entry_bytes``: bytes of an entry in a copy of the base file, as a load found that was too large for the
    room it had; 0: none was. ``taken_since``: what was written since the running take-over began to read;
    None: there is none; ``taken_bytes``: its memory.
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
    entry_bytes: float = 0.0
    change: str = ""
    written: int = 0
    index: str = ""
    taken_since: Puts | None = None
    taken_bytes: int = 0

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
