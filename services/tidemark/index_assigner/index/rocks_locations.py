"""Numbers of file groups that stay the same across restarts, for entries in RocksDB."""

from __future__ import annotations

import numpy as np

from tidemark.index_assigner.domain.locations import NO_LOCATION, Int32Array, Locations
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.rocks_layout import LOCATION_PREFIX

_RANGE_END = LOCATION_PREFIX[:1] + bytes([LOCATION_PREFIX[1] + 1])


class StoredLocations:
    """Maps this process's location ids to the stored ones and back; NO_LOCATION maps to itself.

    A location is written before the first entry that refers to it, and never removed: there are at most as
    many as the table has had file groups.
    """

    def __init__(self, rocks: RocksTier, locations: Locations) -> None:
        self._rocks, self._locations = rocks, locations
        self._stored_of = np.full(1024, NO_LOCATION, np.int32)
        self._local_of = np.full(1024, NO_LOCATION, np.int32)
        self._count = 0
        for key, value in rocks.items_between(LOCATION_PREFIX, _RANGE_END):
            partition_path, _, file_id = value.decode().partition("\0")
            number = int.from_bytes(key[2:], "big")
            self._link(number, locations.intern(partition_path, file_id))
            self._count = max(self._count, number + 1)

    def to_stored(self, local: Int32Array) -> Int32Array:
        """The stored ids. New locations get one, which is on disk when this returns."""
        distinct = np.unique(local)
        distinct = distinct[distinct >= 0]
        if distinct.size:
            self._stored_of = _grown(self._stored_of, int(distinct[-1]))
            self._add(distinct[self._stored_of[distinct] < 0].tolist())
        return np.where(local >= 0, self._stored_of[local], NO_LOCATION).astype(np.int32)

    def to_local(self, stored: Int32Array) -> Int32Array:
        """This process's ids of stored ids."""
        return np.where(stored >= 0, self._local_of[stored], NO_LOCATION).astype(np.int32)

    def names(self, stored: list[int]) -> list[tuple[str, str]]:
        """Partition path and file id of each stored id. Any thread may ask."""
        local = self._local_of[stored].tolist()
        paths, file_ids = self._locations.partition_paths, self._locations.file_ids
        return [(paths[place], file_ids[place]) for place in local]

    def _add(self, new: list[int]) -> None:
        if not new:
            return
        numbers = range(self._count, self._count + len(new))
        names = [
            f"{self._locations.partition_paths[local]}\0{self._locations.file_ids[local]}".encode()
            for local in new
        ]
        self._rocks.write([([LOCATION_PREFIX + number.to_bytes(4, "big") for number in numbers], names)])
        for number, local in zip(numbers, new, strict=True):
            self._link(number, local)
        self._count += len(new)

    def _link(self, stored: int, local: int) -> None:
        self._stored_of = _grown(self._stored_of, local)
        self._local_of = _grown(self._local_of, stored)
        self._stored_of[local] = stored
        self._local_of[stored] = local


def _grown(numbers: Int32Array, index: int) -> Int32Array:
    """The array, at least ``index`` + 1 long; new cells are NO_LOCATION. It doubles, so
    growing stays rare.
    """
    if index < len(numbers):
        return numbers
    grown = np.full(max(index + 1, 2 * len(numbers)), NO_LOCATION, np.int32)
    grown[: len(numbers)] = numbers
    return grown
