"""What the tiered index is asked and what it answers: columns of unique keys in, columns out.

Three answers, never two: a key is present (HIT), certainly absent (ABSENT), or reading failed (an exception).
Whatever cannot be told from one tier is asked of the next one, so callers never see a MISS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.domain.tag import StoredKeys


class Tier(IntEnum):
    """Which tier knew the key; NONE: no tier holds anything of it, which proves that it is absent."""

    UNCOMMITTED = 0
    HOT = 1
    ROCKSDB = 2
    MDT = 3
    NONE = 4


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Answers for n keys in their order.

    ``tier`` holds `Tier` values. ``deleted_from``: of an absent key with a tombstone the location that it was
    deleted from, -1 where unknown (a key goes back into that file group only with an ordering value not below
    the tombstone's, ARCHITECTURE.md, "Ordering values").
    """

    stored: StoredKeys
    tier: npt.NDArray[np.int8]
    deleted_from: Int32Array


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """What one tagged batch makes of n unique keys.

    ``location``: where the key lives from now on, -1: deleted, or a no-op delete that leaves a tombstone.
    ``ordering`` is meaningful where ``has_ordering``; ``exact``: it is the stored value, not a lower bound.
    Of absent keys ``ordering`` is the tombstone's, ``deleted_from`` the location the key was deleted from
    (-1: it was unknown) and ``expires_ms`` (Unix epoch) when the tombstone ends; both are not read of
    present ones.
    """

    keys: pa.StringArray
    shards: Int32Array
    location: Int32Array
    ordering: Int64Array
    has_ordering: BoolArray
    exact: BoolArray
    deleted_from: Int32Array
    expires_ms: Int64Array

    def __len__(self) -> int:
        return len(self.location)


class KeyIndex(Protocol):
    """The index as the assign stage uses it; `tiered.TieredIndex` is the one there is. For one thread."""

    def open_lane(self, lane: int, snapshot: MetadataTableSnapshot, known: Known | None = None) -> None:
        """Brings the lane's shards to the snapshot; before this the lane answers nothing.

        ``known``: of the fold, read before the snapshot was loaded; one that does not show our last commit is
        refused (SnapshotBehindError: load a new one). None: all that the snapshot shows counts as seen.
        """

    def close_lane(self, lane: int) -> None:
        """Forgets what memory holds of the lane; its RocksDB content stays for a later return."""

    def lookup(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> LookupAnswer:
        """Where each of the unique keys lives, newest knowledge first."""

    def exact_ordering(self, lane: int, keys: pa.StringArray, locations: Int32Array) -> Int64Array:
        """The stored ordering value of present keys, from their file slices and the uncommitted entries.

        Raises IndexMismatchError (the slice does not hold the key: stop), IndexOutdatedError (another writer
        committed: look the keys up again).
        """

    def is_masked_by_delete(
        self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array
    ) -> BoolArray:
        """Which new rows must not go where they are bound for: the file group still holds a delete of the
        key, below which a reader would not see the row, or see the deleted one in its place.

        ``ordering`` is the rows'. All False where the table's deletes leave nothing behind (COPY_ON_WRITE, or
        no ordering field).
        """

    def stage(self, lane: int, changes: StagedChanges) -> None:
        """Entries of a tagged batch: visible to `lookup` at once, not known to count yet."""

    def counted(
        self, lanes: Iterable[int], ledger_offset: int, tombstones_next: Mapping[int, int] | None = None
    ) -> None:
        """What is staged on the lanes belongs to the transaction whose ledger entry has this offset.

        ``tombstones_next``: per lane the position in the tombstones topic after the transaction's batches.
        """

    def drop_staged(self, lane: int) -> None:
        """Forgets what is staged and not counted; the lane is back at its last counted state exactly."""

    def load_counted(
        self,
        lane: int,
        ledger_offset: int,
        index_rows: Iterable[pa.RecordBatch],
        tombstone_rows: Iterable[pa.RecordBatch] = (),
        tombstones_next: int | None = None,
    ) -> None:
        """A counting transaction of a former owner, from its index and tombstone batches in order."""

    def tombstones_position(self, lane: int) -> int:
        """First offset of the lane's tombstones partition that RocksDB does not reflect (0: none)."""

    def load_tombstones(self, lane: int, rows: Iterable[pa.RecordBatch], position: int) -> None:
        """Tombstones of committed transactions, from `tombstones_position` up to ``position``."""

    def promote(self, through: int, completion: str | None, epoch: int, instant: str | None = None) -> None:
        """An epoch is committed: entries up to ledger offset ``through`` go to RocksDB, then leave memory.

        ``completion``, ``instant``: of its data commit, None for an epoch without rows. Repeatable.
        """

    def rewind(self) -> None:
        """Forgets everything uncommitted and closes all lanes (a new generation)."""

    def uncommitted_entries(self) -> int:
        """Entries in memory that no committed epoch covers, staged ones included."""

    def figures(self) -> dict[str, float]:
        """Counters and sizes, by name."""
