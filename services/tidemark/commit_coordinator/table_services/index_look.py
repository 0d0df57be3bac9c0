"""What a compaction of the metadata table looks at: all files of its index, and their slices.

Behind 15 000 commits without table services these are 60 000 log files, and to stat them and to find their
slices takes a second. So that is done before the table's lock is taken (`look_ahead`). Under the lock only
names are listed: where they and both timelines are what they were, the slices are, too (`look`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidemark.commit_coordinator.commit.listed_slices import listed_stats
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.domain.slice_stats import SliceStats
from tidemark.commit_coordinator.table_services.listings import index_files
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.snapshot import metadata_slices
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services.compaction_planning import SizedFiles, before


@dataclass(frozen=True)
class IndexLook:
    """``slices``: of what completed before the instant that was asked for. ``files``: all there are."""

    timelines: Timelines
    files: SizedFiles
    slices: Sequence[FileSlice]

    @property
    def validity(self) -> InstantValidity:
        """Which instants count."""
        return InstantValidity(self.timelines.data, self.timelines.metadata)

    def stats(self) -> Iterator[SliceStats]:
        """The stats of the slices."""
        sizes = self.files
        return (listed_stats(found, sizes[found.partition_path]) for found in self.slices)


def look_ahead(storage: Storage, instant: str | None) -> IndexLook:
    """The look without the lock; ``instant``: None for one that will be above all times of both timelines."""
    timelines = load_timelines(storage)
    as_of = max(timelines.times(), default="") if instant is None else before(instant)
    return _sliced(timelines, index_files(storage), as_of)


def look(storage: Storage, timelines: Timelines, instant: str, ahead: IndexLook | None) -> IndexLook:
    """The look under the lock, under which ``timelines`` were loaded. ``ahead``: for the same instant, or
    for one above all times.
    """
    files = index_files(storage, ahead.files if ahead is not None else {})
    if ahead is not None and files == ahead.files and _instants(timelines) == _instants(ahead.timelines):
        return IndexLook(timelines, files, ahead.slices)
    return _sliced(timelines, files, before(instant))


def _sliced(timelines: Timelines, files: SizedFiles, as_of: str) -> IndexLook:
    validity = InstantValidity(timelines.data, timelines.metadata)
    return IndexLook(timelines, files, metadata_slices(files, validity, as_of=as_of))


def _instants(timelines: Timelines) -> tuple[object, object]:
    return timelines.data.instants, timelines.metadata.instants
