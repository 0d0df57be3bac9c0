"""A hash table from keys to slots in NumPy arrays, asked and filled for a whole batch at once.

The table has slots only: keys and hashes are with its owner, which compares them. It is open addressing with
linear probing: a key is at the place that its hash gives, or behind it, before the first free place. With
four places, hashes 6 and 10 both begin at place 2: the first key is there, the second at place 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from tidemark.index_assigner.domain.reduce import BoolArray, Int64Array

HashesOf: TypeAlias = Callable[[Int64Array], Int64Array]
"""The hash of each slot's key."""
NO_SLOT: Final = -1
_FREE: Final = -1
_GONE: Final = -2
"""A place whose key was taken back: a search goes on behind it."""
_PLACES_MIN: Final = 64
_PLACES_AT_ONCE: Final = 1 << 17


class NewestSlots:
    """Key → its newest slot. Slots below ``floor`` do not count: raising it forgets them all at once."""

    def __init__(self) -> None:
        self.floor = 0
        self._table = np.full(_PLACES_MIN, _FREE, np.int64)
        self._used = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the table."""
        return self._table.nbytes

    def find(
        self, hashes: Int64Array, hashes_of: HashesOf, same: Callable[[Int64Array, Int64Array], BoolArray]
    ) -> tuple[Int64Array, Int64Array]:
        """The slot of each key (`NO_SLOT` where there is none), and its place: without a slot the free one
        where the search ended.

        ``same(asked, slots)``: whether the key at each position of the batch is the one of that slot. It is
        asked once for all keys that found a slot of their hash, and not at each place of the search: a call
        costs far more than what it compares in a small batch. It is asked again only about keys that met
        another key of their hash.
        """
        mask = len(self._table) - 1
        places, slots = hashes & mask, np.full(len(hashes), NO_SLOT, np.int64)
        left = np.arange(len(hashes))
        while left.size:
            self._walk(left, hashes, hashes_of, places, slots)
            met = left[slots[left] != NO_SLOT]
            left = met[~same(met, slots[met])]
            slots[left] = NO_SLOT
            places[left] = (places[left] + 1) & mask
        return slots, places

    def _walk(
        self,
        left: Int64Array,
        hashes: Int64Array,
        hashes_of: HashesOf,
        places: Int64Array,
        slots: Int64Array,
    ) -> None:
        """Goes on from each key's place to the first slot of its hash, or to the first free place."""
        mask = len(self._table) - 1
        while left.size:
            held = self._table[places[left]]
            hit = np.zeros(len(left), np.bool_)
            live = np.flatnonzero(held >= self.floor)
            hit[live] = hashes_of(held[live]) == hashes[left[live]]
            slots[left[hit]] = held[hit]
            left = left[~hit & (held != _FREE)]
            places[left] = (places[left] + 1) & mask

    def put(self, places: Int64Array, before: Int64Array, slots: Int64Array) -> None:
        """Sets the slots of keys for which `find` gave ``places`` and ``before``.

        The keys must be unique, and `make_room` was called before `find`.
        """
        known = before != NO_SLOT
        self._table[places[known]] = slots[known]
        self._insert(places[~known], slots[~known])

    def restore(self, places: Int64Array, slots: Int64Array) -> None:
        """Gives the keys at these places an older slot; one below ``floor`` means that they have none."""
        self._table[places] = np.where(slots >= self.floor, slots, _GONE)

    def make_room(self, count: int, hashes: HashesOf) -> None:
        """Makes the table so large that ``count`` more keys leave a third of its places free."""
        if (self._used + count) * 3 > len(self._table) * 2:
            self._rebuild(count, hashes)

    def give_back(self, hashes: HashesOf) -> None:
        """Makes the table smaller where less than an eighth of its places counts."""
        if len(self._table) > max(_PLACES_MIN, 8 * self._count()):
            self._rebuild(0, hashes)

    def _count(self) -> int:
        """How many of the places count."""
        return int((self._table >= self.floor).sum())

    def _rebuild(self, count: int, hashes: HashesOf) -> None:
        places = 1 << (2 * (self._count() + count) - 1).bit_length()
        former, self._table = self._table, np.full(max(places, _PLACES_MIN), _FREE, np.int64)
        self._used = 0
        # A part at a time: hashes and places of all slots would take several times the table's memory.
        for first in range(0, len(former), _PLACES_AT_ONCE):
            part = former[first : first + _PLACES_AT_ONCE]
            live = part[part >= self.floor]
            self._insert(hashes(live) & (len(self._table) - 1), live)

    def _insert(self, places: Int64Array, slots: Int64Array) -> None:
        """Puts slots of new keys at the first free place from theirs on.

        Of several that want one place the last gets it; the others see another slot there, and go on.
        """
        table, mask = self._table, len(self._table) - 1
        self._used += len(slots)
        while slots.size:
            free = table[places] == _FREE
            table[places[free]] = slots[free]
            lost = table[places] != slots
            places, slots = (places[lost] + 1) & mask, slots[lost]
