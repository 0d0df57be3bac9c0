"""What log files do to a file group, as columns: one change per data row or delete record, in the order
of the log.

Invariant: changes are ordered as readers see them (log files by instant, version, write token; blocks and
rows as they are in the file). Hudi's readers first reduce a slice's logs to one change per key and only
then compare it with the base row (FORMAT.md, section 7.3); `reduce` is that first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.ordering import NO_ORDERING, BoolArray, Int64Array
from tidemark.hudi_format.table_config import MergeMode


@dataclass(frozen=True, slots=True)
class Deletes:
    """Delete records to write or apply: each key with its ordering value, or unconditional.

    `ordering` holds `NO_ORDERING` where `unconditional` is set. Under COMMIT_TIME_ORDERING all are
    unconditional.
    """

    keys: pa.Array
    ordering: Int64Array
    unconditional: BoolArray

    def __post_init__(self) -> None:
        if not len(self.keys) == len(self.ordering) == len(self.unconditional):
            raise ValueError(
                f"{len(self.keys)} keys, {len(self.ordering)} orderings, {len(self.unconditional)} flags"
            )

    def __len__(self) -> int:
        return len(self.keys)

    @classmethod
    def with_ordering(cls, keys: pa.Array, ordering: Int64Array) -> Deletes:
        """Deletes that remove rows of no higher ordering value; `NO_ORDERING` makes one unconditional."""
        return cls(_strings(keys), ordering, ordering == NO_ORDERING)

    @classmethod
    def without_ordering(cls, keys: pa.Array) -> Deletes:
        """Unconditional deletes."""
        return cls(_strings(keys), np.full(len(keys), NO_ORDERING), np.ones(len(keys), dtype=np.bool_))

    @classmethod
    def none(cls) -> Deletes:
        """No deletes."""
        return cls.without_ordering(pa.array([], pa.string()))


@dataclass(frozen=True, slots=True)
class Changes:
    """Per change: key, ordering value, whether it deletes, whether it does so whatever the ordering, its row.

    `row` is the position in the table of data rows that belongs to these changes, -1 for a delete record.
    """

    keys: pa.Array
    ordering: Int64Array
    is_delete: BoolArray
    unconditional: BoolArray
    row: Int64Array

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        arrays = (self.ordering, self.is_delete, self.unconditional, self.row)
        return int(self.keys.nbytes) + sum(array.nbytes for array in arrays)

    @classmethod
    def of_rows(cls, keys: pa.Array, ordering: Int64Array, is_delete: BoolArray) -> Changes:
        """The changes that data rows make; `is_delete` marks rows that say they are deletes."""
        count = len(keys)
        return cls(keys, ordering, is_delete, np.zeros(count, np.bool_), np.arange(count))

    @classmethod
    def of_deletes(cls, deletes: Deletes) -> Changes:
        """The changes that delete records make."""
        count = len(deletes)
        return cls(
            deletes.keys,
            deletes.ordering,
            np.ones(count, np.bool_),
            deletes.unconditional,
            np.full(count, -1, np.int64),
        )

    @classmethod
    def concat(cls, parts: Sequence[Changes], rows_of_parts: Sequence[int]) -> Changes:
        """Changes one after the other; `rows_of_parts` is the number of data rows in each part's table."""
        if not parts:
            return cls.of_deletes(Deletes.none())
        starts = np.cumsum([0, *rows_of_parts[:-1]])
        rows = [
            np.where(part.row >= 0, part.row + start, -1) for part, start in zip(parts, starts, strict=True)
        ]
        return cls(
            pa.concat_arrays([part.keys for part in parts]),
            np.concatenate([part.ordering for part in parts]),
            np.concatenate([part.is_delete for part in parts]),
            np.concatenate([part.unconditional for part in parts]),
            np.concatenate(rows),
        )

    def take(self, positions: npt.NDArray[np.int64]) -> Changes:
        """The changes at these positions."""
        return Changes(
            self.keys.take(pa.array(positions)),
            self.ordering[positions],
            self.is_delete[positions],
            self.unconditional[positions],
            self.row[positions],
        )

    def reduce(self, mode: MergeMode) -> Changes:
        """One change per key: what the log as a whole does to it.

        By commit time the last one. By event time the last one of the highest ordering value among those
        that follow the key's last unconditional delete, or that delete when nothing follows it.
        """
        encoded = self.keys.dictionary_encode()
        count, distinct = len(self), len(encoded.dictionary)
        if distinct == count:
            return self
        key_of = np.asarray(encoded.indices).astype(np.int64)
        if mode is MergeMode.COMMIT_TIME_ORDERING:
            return self.take(_last_of_each(key_of, np.arange(count), distinct))
        candidates = np.arange(count)
        if self.unconditional.any():
            last_reset = np.full(distinct, -1, np.int64)
            resets = np.flatnonzero(self.unconditional)
            last_reset[key_of[resets]] = resets
            candidates = np.flatnonzero(candidates >= last_reset[key_of])
        # Stable: among equal ordering values the later change stays last. A reset is below all values and
        # comes first.
        rank = np.where(self.unconditional, NO_ORDERING, self.ordering)[candidates]
        candidates = candidates[np.argsort(rank, kind="stable")]
        return self.take(_last_of_each(key_of, candidates, distinct))


def _last_of_each(key_of: Int64Array, candidates: Int64Array, distinct: int) -> Int64Array:
    """For each key its last candidate, in the order of the log. Numpy assigns repeated indices in order."""
    winners = np.full(distinct, -1, np.int64)
    winners[key_of[candidates]] = candidates
    return np.sort(winners[winners >= 0])


def positions_in(values: pa.Array | pa.ChunkedArray, value_set: pa.Array) -> Int64Array:
    """Per value its position in `value_set`, -1 when it is not there."""
    found = pc.fill_null(pc.index_in(values, value_set=value_set), -1)
    return np.asarray(found).astype(np.int64)


def combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array."""
    if isinstance(column, pa.Array):
        return column
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _strings(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = combined(keys)
    return array if array.type == pa.string() else array.cast(pa.string())
