"""Decides what each effective event does, given what the index stores of its key (ARCHITECTURE.md, "Assign").

Pure and columnar: all arrays have one element per key.

1. `needs_exact` says for which keys the stored ordering value has to be exact; the caller looks it up.
2. `tag_events` decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from tidemark.index_assigner.domain.locations import Int32Array
from tidemark.index_assigner.domain.reduce import BoolArray, EffectiveEvents, Int64Array


class Tag(IntEnum):
    """What happens to the key. SUPERSEDED: stale against the stored value. NO_OP: delete of
    an unknown key.
    """

    INSERT = 0
    UPDATE = 1
    MOVE = 2
    DELETE = 3
    SUPERSEDED = 4
    NO_OP = 5


@dataclass(frozen=True)
class StoredKeys:
    """What the index knows of each key: the location of a present one, the tombstone of an absent one.

    ``ordering``: of the stored row where ``present``, else of the tombstone; meaningful where
    ``has_ordering``. ``exact``: ``ordering`` is the stored value itself, and not a lower bound of it (a
    tombstone's is always exact).
    """

    present: BoolArray
    location: Int32Array
    ordering: Int64Array
    has_ordering: BoolArray
    exact: BoolArray


@dataclass(frozen=True)
class TaggedKeys:
    """The decision per key. ``ordering``, ``has_ordering``, ``exact``: what the index and tombstones store
    next.
    """

    tag: npt.NDArray[np.int8]
    ordering: Int64Array
    has_ordering: BoolArray
    exact: BoolArray


def needs_exact(
    events: EffectiveEvents, deletes: BoolArray, moves: BoolArray, stored: StoredKeys, ordered: bool
) -> BoolArray:
    """Whether each key's stored ordering value must be exact before `tag_events`.

    ``deletes``, ``moves``: the event is a delete, an upsert into another partition than the stored one. Those
    need it. Judged by a lower bound, a stale delete would remove a newer row, and a stale move would delete
    the newer row and insert the older one elsewhere. For a stale update in place the writer's merge keeps
    the newer row by itself.
    """
    if not ordered:
        return np.zeros(len(deletes), np.bool_)
    return stored.present & ~stored.exact & (deletes | moves | events.had_null_delete)


def tag_events(
    events: EffectiveEvents, deletes: BoolArray, moves: BoolArray, stored: StoredKeys, ordered: bool
) -> TaggedKeys:
    """Decides per key; arguments as for `needs_exact`."""
    stale = np.zeros(len(deletes), np.bool_)
    if ordered:
        stale = stored.has_ordering & events.has_ordering & (events.ordering < stored.ordering)
    upserts = ~deletes
    tag = np.full(len(deletes), Tag.SUPERSEDED, np.int8)
    live = stored.present & ~stale
    tag[live & upserts & ~moves] = Tag.UPDATE
    tag[live & upserts & moves] = Tag.MOVE
    # A null-value delete of the batch removes the stored row although a typed event won and is stale.
    deleted_anyway = stored.present & stale & events.had_null_delete
    tag[(live & deletes) | deleted_anyway] = Tag.DELETE
    tag[~stored.present & ~stale & upserts] = Tag.INSERT
    tag[~stored.present & deletes] = Tag.NO_OP

    takes_stored = stored.present & (deleted_anyway | (deletes & ~events.has_ordering))
    keeps_tombstone = ~stored.present & (stale | ~events.has_ordering)
    from_stored = takes_stored | keeps_tombstone
    has_ordering = np.where(from_stored, stored.has_ordering, events.has_ordering)
    exact = has_ordering & ((tag != Tag.UPDATE) | stored.exact)
    return TaggedKeys(
        tag=tag,
        ordering=np.where(from_stored, stored.ordering, events.ordering),
        has_ordering=has_ordering,
        exact=exact,
    )
