"""Leases file groups to assigners, and keeps their sizes up to date from commits; thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.domain.file_groups import FileGroupLease, FileGroupPlanner
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.table_view import TableView
from tidemark.stream_runtime.ids import IdSource


class SuspendedError(CoordinatorError):
    """The table's file groups are being listed anew, so none can be leased: ask again."""

    kind = ErrorKind.RETRYABLE


# Files below this size teach nothing about bytes per row: footer and bloom filter are too large a part of
# them.
_LEARN_FROM_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Want:
    """Inserts that an assigner has to place: their number, and their Arrow bytes."""

    partition_path: str
    records: int
    arrow_bytes: int


class Placement:
    """Thread-safe `FileGroupPlanner`; sizes are those of the latest file slices."""

    def __init__(self, target_bytes: int, ids: IdSource) -> None:
        self._ids = ids
        self._lock = threading.Lock()
        self._planner = FileGroupPlanner(target_bytes)
        self._slice_bytes: dict[tuple[str, str], int] = {}
        self._suspended = False
        self._row_bytes = 0.0

    def suspend(self) -> None:
        """Nothing is leased until the next `load`."""
        with self._lock:
            self._suspended = True

    def load(self, files: ListedFiles, view: TableView) -> None:
        """Replaces all sizes by those of the metadata table's listing: at the start, and after a rewind.

        File groups under a pending clustering of another engine are known, but not leased.
        """
        slices = view.slices(files.names())
        with self._lock:
            self._slice_bytes = {
                (slice_.partition_path, slice_.file_id): _slice_bytes(files, slice_) for slice_ in slices
            }
            self._planner.load(
                (*group, size) for group, size in self._slice_bytes.items() if view.takes_inserts(group)
            )
            self._suspended = False

    def lease(self, wants: Sequence[Want]) -> list[FileGroupLease]:
        """One or more leases for each want, in the order of the wants, until all its records are placed.

        Raises SuspendedError after a rewind, until the files are listed anew: a group may have been replaced,
        and nobody would read rows that go to it.
        """
        leases: list[FileGroupLease] = []
        with self._lock:
            if self._suspended:
                raise SuspendedError("the table's files are being listed anew: ask again")
            self._see_rows(wants)
            for want in wants:
                left = want.records
                while left > 0:
                    share = want.arrow_bytes * left // want.records
                    file_id = f"{self._ids.uuid()}-0"
                    lease = self._planner.lease(want.partition_path, left, share, file_id)
                    leases.append(lease)
                    left -= lease.records
        return leases

    def committed(self, report: Report) -> None:
        """Takes the sizes of file slices from a commit: log files add to a slice, a base file begins one."""
        with self._lock:
            for stat in report.data:
                name = (stat.partition_path, stat.file_id)
                grown = self._slice_bytes.get(name, 0) if stat.log_files else 0
                self._slice_bytes[name] = grown + stat.file_size_in_bytes
                is_new = not stat.log_files and stat.num_inserts == stat.num_writes
                if is_new and stat.file_size_in_bytes >= _LEARN_FROM_BYTES:
                    arrow_bytes = round(self._row_bytes * stat.num_writes)
                    self._planner.learn_ratio(arrow_bytes, stat.file_size_in_bytes)
                self._planner.written(stat.partition_path, stat.file_id, self._slice_bytes[name])

    def _see_rows(self, wants: Sequence[Want]) -> None:
        """Keeps the mean Arrow bytes of a row, by the latest wants."""
        records = sum(want.records for want in wants)
        if records:
            self._row_bytes = sum(want.arrow_bytes for want in wants) / records

    def slices(self) -> list[tuple[str, str, int]]:
        """(partition path, file id, bytes of its latest slice) of every file group that has one."""
        with self._lock:
            known = list(self._slice_bytes.items())
        return [(partition_path, file_id, size) for (partition_path, file_id), size in known]

    def figures(self) -> dict[str, float]:
        """For `tidemark status`: the number of file groups, their bytes, and the target size."""
        with self._lock:
            return self._planner.figures()


def _slice_bytes(files: ListedFiles, slice_: FileSlice) -> int:
    sizes = files.files(slice_.partition_path)
    names = [*([slice_.base_file] if slice_.base_file else []), *slice_.log_files]
    return sum(sizes.get(name, 0) for name in names)
