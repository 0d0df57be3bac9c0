"""Turns the index and tombstone batches of a counting transaction back into the changes staged for it."""

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
from tidemark.index_assigner.index.rocks_layout import TOMBSTONE

_MISSING: Final = -1


class TombstoneRows:
    """The rows of tombstone batches as columns of equal length; a key may repeat.

    With a partitioned index ``shards`` are the ids of the rows' partitions, and ``identities`` have partition
    and key; else they are the keys.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], locations: Locations, partitioned: bool = False
    ) -> None:
        parts = list(batches)
        self.partitioned = partitioned
        self.keys: pa.StringArray = _joined([part.column(KEY) for part in parts], pa.string())
        self.identities = _joined([_identities(part, partitioned) for part in parts], pa.string())
        self.shards: Int32Array = _numbers(
            [_shards(part, locations, partitioned) for part in parts], np.int32
        )
        self.rows = np.zeros(len(self.keys), TOMBSTONE)
        self.rows["ordering"] = _numbers([part.column(ORDERING) for part in parts], np.int64)
        self.rows["expires_ms"] = _numbers([part.column(EXPIRES) for part in parts], np.int64)
        ids = [interned(part, locations) for part in parts]
        self.rows["location"] = np.concatenate(ids) if ids else 0

    def greatest(self) -> Int64Array:
        """The position of the greatest tombstone of each distinct identity."""
        # In ascending order of value the dictionary keeps each key's last position: keys a, b, a with the
        # values 9, 3, 5 have the order [1, 2, 0], so a keeps position 0.
        order = np.argsort(self.rows["ordering"], kind="stable")
        texts = self.identities.take(pa.array(order)).to_pylist()
        last = dict(zip(texts, order.tolist(), strict=True))
        return np.fromiter(last.values(), np.int64, len(last))


def changes_of_rows(
    index_rows: Iterable[pa.RecordBatch], tombstones: TombstoneRows, locations: Locations
) -> list[StagedChanges]:
    """Returns the changes of each index batch, and those of the keys that have a tombstone row alone."""
    batches = list(index_rows)
    greatest = tombstones.greatest()
    keys, partitioned = tombstones.keys.take(pa.array(greatest)), tombstones.partitioned
    identities = tombstones.identities.take(pa.array(greatest))
    shards, rows = tombstones.shards[greatest], tombstones.rows[greatest]
    changes = [_of_batch(batch, identities, rows, locations, partitioned) for batch in batches]
    named = _joined([_identities(batch, partitioned) for batch in batches], pa.string())
    alone = np.flatnonzero(~np.asarray(pc.is_in(identities, value_set=named)))
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
    """The location ids of a batch's partition and file id columns; NO_LOCATION where they are null."""
    # Each distinct pair is interned once. A pair of dictionary codes becomes one number: with 2 file ids
    # the pairs (0, 1), (1, 0), (0, 1) are 1, 3, 1. The factor is one more than the file ids, as a null's
    # code is -1.
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
    tombstone_identities: pa.StringArray,
    tombstones: npt.NDArray[np.void],
    locations: Locations,
    partitioned: bool,
) -> StagedChanges:
    keys, orderings = batch.column(KEY), batch.column(ORDERING)
    named = interned(batch, locations)
    deleted = batch.column(OP).to_numpy() == IndexOp.DELETE
    ordering = pc.fill_null(orderings, 0).to_numpy(zero_copy_only=False).copy()
    has_ordering = orderings.is_valid().to_numpy(zero_copy_only=False).copy()
    exact = batch.column(EXACT).to_numpy(zero_copy_only=False).copy()
    expires = np.zeros(len(keys), np.int64)
    found = pc.index_in(_identities(batch, partitioned), value_set=tombstone_identities)
    at = np.asarray(pc.fill_null(found, _MISSING)).astype(np.int64)
    rows = np.flatnonzero(deleted & (at >= 0))
    ordering[rows] = tombstones["ordering"][at[rows]]
    expires[rows] = tombstones["expires_ms"][at[rows]]
    has_ordering[rows] = exact[rows] = True
    return StagedChanges(
        keys=keys,
        shards=_shards(batch, locations, partitioned),
        location=np.where(deleted, NO_LOCATION, named).astype(np.int32),
        ordering=ordering,
        has_ordering=has_ordering,
        exact=exact,
        deleted_from=np.where(deleted, named, NO_LOCATION).astype(np.int32),
        expires_ms=expires,
    )


def _identities(batch: pa.RecordBatch, partitioned: bool) -> pa.StringArray:
    """What identifies each row. A partition path has no NUL in it."""
    keys = batch.column(KEY)
    if not partitioned:
        return keys
    return pc.binary_join_element_wise(batch.column(PARTITION).cast(pa.string()), keys, "\0")


def _shards(batch: pa.RecordBatch, locations: Locations, partitioned: bool) -> Int32Array:
    if not partitioned:
        shards: Int32Array = batch.column(SHARD).to_numpy()
        return shards
    paths = batch.column(PARTITION)
    ids = [locations.intern_partition(path) for path in paths.dictionary.to_pylist()]
    return np.array(ids, np.int32)[paths.indices.to_numpy()] if ids else np.empty(0, np.int32)


def _joined(arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], kind)


def _numbers(
    arrays: list[pa.Array] | list[Int32Array], kind: type[np.int32] | type[np.int64]
) -> npt.NDArray[np.int_]:
    parts = [np.asarray(array).astype(kind) for array in arrays]
    return np.concatenate(parts) if parts else np.empty(0, kind)
