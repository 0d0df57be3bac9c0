"""How `state.memory` and `state.disk` of one assigner are divided among its caches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.config.model import MAPPED_BYTES, StateConfig, uncommitted_memory
from tidemark.record_formats.errors import SetupError

STATE_MEMORY_MIN: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """Bytes of memory for all caches together, and bytes of disk for RocksDB and the run files, and bytes
    of run files that are mapped at once.

    A sixteenth of the memory is for the load of a run, and for blocks of the record index while a lookup
    reads them. Whoever tags sees to it that the uncommitted entries keep to their part.

    ``is_partitioned``: the record index is, and `shared_reads` get a quarter of what `slice_values` have in
    another table.
    """

    memory_bytes: int
    disk_bytes: int
    mapped_bytes: int = MAPPED_BYTES
    is_partitioned: bool = False

    def check(self) -> None:
        """Checks the limits before an assigner starts. Raises SetupError."""
        check_memory(self.memory_bytes)

    @property
    def rocks_memory(self) -> int:
        """Bytes for RocksDB's block cache, write buffers and one batch."""
        return self.memory_bytes * 3 // 8

    @property
    def uncommitted(self) -> int:
        """Bytes for entries that no committed epoch covers."""
        return uncommitted_memory(self.memory_bytes)

    @property
    def hot_cache(self) -> int:
        """Bytes for committed locations that were used lately."""
        return self.memory_bytes // 8

    @property
    def loading(self) -> int:
        """Bytes for the load of a run: what is written to RocksDB during a take-over is kept in them."""
        return self.memory_bytes // 16

    @property
    def slice_values(self) -> int:
        """Bytes for keys and ordering values of file slices."""
        return self.memory_bytes // 32 - self.shared_reads

    @property
    def slice_deletes(self) -> int:
        """Bytes for the deleted keys of slices that new rows go to."""
        return self.memory_bytes // 32

    @property
    def caught_up_deletes(self) -> int:
        """Bytes for deleted keys while a shard is caught up, when those of slices are forgotten. Twice as
        many are in use while some are left out.
        """
        return self.slice_deletes // 2

    @property
    def caught_up_changes(self) -> int:
        """Bytes for changes that are read twice while a shard is caught up, when the ordering values of
        slices are forgotten.
        """
        return self.slice_values

    @property
    def shared_reads(self) -> int:
        """Bytes for changes that several units of a partitioned index are filled with."""
        return self.memory_bytes // 128 if self.is_partitioned else 0


def share_of_runs(disk_bytes: int) -> int:
    """Bytes of these above which no more runs are loaded: the rest is for promotions and RocksDB's
    compactions.
    """
    return disk_bytes * 3 // 4


def limits_of(state: StateConfig) -> IndexLimits:
    """The limits of an assigner that is configured so."""
    return IndexLimits(state.memory_bytes, state.disk_bytes, state.mapped_bytes)


def check_memory(memory_bytes: int) -> None:
    """Checks `state.memory`. Raises SetupError when it is too small."""
    if memory_bytes < STATE_MEMORY_MIN:
        raise SetupError(
            f"state.memory is {memory_bytes} bytes: the caches of one assigner need at least "
            f"{STATE_MEMORY_MIN >> 20}MiB"
        )
