"""Leases file groups to assigners, and keeps the stats of their newest slices up to date; thread-safe."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.listed_slices import index_stats, listed_stats
from tidemark.commit_coordinator.domain.file_groups import FileGroupLease, FileGroupPlanner
from tidemark.commit_coordinator.domain.slice_stats import (
    FailedMerge,
    GroupName,
    SliceBook,
    SliceStats,
    TableSlices,
)
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind
from tidemark.hudi_format.file_group.readable_logs import ReadableLogs
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_view import TableView
from tidemark.stream_runtime.ids import IdSource


class SuspendedError(CoordinatorError):
    """The table's file groups are being listed anew, so none can be leased: ask again."""

    kind = ErrorKind.RETRYABLE


# Files below this size teach nothing about bytes per row: footer and bloom filter are too large a part of
# them.
_LEARN_FROM_BYTES: Final = 1 << 20
# Commits of table services that may be told again: each kind has one open action.
_TOLD_MAX: Final = 64


@dataclass(frozen=True)
class Want:
    """Inserts that an assigner has to place: their number, and their Arrow bytes."""

    partition_path: str
    records: int
    arrow_bytes: int


@dataclass(frozen=True)
class CompactedSlice:
    """What a compaction did to one file group: the new base file's bytes, and the logs that it read."""

    partition_path: str
    file_id: str
    base_bytes: int
    log_count: int
    log_bytes: int


class Placement:
    """Thread-safe `FileGroupPlanner`, with the stats of the newest slice of each file group.

    ``snapshot`` is what the triggers of table services get. The stats are reloaded after a rewind, and kept
    up to date by our own commits and services in between.
    """

    def __init__(self, target_bytes: int, ids: IdSource) -> None:
        self._ids = ids
        self._lock = threading.Lock()
        self._planner = FileGroupPlanner(target_bytes)
        self._data = SliceBook()
        self._index = SliceBook()
        self._held: frozenset[GroupName] = frozenset()
        self._failed: Mapping[GroupName, FailedMerge] = {}
        self._is_listed = False
        self._listing = 0
        self._suspended = False
        self._row_bytes = 0.0
        self._told: deque[tuple[str, int]] = deque(maxlen=_TOLD_MAX)

    def suspend(self) -> None:
        """Nothing is leased until the next `load`."""
        with self._lock:
            self._suspended = True
            self._is_listed = False

    def load(
        self, files: ListedFiles, view: TableView, index: Iterable[SliceStats], own: Collection[str] = ()
    ) -> None:
        """Replaces all stats by those of the metadata table's listing: at the start, and after a rewind.

        ``index``: the newest slices of the metadata table. File groups under a pending clustering of another
        engine are known, but not leased. ``own``: requested times of our own open actions. A compaction that
        a predecessor has begun is completed or taken back, so its file groups are not left to others.
        """
        newest = view.slices(files.names())
        slices = [listed_stats(slice_, files.files(slice_.partition_path)) for slice_ in newest]
        with self._lock:
            self._data, self._index = SliceBook(slices), SliceBook(index)
            self._held = view.under_plans(own)
            self._planner.load(
                (*slice_.group, slice_.size) for slice_ in slices if view.takes_inserts(slice_.group)
            )
            self._suspended = False
            self._is_listed = True
            self._listing += 1
            self._forget_merged()

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
                left, path = want.records, want.partition_path
                shut = {file_id for partition, file_id in self._failed if partition == path}
                while left > 0:
                    share = want.arrow_bytes * left // want.records
                    file_id = f"{self._ids.uuid()}-0"
                    lease = self._planner.lease(path, left, share, file_id, shut)
                    leases.append(lease)
                    left -= lease.records
        return leases

    def committed(self, report: Report, at_ms: int) -> None:
        """Takes over what a commit wrote: log files add to a slice, a base file begins one.

        ``at_ms``: requested time of the commit (Unix epoch).
        """
        with self._lock:
            for stat in report.data:
                known = self._data.of(stat.partition_path, stat.file_id)
                size = stat.file_size_in_bytes
                grown = known.with_log(size, at_ms) if stat.log_files else known.with_base(size)
                self._data.put(grown)
                is_new = not stat.log_files and stat.num_inserts == stat.num_writes
                if is_new and size >= _LEARN_FROM_BYTES:
                    arrow_bytes = round(self._row_bytes * stat.num_writes)
                    self._planner.learn_ratio(arrow_bytes, size)
                self._planner.written(*grown.group, grown.size)
            self._put_index_logs(report.metadata_logs, at_ms)

    def wrote_index(self, logs: Iterable[MetadataLogFile], at_ms: int) -> None:
        """A table service added these log files to the metadata table; ``at_ms``: as in `committed`.

        Told again, it changes nothing: a commit whose lock was lost is made again.
        """
        with self._lock:
            if self._is_news("logs", at_ms):
                self._put_index_logs(logs, at_ms)

    def compacted(self, done: Iterable[CompactedSlice], at_ms: int, *, is_index: bool) -> None:
        """A compaction with requested time ``at_ms`` (Unix epoch) is committed.

        Inserts fill compacted data groups that are smaller than the target. Told again, it changes nothing.
        """
        with self._lock:
            if not self._is_news("index" if is_index else "data", at_ms):
                return
            book = self._index if is_index else self._data
            for outcome in done:
                known = book.of(outcome.partition_path, outcome.file_id)
                slice_ = known.compacted(outcome.base_bytes, outcome.log_count, outcome.log_bytes, at_ms)
                book.put(slice_)
                if not is_index:
                    self._planner.compacted(*slice_.group, slice_.size)
            self._forget_merged()

    def listed(self, slices: Iterable[SliceStats], *, is_index: bool) -> None:
        """A plan listed these groups: their stats are exact now, whatever other writers did meanwhile."""
        with self._lock:
            book = self._index if is_index else self._data
            for slice_ in slices:
                book.put(slice_)
            self._forget_merged()

    def hold(self, groups: frozenset[GroupName]) -> None:
        """These file groups are the ones that another engine planned to rewrite."""
        with self._lock:
            self._held = groups

    def merge_failed(self, reasons: Mapping[GroupName, str], now_ms: int) -> None:
        """The merges of these file groups failed, and they are the cause of it. They get no inserts until one
        succeeds.
        """
        with self._lock:
            failed = dict(self._failed)
            for group, reason in reasons.items():
                tries = failed[group].tries + 1 if group in failed else 1
                oldest_ms = self._data.of(*group).oldest_log_ms
                failed[group] = FailedMerge(tries, now_ms, reason, oldest_ms)
            self._failed = failed

    def _is_news(self, what: str, at_ms: int) -> bool:
        """Whether it was not told before. Requested times are distinct."""
        if (what, at_ms) in self._told:
            return False
        self._told.append((what, at_ms))
        return True

    def _forget_merged(self) -> None:
        """Forgets failures of log files that are merged now, by us or by another engine."""
        self._failed = {
            group: failed for group, failed in self._failed.items() if failed.is_of(self._data.of(*group))
        }

    def _put_index_logs(self, logs: Iterable[MetadataLogFile], at_ms: int) -> None:
        for log in logs:
            self._index.put(self._index.of(log.partition, log.file_id).with_log(log.size, at_ms))

    def _see_rows(self, wants: Sequence[Want]) -> None:
        """Keeps the mean Arrow bytes of a row, by the latest wants."""
        records = sum(want.records for want in wants)
        if records:
            self._row_bytes = sum(want.arrow_bytes for want in wants) / records

    def snapshot(self) -> TableSlices:
        """The newest slices of all file groups, as of the last listing and our own commits since."""
        with self._lock:
            data, index = self._data.listed(), self._index.listed()
            return TableSlices(data, index, self._is_listed, self._listing, self._held, self._failed)

    def slices(self) -> list[tuple[str, str, int]]:
        """(partition path, file id, bytes of its latest slice) of every file group that has one."""
        return [(*slice_.group, slice_.size) for slice_ in self.snapshot().data]

    def stats(self) -> dict[str, float]:
        """For `tidemark status`: the number of file groups, their bytes, and the target size."""
        with self._lock:
            return self._planner.stats()


def load_listed(
    storage: Storage, logs: ReadableLogs | None, placement: Placement, own: Collection[str] = ()
) -> None:
    """Lists the file groups of the table, from which `placement` leases, and of its metadata table. ``own``:
    as for `Placement.load`.

    Raises UnsupportedTableError when another engine wrote log files that cannot be read.
    """
    snapshot = MetadataTableSnapshot.load(storage)
    view = TableView.of(storage, snapshot.data_timeline)
    if logs is not None:
        logs.check(view.slices(snapshot.files.names()), snapshot.files.files)
    placement.load(snapshot.files, view, index_stats(storage, snapshot), own)
