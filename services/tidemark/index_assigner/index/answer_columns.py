"""The answer to one lookup, as columns that the tiers fill one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array
from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array
from tidemark.index_assigner.domain.tag import StoredKeys
from tidemark.index_assigner.index.ports import LookupAnswer, Tier


class AnswerColumns:
    """Answers for n keys; ``open``: the positions that no tier has answered yet."""

    def __init__(self, count: int) -> None:
        self.location = np.full(count, NO_LOCATION, np.int32)
        self.deleted_from = np.full(count, NO_LOCATION, np.int32)
        self.ordering = np.zeros(count, np.int64)
        self.has_ordering = np.zeros(count, np.bool_)
        self.exact = np.zeros(count, np.bool_)
        self.tier = np.full(count, Tier.NONE, np.int8)
        self.open: Int64Array = np.arange(count)

    def open_keys(self, keys: list[bytes]) -> list[bytes]:
        """The keys at the open positions."""
        return keys if len(self.open) == len(keys) else [keys[position] for position in self.open.tolist()]

    def close(
        self,
        answered: BoolArray,
        tier: Tier,
        location: Int32Array,
        ordering: Int64Array,
        has_ordering: BoolArray,
        exact: BoolArray,
    ) -> Int64Array:
        """Takes a tier's answers, and returns the answered positions.

        ``answered`` has one element per open position; the other columns have one per answered position.
        Example: positions [1, 4, 5] are open and ``answered`` is [True, False, True]: the columns have two
        elements, for the positions 1 and 5.
        """
        at = self.open[answered]
        self.tier[at] = tier
        self.location[at] = location
        self.ordering[at] = ordering
        self.has_ordering[at] = has_ordering
        self.exact[at] = exact
        self.open = self.open[~answered]
        return at

    def drop_committed(self, left: BoolArray) -> None:
        """Makes keys absent whose committed entry names a replaced file group (``left``).

        A key that an uncommitted entry answered is not changed.
        """
        at = np.flatnonzero(left & (self.tier != Tier.UNCOMMITTED))
        self.location[at] = NO_LOCATION
        self.ordering[at] = 0
        self.has_ordering[at] = self.exact[at] = False
        self.tier[at] = Tier.NONE

    def add_tombstones(self, at: Int64Array, ordering: Int64Array, deleted_from: Int32Array) -> None:
        """Adds stored tombstones of the absent keys at these positions; the greater ordering
        value is kept.
        """
        greater = ~self.has_ordering[at] | (ordering > self.ordering[at])
        self.ordering[at] = np.where(greater, ordering, self.ordering[at])
        self.has_ordering[at] = self.exact[at] = True
        self.deleted_from[at] = np.where(self.deleted_from[at] >= 0, self.deleted_from[at], deleted_from)

    def absent(self) -> Int64Array:
        """Positions of the keys that have no location."""
        return np.flatnonzero(self.location < 0)

    def answer(self) -> LookupAnswer:
        """The complete answer; keys that are still open are absent."""
        stored = StoredKeys(self.location >= 0, self.location, self.ordering, self.has_ordering, self.exact)
        return LookupAnswer(stored, self.tier, self.deleted_from)


def tier_counts(tiers: npt.NDArray[np.int8]) -> dict[Tier, int]:
    """How many keys each tier answered."""
    counts = np.bincount(tiers, minlength=len(Tier))
    return {tier: int(counts[tier]) for tier in Tier}
