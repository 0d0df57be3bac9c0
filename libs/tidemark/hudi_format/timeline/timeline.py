"""The timeline of a table (or of its metadata table): its instants, and which of them are committed.

A `Timeline` is a snapshot: nothing changes in it after `load_timeline`. Invariants:

- It has one instant per requested time, in the furthest state for which there is a file. Only a savepoint is
  an instant of its own, although it has the requested time of the commit that it keeps.
- The three files of an instant stay until archival takes all of them away, beginning with the oldest write.
  So an instant that is older than the first write instant, and not pending itself, counts as completed
  (FORMAT.md, section 3.7).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline.archive_files import KeptArchive
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.instant import Action, Instant
from tidemark.hudi_format.timeline.listing import Instants, KeptListing

DATA_ROOT: Final = ".hoodie"
METADATA_TABLE_ROOT: Final = ".hoodie/metadata/.hoodie"


@dataclass(frozen=True)
class Timeline:
    """The instants in order of requested time. `archive` is read only for times that are not in
    `instants`.
    """

    instants: tuple[Instant, ...]
    archive: ArchivedTimeline | None = field(default=None, compare=False, repr=False)
    _kept: Instants | None = field(default=None, compare=False, repr=False)

    @cached_property
    def _of(self) -> Instants:
        return self._kept if self._kept is not None else Instants(self.instants)

    def find(self, requested: str) -> Instant | None:
        """The active instant with that requested time; savepoints are ignored."""
        return self._of.by_requested.get(requested)

    def contains(self, requested: str) -> bool:
        """Whether the active timeline has an instant with that requested time, in any state."""
        return requested in self._of.by_requested

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """The completed instants, ordered by requested time; only those of `actions` when any are given."""
        every = self._of.completed
        return tuple(instant for instant in every if instant.action in actions) if actions else every

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """The requested and inflight instants, ordered by requested time; only those of `actions` when
        any are given.
        """
        every = self._of.pending
        return tuple(instant for instant in every if instant.action in actions) if actions else every

    @property
    def first_active(self) -> str | None:
        """The requested time of the first write instant, in any state.

        An instant that a savepoint keeps counts, too: after a restore it may be the only one.
        """
        return self._of.first_write

    def is_archived(self, requested: str) -> bool:
        """Whether the instant is older than the active timeline's start, and not on it.

        Archival that goes beyond a savepoint leaves a gap behind the instant that is kept. An instant in that
        gap is archived if the archive has it.
        """
        if self.contains(requested) or self.first_active is None:
            return False
        if requested < self.first_active:
            return True
        in_hole = requested < self._of.first_unkept_write
        return in_hole and self.archive is not None and self.archive.completion_time(requested) is not None

    def is_committed(self, requested: str) -> bool:
        """Whether the files of that instant count: it is completed, or older than the timeline's start."""
        instant = self.find(requested)
        return instant.is_completed if instant is not None else self.is_archived(requested)

    def completion_time(self, requested: str) -> str | None:
        """The completion time of a completed instant; None when it is pending or unknown.

        For an archived instant it comes from the archive. An archived instant that the archive lacks counts
        as completed at its requested time: no file that still exists can have been written between the two.
        """
        instant = self.find(requested)
        if instant is not None:
            return instant.completion
        if not self.is_archived(requested):
            return None
        known = self.archive.completion_time(requested) if self.archive is not None else None
        return known if known is not None else requested

    def latest_completion(self, *actions: Action) -> str | None:
        """The newest completion time on the active timeline; None when nothing is completed there."""
        if not actions:
            return self._of.latest_completion
        return max((str(instant.completion) for instant in self.completed(*actions)), default=None)

    def newest_completion(self) -> str | None:
        """The newest completion time of all committed instants; None when there are none.

        Looks at the end of the archive: an instant that was requested early and completed late is archived
        before instants that were requested after it, and may have completed after all of them.
        """

        def belongs(requested: str) -> bool:
            # Instants that were archived after this timeline was listed do not belong to it.
            return self.first_active is None or self.is_archived(requested)

        newest = self.latest_completion()
        return self.archive.newest_completion(newest, belongs) if self.archive is not None else newest

    def times(self) -> list[str]:
        """All requested and completion times, for `InstantGenerator.observe`."""
        return [
            time
            for instant in self.instants
            for time in (instant.requested, instant.completion)
            if time is not None
        ]


@dataclass(frozen=True)
class _Kept:
    listing: KeptListing = field(default_factory=KeptListing)
    archive: KeptArchive = field(default_factory=KeptArchive)


# What a process has read of each table that it knows. It goes when the table's storage goes.
_kept: weakref.WeakKeyDictionary[Storage, dict[str, _Kept]] = weakref.WeakKeyDictionary()


def load_timeline(storage: Storage, root: str = DATA_ROOT) -> Timeline:
    """Reads the active timeline below `root` ('.hoodie', or '.hoodie/metadata/.hoodie' for the metadata
    table). What an earlier call with the same `storage` read of it is not read again.

    A folder that does not exist is an empty timeline. Raises UnsupportedTableError for a file of an unknown
    action.
    """
    kept = _kept.setdefault(storage, {}).setdefault(root, _Kept())
    instants = kept.listing.of(storage, join_path(root, "timeline"))
    return Timeline(instants.all, ArchivedTimeline(storage, root, kept.archive), instants)
