"""Record locations as small integers, so that whole batches of them are numpy arrays.

Ids are of this process only: they never leave it. Interned locations are not forgotten; a process holds as
many as the table has file groups.
"""

from __future__ import annotations

import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

NO_LOCATION: Final = -1

Int32Array = npt.NDArray[np.int32]


class Locations:
    """Interns (partition path, file id) and partition paths."""

    def __init__(self, data_partitions: int) -> None:
        self._data_partitions = data_partitions
        self._by_name: dict[tuple[str, str], int] = {}
        self._partition_ids: dict[str, int] = {}
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
        found = self._by_name.get(name)
        if found is not None:
            return found
        location = len(self.file_ids)
        self._by_name[name] = location
        self.partition_paths.append(partition_path)
        self.file_ids.append(file_id)
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
        found = self._partition_ids.get(partition_path)
        if found is None:
            found = self._partition_ids[partition_path] = len(self.partition_names)
            self.partition_names.append(partition_path)
        return found

    def partitions_of(self, locations: Int32Array) -> Int32Array:
        """Partition id per location id; undefined for NO_LOCATION."""
        return self._partition_of[locations]

    def topic_partitions_of(self, locations: Int32Array) -> Int32Array:
        """Partition of the data topic per location id; undefined for NO_LOCATION."""
        return self._topic_partition_of[locations]


def data_partition(partition_path: str, file_id: str, partitions: int) -> int:
    """Which partition of the data topic a file group's rows travel through."""
    return zlib.crc32(f"{partition_path}\0{file_id}".encode()) % partitions
