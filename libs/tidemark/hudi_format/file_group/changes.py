"""The changes that log files make to a file group, as columns: one per data row or delete record, in log
order.

Invariant: changes are ordered as readers see them (log files by instant, version, write token; blocks and
rows in the order of the file). Hudi's readers first reduce a slice's logs to one change per key and only then
compare it with the base row (FORMAT.md, section 7.3); `reduce` is that first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.hudi_format.key_digest import key_hashes
from tidemark.hudi_format.ordering import NO_ORDERING, BoolArray, Int64Array
from tidemark.hudi_format.table_config import MergeMode


@dataclass(frozen=True, slots=True)
class Deletes:
    """Delete records to write or apply: each key with an ordering value, or unconditional. Three equal
    lengths.

    `ordering` is `NO_ORDERING` where `unconditional` is set. Under COMMIT_TIME_ORDERING all deletes are
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
        """Deletes of rows up to that ordering value; a delete with `NO_ORDERING` is unconditional."""
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
    """Per change: key, ordering value, whether it deletes, whether it deletes unconditionally, and its data
    row.

    `row` is the position in the table of data rows that belongs to these changes; -1 for a delete record.
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
        """The memory that the columns take, in bytes."""
        arrays = (self.ordering, self.is_delete, self.unconditional, self.row)
        return int(self.keys.nbytes) + sum(array.nbytes for array in arrays)

    @classmethod
    def of_rows(cls, keys: pa.Array, ordering: Int64Array, is_delete: BoolArray) -> Changes:
        """The changes that data rows make; `is_delete` marks the rows that say that they are deletes."""
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
        """The changes of all parts in order. `rows_of_parts`: the number of data rows in each part's table.

        A part's `row` moves by the rows of the parts before it: parts of 3 and 2 rows with row [0, -1] and
        [1] give [0, -1, 4].
        """
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

        By commit time that is the key's last change. By event time an unconditional delete cancels the key's
        changes before it; of the rest the change with the highest ordering value counts, the last one among
        equals, and the delete itself when nothing follows it. Example: "row at 30, unconditional delete, row
        at 10, row at 20" reduces to the row at 20.
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
        # A stable sort keeps the later one of equal values last. An unconditional delete ranks below all
        # values, so it comes first.
        rank = np.where(self.unconditional, NO_ORDERING, self.ordering)[candidates]
        candidates = candidates[np.argsort(rank, kind="stable")]
        return self.take(_last_of_each(key_of, candidates, distinct))


def _last_of_each(key_of: Int64Array, candidates: Int64Array, distinct: int) -> Int64Array:
    """Per key its last candidate; the result is in log order.

    When numpy assigns to repeated indices, the last assignment stays: keys 0, 1, 0 with candidates 5, 6, 7
    give winners [7, 6], sorted 6, 7.
    """
    winners = np.full(distinct, -1, np.int64)
    winners[key_of[candidates]] = candidates
    return np.sort(winners[winners >= 0])


class KeyPositions:
    """Where each of some distinct keys is, for look-ups that come in parts: `positions_in` goes through all
    keys for each part.

    Looked up are the keys' 64-bit hashes, and what is found is compared with the key. Keys of one hash are
    expected once in 2**64 pairs; then `positions_in` answers.
    """

    def __init__(self, keys: pa.Array) -> None:
        self._keys = keys
        hashes = key_hashes(keys)
        self._order = np.argsort(hashes)
        self._hashes = hashes[self._order]
        self.are_distinct = bool((self._hashes[1:] != self._hashes[:-1]).all())

    def of(self, values: pa.Array | pa.ChunkedArray) -> Int64Array:
        """Per value its position among the keys; -1 when it is not there."""
        if not self.are_distinct or values.null_count:
            return positions_in(values, self._keys)
        found = np.full(len(values), -1, np.int64)
        if not len(self._keys) or not len(values):
            return found
        hashes = key_hashes(values)
        # In their order the hashes are found in a third of the time.
        values_in_order = np.argsort(hashes)
        wanted = hashes[values_in_order]
        at = np.minimum(np.searchsorted(self._hashes, wanted), len(self._hashes) - 1)
        there = np.flatnonzero(self._hashes[at] == wanted)
        # Back from the order of the hashes to positions: the value that is third by hash may be row 0, and
        # the key that it was found at, second by hash, may be key 5. Then row 0 gets position 5.
        rows, positions = values_in_order[there], self._order[at[there]]
        by_row = np.argsort(rows)
        rows, positions = rows[by_row], positions[by_row]
        there_keys = combined(values.take(pa.array(rows)))
        if not there_keys.cast(self._keys.type).equals(self._keys.take(pa.array(positions))):
            return positions_in(values, self._keys)
        found[rows] = positions
        return found


def positions_in(values: pa.Array | pa.ChunkedArray, value_set: pa.Array) -> Int64Array:
    """Per value its position in `value_set`; -1 when it is not there."""
    positions = pc.fill_null(pc.index_in(values, value_set=value_set), -1)
    return np.asarray(positions).astype(np.int64)


def combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as one array, which is copied only where it has several chunks."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _strings(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = combined(keys)
    return array if array.type == pa.string() else array.cast(pa.string())
