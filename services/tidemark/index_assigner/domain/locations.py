"""Record locations as small integers, so that the locations of a batch are one numpy array.

The integers are valid in this process only and never leave it. Interned locations are never forgotten: a
process holds at most as many as the table has had file groups, and one name more (`asked_partition`).
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

NO_LOCATION: Final = -1

Int32Array = npt.NDArray[np.int32]


class Locations:
    """Gives ids to file groups, (partition path, file id), and to table partitions. For one thread.

    Both are numbered 0, 1, 2 … in order of first mention. ``partition_paths`` and ``file_ids`` are indexed by
    location id, ``partition_names`` by partition id.
    """

    def __init__(self, data_partitions: int) -> None:
        self._data_partitions = data_partitions
        self._by_name: dict[tuple[str, str], int] = {}
        self._partition_ids: dict[str, int] = {}
        self._asked: int | None = None
        self.partition_paths: list[str] = []
        self.file_ids: list[str] = []
        self.partition_names: list[str] = []
        self._partition_of = np.empty(1024, np.int32)
        self._topic_partition_of = np.empty(1024, np.int32)

    def __len__(self) -> int:
        return len(self.file_ids)

    def intern(self, partition_path: str, file_id: str) -> int:
        """The id of the location, new or known."""
        name = (partition_path, file_id)
        known = self._by_name.get(name)
        if known is not None:
            return known
        location = len(self.file_ids)
        self._by_name[name] = location
        self.partition_paths.append(partition_path)
        self.file_ids.append(file_id)
        # Both arrays are indexed by location, so that a batch is one numpy lookup: with partitions [0, 0,
        # 1] of locations 0 to 2, `partitions_of([2, 0])` is [1, 0]. They double when they are full.
        if location == len(self._partition_of):
            self._partition_of = np.concatenate([self._partition_of, np.empty_like(self._partition_of)])
            self._topic_partition_of = np.concatenate(
                [self._topic_partition_of, np.empty_like(self._topic_partition_of)]
            )
        self._partition_of[location] = self.intern_partition(partition_path)
        self._topic_partition_of[location] = data_partition(partition_path, file_id, self._data_partitions)
        return location

    def intern_partition(self, partition_path: str) -> int:
        """The id of a table partition, new or known."""
        known = self._partition_ids.get(partition_path)
        if known is None:
            known = self._partition_ids[partition_path] = len(self.partition_names)
            self.partition_names.append(partition_path)
        return known

    def asked_partition(self, partition_path: str) -> int:
        """The id of a partition that somebody asks for: its own, or one for all that are unknown. The name of
        that one is this path until the next call, so use it only until then.

        Whoever may look up a key can name any text, and interned names are never forgotten.
        """
        known = self._partition_ids.get(partition_path)
        if known is not None:
            return known
        if self._asked is None:
            self._asked = len(self.partition_names)
            self.partition_names.append(partition_path)
        self.partition_names[self._asked] = partition_path
        return self._asked

    def partitions_of(self, locations: Int32Array) -> Int32Array:
        """The id of the table partition of each location; undefined for NO_LOCATION."""
        return self._partition_of[locations]

    def topic_partitions_of(self, locations: Int32Array) -> Int32Array:
        """The partition of the data topic of each location; undefined for NO_LOCATION."""
        return self._topic_partition_of[locations]


def data_partition(partition_path: str, file_id: str, partitions: int) -> int:
    """The partition of the data topic to which all rows of the file group go (ARCHITECTURE.md, "Assign")."""
    return zlib.crc32(f"{partition_path}\0{file_id}".encode()) % partitions
