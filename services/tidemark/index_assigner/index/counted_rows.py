"""Index and tombstone batches of a counting transaction, turned back into what was staged for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.epoch_protocol.batches import (
    EXACT,
    EXPIRES,
    FILE_ID,
    KEY,
    OP,
    ORDERING,
    PARTITION,
    SHARD,
    IndexOp,
)
from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.domain.reduce import Int64Array
from tidemark.index_assigner.index.ports import StagedChanges
from tidemark.index_assigner.index.rocks_layout import TOMBSTONE, composite_keys

_MISSING: Final = -1


class TombstoneRows:
    """The rows of tombstone batches as columns; repeated keys are kept."""

    def __init__(self, batches: Iterable[pa.RecordBatch], locations: Locations) -> None:
        parts = list(batches)
        self.keys: pa.StringArray = _joined([each.column(KEY) for each in parts], pa.string())
        self.shards: Int32Array = _numbers([each.column(SHARD) for each in parts], np.int32)
        self.rows = np.zeros(len(self.keys), TOMBSTONE)
        self.rows["ordering"] = _numbers([each.column(ORDERING) for each in parts], np.int64)
        self.rows["expires_ms"] = _numbers([each.column(EXPIRES) for each in parts], np.int64)
        ids = [interned(each, locations) for each in parts]
        self.rows["location"] = np.concatenate(ids) if ids else 0

    def composite(self) -> list[bytes]:
        """Entry keys."""
        return composite_keys(self.keys, self.shards)

    def greatest(self) -> Int64Array:
        """Positions of each key's greatest tombstone."""
        order = np.argsort(self.rows["ordering"], kind="stable")
        last = dict(zip(self.keys.take(pa.array(order)).to_pylist(), order.tolist(), strict=True))
        return np.fromiter(last.values(), np.int64, len(last))


def changes_of_rows(
    index_rows: Iterable[pa.RecordBatch], tombstones: TombstoneRows, locations: Locations
) -> list[StagedChanges]:
    """One batch of changes per index batch, and one for the keys that have nothing but a tombstone."""
    batches = list(index_rows)
    greatest = tombstones.greatest()
    keys = tombstones.keys.take(pa.array(greatest))
    shards, rows = tombstones.shards[greatest], tombstones.rows[greatest]
    changes = [_of_batch(each, keys, rows, locations) for each in batches]
    named = _joined([each.column(KEY) for each in batches], pa.string())
    alone = np.flatnonzero(~np.asarray(pc.is_in(keys, value_set=named)))
    if alone.size:
        none = np.full(len(alone), NO_LOCATION, np.int32)
        yes = np.ones(len(alone), np.bool_)
        changes.append(
            StagedChanges(
                keys=keys.take(pa.array(alone)),
                shards=shards[alone],
                location=none,
                ordering=rows["ordering"][alone],
                has_ordering=yes,
                exact=yes,
                deleted_from=rows["location"][alone],
                expires_ms=rows["expires_ms"][alone],
            )
        )
    return changes


def interned(batch: pa.RecordBatch, locations: Locations) -> Int32Array:
    """Location ids of a batch's partition and file id columns; NO_LOCATION where they are null."""
    paths, files = batch.column(PARTITION), batch.column(FILE_ID)
    path_of = pc.fill_null(paths.indices, _MISSING).to_numpy(zero_copy_only=False).astype(np.int64)
    file_of = pc.fill_null(files.indices, _MISSING).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs, which = np.unique(path_of * (len(files.dictionary) + 1) + file_of, return_inverse=True)
    known = (path_of >= 0) & (file_of >= 0)
    path_names, file_names = paths.dictionary.to_pylist(), files.dictionary.to_pylist()
    first = np.zeros(len(pairs), np.int64)
    first[which] = np.arange(len(which))
    ids = [
        locations.intern(path_names[path_of[row]], file_names[file_of[row]]) if known[row] else NO_LOCATION
        for row in first.tolist()
    ]
    return np.array(ids, np.int32)[which] if ids else np.empty(0, np.int32)


def _of_batch(
    batch: pa.RecordBatch,
    tombstone_keys: pa.StringArray,
    tombstones: npt.NDArray[np.void],
    locations: Locations,
) -> StagedChanges:
    keys, orderings = batch.column(KEY), batch.column(ORDERING)
    named = interned(batch, locations)
    deleted = batch.column(OP).to_numpy() == IndexOp.DELETE
    ordering = pc.fill_null(orderings, 0).to_numpy(zero_copy_only=False).copy()
    has_ordering = orderings.is_valid().to_numpy(zero_copy_only=False).copy()
    exact = batch.column(EXACT).to_numpy(zero_copy_only=False).copy()
    expires = np.zeros(len(keys), np.int64)
    at = np.asarray(pc.fill_null(pc.index_in(keys, value_set=tombstone_keys), _MISSING)).astype(np.int64)
    rows = np.flatnonzero(deleted & (at >= 0))
    ordering[rows] = tombstones["ordering"][at[rows]]
    expires[rows] = tombstones["expires_ms"][at[rows]]
    has_ordering[rows] = exact[rows] = True
    return StagedChanges(
        keys=keys,
        shards=batch.column(SHARD).to_numpy(),
        location=np.where(deleted, NO_LOCATION, named).astype(np.int32),
        ordering=ordering,
        has_ordering=has_ordering,
        exact=exact,
        deleted_from=np.where(deleted, named, NO_LOCATION).astype(np.int32),
        expires_ms=expires,
    )


def _joined(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _numbers(arrays: list[pa.Array], kind: type[np.int32] | type[np.int64]) -> npt.NDArray[np.int_]:
    parts = [each.to_numpy(zero_copy_only=False).astype(kind) for each in arrays]
    return np.concatenate(parts) if parts else np.empty(0, kind)
