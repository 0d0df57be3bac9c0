"""One effective event per key out of a batch in arrival order (ARCHITECTURE.md, "Assign", step 1).

The state of a key after a batch depends on one of its events alone: the last one without an ordering field,
else the one with the greatest ordering value (ties to the later). A delete without a value (a *null-value
delete*) takes the greatest value before it; when there is none in the batch, the stored one, which only the
caller knows. If the winner is stale against the stored value, a null-value delete of the same batch deletes
the stored row all the same: hence `had_null_delete`.
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
    """One entry per distinct key, in order of its winner's arrival.

    ``rows``: the winner's row in the batch. ``ordering``: its effective ordering value, meaningful where
    ``has_ordering``. ``had_null_delete``: any event of the key was a null-value delete. ``superseded``:
    events of the batch that lost against another one of the same batch.
    """

    rows: Int64Array
    ordering: Int64Array
    has_ordering: BoolArray
    had_null_delete: BoolArray
    superseded: int


def reduce_batch(
    keys: pa.StringArray, ordering: pa.Int64Array, deletes: BoolArray, ordered: bool
) -> EffectiveEvents:
    """Reduces rows given in arrival order.

    ``ordering`` null: no value given (only deletes may lack one when ``ordered``). ``ordered``: the table has
    an ordering field.
    """
    codes = pc.dictionary_encode(keys).indices.to_numpy(zero_copy_only=False).astype(np.int64)
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


def _last_of_each(
    order: Int64Array, starts: Int64Array, values: Int64Array, typed: BoolArray
) -> EffectiveEvents:
    ends = np.append(starts[1:], len(order)) - 1
    rows = np.sort(order[ends])
    none = np.zeros(len(rows), np.bool_)
    return EffectiveEvents(rows, values[rows], typed[rows], none, len(order) - len(rows))


def _greatest_of_each(
    order: Int64Array, starts: Int64Array, values: Int64Array, typed: BoolArray, null_deletes: BoolArray
) -> EffectiveEvents:
    """Per group the last row with the greatest effective value.

    Values become ranks (0: none), and the group's number times the rank range is added, so that one running
    maximum over all rows is a running maximum within each group.
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
