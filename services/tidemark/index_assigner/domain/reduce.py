"""Reduces a batch in arrival order to one effective event per key (ARCHITECTURE.md, "Assign", step 1), or per
key and partition with a partitioned record index.

Only one event of a key decides its state after the batch:

* Without an ordering field: the last one.
* With an ordering field: the one with the greatest ordering value; of equal ones the later.

A delete without an ordering value (a *null-value delete*) gets the greatest value before it in the batch.
If there is none, it gets the stored value, which only the caller knows. If the winner is stale against the
stored value, a null-value delete of the same batch still deletes the stored row: therefore the result has
`had_null_delete`.

Example, key k: upsert with value 5, null-value delete, upsert with value 3. The delete gets 5 and wins over
the first upsert as the later of equals; the upsert with 3 loses. Effective event: delete with value 5.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class EffectiveEvents:
    """Arrays with one element per distinct key, in order of the winners' arrival.

    ``rows``: the winner's row in the batch. ``ordering``: its effective ordering value, meaningful where
    ``has_ordering``. ``had_null_delete``: whether any event of the key was a null-value delete.
    ``superseded``: number of events of the batch that lost against another one of it.
    """

    rows: Int64Array
    ordering: Int64Array
    has_ordering: BoolArray
    had_null_delete: BoolArray
    superseded: int


def reduce_batch(
    keys: pa.StringArray,
    ordering: pa.Int64Array,
    deletes: BoolArray,
    ordered: bool,
    partitions: npt.NDArray[np.int32] | None = None,
) -> EffectiveEvents:
    """Reduces rows in arrival order; all arrays have one element per row.

    ``partitions``: the table partition of each row, where a key has a row in each; None: it has one in all.
    ``ordering``: null where the event has no value (when ``ordered``, only deletes may lack one).
    ``ordered``: the table has an ordering field.
    """
    # Integers instead of keys: "a", "b", "a" become the codes 0, 1, 0. A stable sort by code puts the rows
    # of a key next to each other, in order of arrival: rows 0, 2, 1; groups start at positions 0 and 2.
    codes = pc.dictionary_encode(keys).indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if partitions is not None:
        codes = _of_pairs(codes, partitions)
    values = pc.fill_null(ordering, 0).to_numpy(zero_copy_only=False)
    typed = ordering.is_valid().to_numpy(zero_copy_only=False)
    null_deletes = deletes & ~typed if ordered else np.zeros(len(codes), np.bool_)
    count = int(codes.max()) + 1 if len(codes) else 0
    if count == len(codes):
        return EffectiveEvents(np.arange(count), values, typed, null_deletes, 0)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    if not ordered:
        return _last_of_each(order, starts, values, typed)
    return _greatest_of_each(order, starts, values, typed, null_deletes)


def _of_pairs(codes: Int64Array, partitions: npt.NDArray[np.int32]) -> Int64Array:
    """A code for each distinct (key, partition): the codes [0, 1, 0, 0] in the partitions [4, 4, 6, 4] become
    [0, 2, 1, 0].
    """
    width = int(partitions.max(initial=0)) + 1
    _, of_pairs = np.unique(codes * width + partitions, return_inverse=True)
    codes_of_pairs: Int64Array = of_pairs.astype(np.int64)
    return codes_of_pairs


def _last_of_each(
    order: Int64Array, starts: Int64Array, values: Int64Array, typed: BoolArray
) -> EffectiveEvents:
    # Rows 0, 2 of one key and 1 of another lie in the order 0, 2, 1; the groups end at 1 and 2: rows 2 and 1.
    ends = np.append(starts[1:], len(order)) - 1
    rows = np.sort(order[ends])
    none = np.zeros(len(rows), np.bool_)
    return EffectiveEvents(rows, values[rows], typed[rows], none, len(order) - len(rows))


def _greatest_of_each(
    order: Int64Array, starts: Int64Array, values: Int64Array, typed: BoolArray, null_deletes: BoolArray
) -> EffectiveEvents:
    """Finds in each group the last row with the greatest effective value.

    A loop over groups would be slow, so one running maximum over all rows does it. Values become ranks (0: no
    value), and each group adds its number times the number of ranks, so a later group's are always greater.

    Example: group 0 has the values 7, null-value delete; group 1 has 5. Ranks: [2, 0, 1]; with 3 ranks the
    base is [0, 0, 3], the sum [2, 0, 4], and the running maximum [2, 2, 4]. So the delete's effective value
    is 2, that of value 7; it is the greatest of group 0, and the delete is the last row that has it: it
    wins.
    """
    size = len(order)
    lengths = np.diff(np.append(starts, size))
    group = np.repeat(np.arange(len(starts)), lengths)
    distinct, ranks = np.unique(values[order], return_inverse=True)
    ranks = np.where(typed[order], ranks + 1, 0)
    base = group * (len(distinct) + 1)
    running = np.maximum.accumulate(base + ranks)
    effective = np.where(null_deletes[order], running, base + ranks)
    greatest = np.repeat(running[starts + lengths - 1], lengths)
    winners = np.maximum.reduceat(np.where(effective == greatest, np.arange(size), -1), starts)
    had_null = np.logical_or.reduceat(null_deletes[order], starts)
    rank = effective[winners] - base[winners]
    rows = order[winners]
    arrival = np.argsort(rows, kind="stable")
    return EffectiveEvents(
        rows=rows[arrival],
        ordering=distinct[np.maximum(rank - 1, 0)][arrival],
        has_ordering=(rank > 0)[arrival],
        had_null_delete=had_null[arrival],
        superseded=size - len(rows),
    )
