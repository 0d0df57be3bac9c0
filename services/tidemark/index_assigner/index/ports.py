"""The interface of the tiered index: columns of unique keys in, columns of answers out.

A key has one of three answers: it is present (HIT), it is certainly absent (ABSENT), or reading failed (an
exception). What one tier does not know (MISS) is asked of the next one, so callers never see a MISS.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
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
    """The tier that knew the key. NONE: no tier has anything about it, so it is absent."""

    UNCOMMITTED = 0
    HOT = 1
    ROCKSDB = 2
    RUN = 3
    MDT = 4
    NONE = 5


@dataclass(frozen=True, slots=True)
class LookupAnswer:
    """Answers for n keys, in the keys' order.

    ``tier``: `Tier` values. ``deleted_from``: of an absent key with a tombstone, the location from which it
    was deleted; -1 where that is not known.
    """

    stored: StoredKeys
    tier: npt.NDArray[np.int8]
    deleted_from: Int32Array


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """The changes of n unique keys by one tagged batch.

    ``location``: where the key is from now on; -1: it was deleted, or a delete of an unknown key leaves a
    tombstone. ``ordering`` is meaningful where ``has_ordering``; ``exact``: it is the stored value, and no
    lower bound. For absent keys ``ordering`` is the tombstone's, ``deleted_from`` the location from which
    the key was deleted (-1: not known), and ``expires_ms`` the tombstone's end in ms since 1970. The last
    two are ignored for present keys.
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


@dataclass(frozen=True, slots=True)
class WarmProgress:
    """How much of the open shards is in run files.

    ``loaded``: shards in a run file, or without a base file. ``left``: to be loaded, or being loaded; the
    others have no room, or their load failed. ``entries``: in run files, with what the present load has done;
    ``entries_max``: with all base files loaded.
    """

    shards: int
    loaded: int
    left: int
    entries: int
    entries_max: int


class KeyIndex(Protocol):
    """The index as the assign stage uses it, on one thread. Implemented by `tiered.TieredIndex`, and for a
    partitioned record index by `partitioned.PartitionedIndex`. There the key of a row is (partition, key),
    and what is called shards here are ids of partitions.
    """

    def open_lane(self, lane: int, snapshot: MetadataTableSnapshot, known: Known | None = None) -> None:
        """Brings the lane's shards to the snapshot; before that the lane answers nothing.

        ``known``: what the fold had seen before the snapshot was loaded. A snapshot that does not show our
        last commit is refused with SnapshotBehindError: load a new one. None: everything in the snapshot
        counts as seen. Raises IndexRebuiltError when the number of shards changed.
        """

    def close_lane(self, lane: int) -> None:
        """Forgets the lane's content in memory; its content in RocksDB is kept for a later opening."""

    def open_lanes(self) -> Set[int]:
        """The lanes that answer. One that cannot be brought to a newer snapshot when it has to be is closed
        by whatever needed that: open it again.
        """

    def lookup(self, lane: int, keys: pa.StringArray, shards: Int32Array) -> LookupAnswer:
        """Answers where each of the unique keys is. Uncommitted entries come first, then the lower tiers."""

    def exact_ordering(self, lane: int, keys: pa.StringArray, locations: Int32Array) -> Int64Array:
        """The stored ordering value of present keys, from their file slices and the uncommitted entries.

        Raises IndexMismatchError when a slice does not hold the key (stop), IndexOutdatedError when another
        writer committed (look the keys up again).
        """

    def is_masked_by_delete(
        self, keys: pa.StringArray, locations: Int32Array, ordering: Int64Array
    ) -> BoolArray:
        """Whether each new row, with its ordering value, would be hidden by a delete in its file group.

        A reader would not see a row below such a delete, or would see the deleted row in its place. All False
        for tables whose deletes leave nothing in the slices (COPY_ON_WRITE, or no ordering field).
        """

    def stage(self, lane: int, changes: StagedChanges) -> None:
        """Adds the entries of a tagged batch. `lookup` sees them at once; whether they count is not known
        yet.
        """

    def counted(
        self, lanes: Iterable[int], ledger_offset: int, tombstones_next: Mapping[int, int] | None = None
    ) -> None:
        """Marks the staged entries of the lanes as those of the counting entry at this ledger offset.

        ``tombstones_next``: per lane the position in the tombstones topic behind the transaction's batches.
        """

    def drop_staged(self, lane: int) -> None:
        """Forgets the staged entries that were not counted: the lane is as after the last `counted`."""

    def load_counted(
        self,
        lane: int,
        ledger_offset: int,
        index_rows: Iterable[pa.RecordBatch],
        tombstone_rows: Iterable[pa.RecordBatch] = (),
        tombstones_next: int | None = None,
    ) -> None:
        """Adds a counting transaction of a former owner, from its index and tombstone batches, in order."""

    def tombstones_position(self, lane: int) -> int:
        """The first offset of the lane's tombstones partition whose tombstones RocksDB does not have."""

    def load_tombstones(self, lane: int, rows: Iterable[pa.RecordBatch], position: int) -> None:
        """Writes the tombstones of committed transactions to RocksDB, which then has them up to
        ``position``.
        """

    def promote(self, through: int, completion: str | None, epoch: int, instant: str | None = None) -> None:
        """Moves the entries up to ledger offset ``through`` to RocksDB, because their epoch is committed.

        ``completion``, ``instant``: of its data commit; None for an epoch without rows. May be repeated.
        """

    def rewind(self) -> None:
        """Forgets everything uncommitted and closes all lanes, because the fold has a new generation."""

    def warm(self, start: bool) -> WarmProgress:
        """Tells how much is in run files. ``start``: from now on whatever is not gets loaded."""

    def load_on(self) -> None:
        """Takes the loads that `warm` began a step further; also lookups do that."""

    def uncommitted_entries(self) -> int:
        """Entries in memory that no committed epoch covers, staged ones included."""

    def uncommitted_memory(self) -> int:
        """Bytes of memory that those entries take; 0 where there are none."""

    def stats(self) -> dict[str, float]:
        """Counters and sizes for the stage's report: name -> value."""
