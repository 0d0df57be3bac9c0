"""How `state.memory` and `state.disk` of one assigner are shared out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.record_formats.errors import SetupError

STATE_MEMORY_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Bytes of memory for the caches together, and of disk for the RocksDB folder.

    Uncommitted entries are not in it: their number is bounded for the whole table
    (`limits.uncommitted_entries`). ``taken_over_min``: how many entries of the metadata table a lookup takes
    over into RocksDB before it leaves the rest to the next ones.
    """

    memory_bytes: int
    disk_bytes: int
    taken_over_min: int = 20_000

    def check(self) -> None:
        """What an assigner asks before it starts. Raises SetupError."""
        check_memory(self.memory_bytes)

    @property
    def rocks_memory(self) -> int:
        """RocksDB's block cache and write buffers."""
        return self.memory_bytes * 3 // 8

    @property
    def hot_cache(self) -> int:
        """Committed locations used lately."""
        return self.memory_bytes * 3 // 8

    @property
    def decoded_blocks(self) -> int:
        """Blocks of the metadata table that are not in RocksDB yet, or not at all when the disk is full."""
        return self.memory_bytes // 8

    @property
    def slice_values(self) -> int:
        """Keys and ordering values of file slices."""
        return self.memory_bytes // 16

    @property
    def slice_deletes(self) -> int:
        """Keys that the slices of file groups that are being filled have deletes of."""
        return self.memory_bytes // 16

    @property
    def disk_for_blocks(self) -> int:
        """Above this no more blocks are taken over: the rest is for promotions and compactions."""
        return self.disk_bytes * 3 // 4


def check_memory(memory_bytes: int) -> None:
    """Of `state.memory`. Raises SetupError."""
    if memory_bytes < STATE_MEMORY_MIN:
        raise SetupError(
            f"state.memory is {memory_bytes} bytes: the caches of one assigner need at least "
            f"{STATE_MEMORY_MIN >> 20}MiB"
        )
