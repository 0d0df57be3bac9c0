"""Where inserts go: file groups leased per table partition so that base files approach a target size.

Pure. The planner knows the size of each file group from the metadata table's file listing and from the
commits since; a lease reserves room in a group. All assigners get the same group of a partition until it is
full, so the number of files does not grow with the number of assigners. A lease is a hint: if it is lost, or
if more rows go to the group than were leased, only file sizes suffer (ARCHITECTURE.md, "Assign").

Example: the target is 120 MB and a partition has groups of 119 MB and 40 MB. Inserts go to the first one
until its last megabyte is leased, then to the second one, then to a new group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

ASSUMED_RATIO: Final = 0.35
"""Bytes on storage per Arrow byte before anything was measured on the table."""
_RATIO_WEIGHT: Final = 0.2
_MIN_LEASE_RECORDS: Final = 1_000


@dataclass
class _Group:
    file_id: str
    stored: int
    reserved: float = 0.0

    @property
    def size(self) -> float:
        return self.stored + self.reserved


@dataclass(frozen=True)
class FileGroupLease:
    """Up to ``records`` inserts of the partition may go to the file group; then the assigner asks again."""

    partition_path: str
    file_id: str
    records: int


class FileGroupPlanner:
    """Leases file groups by partition path. ``target_bytes``: the wanted size of a base file on storage.

    The caller makes the ids of new file groups.
    """

    def __init__(self, target_bytes: int) -> None:
        self._target = target_bytes
        self._ratio = ASSUMED_RATIO
        self._partitions: dict[str, dict[str, _Group]] = {}

    def load(self, sizes: Iterable[tuple[str, str, int]]) -> None:
        """Replaces all sizes by (partition path, file id, bytes of the latest slice); drops reservations."""
        self._partitions = {}
        for partition, file_id, stored in sizes:
            self._partitions.setdefault(partition, {})[file_id] = _Group(file_id, stored)

    def written(self, partition: str, file_id: str, slice_bytes: int) -> None:
        """A commit left the group's latest slice at this size; drops the group's reservations."""
        self._partitions.setdefault(partition, {})[file_id] = _Group(file_id, slice_bytes)

    def compacted(self, partition: str, file_id: str, slice_bytes: int) -> None:
        """A compaction left the group's latest slice at this size. Reservations stay: their rows are not
        written yet. A group that is not leased from (another engine is about to cluster it) stays so.
        """
        group = self._partitions.get(partition, {}).get(file_id)
        if group is not None:
            group.stored = slice_bytes

    def learn_ratio(self, arrow_bytes: int, stored_bytes: int) -> None:
        """Learns storage bytes per Arrow byte from an epoch's inserts, as a moving average over epochs."""
        if arrow_bytes > 0 and stored_bytes > 0:
            measured = min(max(stored_bytes / arrow_bytes, 0.02), 2.0)
            self._ratio += _RATIO_WEIGHT * (measured - self._ratio)

    def lease(
        self,
        partition: str,
        records: int,
        arrow_bytes: int,
        new_file_id: str,
        shut: Collection[str] = (),
    ) -> FileGroupLease:
        """Leases room in the fullest group that has room for one record and is not ``shut`` (file ids), else
        in a new ``new_file_id``.

        ``records``, ``arrow_bytes``: the inserts that wait. The lease is for as many records as fit the
        group, but for at most four times those that wait (or 1,000 if that is more), and for at least one.
        """
        groups = self._partitions.setdefault(partition, {})
        per_record = max(arrow_bytes * self._ratio / max(records, 1), 1.0)
        open_groups = [
            group
            for group in groups.values()
            if self._target - group.size >= per_record and group.file_id not in shut
        ]
        group = max(open_groups, key=lambda g: (g.size, g.file_id), default=None)
        if group is None:
            group = groups[new_file_id] = _Group(new_file_id, 0)
        fitting = int((self._target - group.size) / per_record)
        granted = max(min(fitting, max(records * 4, _MIN_LEASE_RECORDS)), 1)
        group.reserved += granted * per_record
        return FileGroupLease(partition, group.file_id, granted)

    def stats(self) -> dict[str, float]:
        """For `tidemark status`: the number of file groups, their bytes, and the target size."""
        sizes = [g.stored for groups in self._partitions.values() for g in groups.values()]
        return {
            "file_groups": float(len(sizes)),
            "bytes": float(sum(sizes)),
            "target_bytes": float(self._target),
        }
