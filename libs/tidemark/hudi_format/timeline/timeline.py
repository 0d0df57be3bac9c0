"""The timeline of a table (or of its metadata table): its instants, and which of them are committed.

A `Timeline` is a snapshot: nothing changes in it after `load_timeline`. Invariants:

- It has one instant per requested time, in the furthest state for which there is a file. Only a savepoint is
  an instant of its own, although it has the requested time of the commit that it keeps.
- The three files of an instant stay until archival takes all of them away, beginning with the oldest write.
  So an instant that is older than the first write instant, and not pending itself, counts as completed
  (FORMAT.md, section 3.7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.instant import Action, Instant, State, parse_file_name

DATA_ROOT: Final = ".hoodie"
METADATA_TABLE_ROOT: Final = ".hoodie/metadata/.hoodie"
_LISTINGS_MAX: Final = 3
_RANK: Final = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


@dataclass(frozen=True)
class Timeline:
    """The instants in order of requested time. `archive` is read only for times that are not in
    `instants`.
    """

    instants: tuple[Instant, ...]
    archive: ArchivedTimeline | None = field(default=None, compare=False, repr=False)

    @cached_property
    def _by_requested(self) -> dict[str, Instant]:
        return {each.requested: each for each in self.instants if each.action is not Action.SAVEPOINT}

    def find(self, requested: str) -> Instant | None:
        """The active instant with that requested time; savepoints are ignored."""
        return self._by_requested.get(requested)

    def contains(self, requested: str) -> bool:
        """Whether the active timeline has an instant with that requested time, in any state."""
        return requested in self._by_requested

    def completed(self, *actions: Action) -> tuple[Instant, ...]:
        """The completed instants, ordered by requested time; only those of `actions` when any are given."""
        return tuple(
            each for each in self.instants if each.is_completed and (not actions or each.action in actions)
        )

    def pending(self, *actions: Action) -> tuple[Instant, ...]:
        """The requested and inflight instants, ordered by requested time; only those of `actions` when
        any are given.
        """
        return tuple(
            each
            for each in self.instants
            if not each.is_completed and (not actions or each.action in actions)
        )

    @cached_property
    def first_active(self) -> str | None:
        """The requested time of the first write instant, in any state.

        An instant that a savepoint keeps counts, too: after a restore it may be the only one.
        """
        return next((each.requested for each in self.instants if each.action.is_write), None)

    @cached_property
    def _first_unkept(self) -> str:
        """The requested time of the first write instant that no savepoint keeps; "" when there is none."""
        kept = {each.requested for each in self.instants if each.action is Action.SAVEPOINT}
        writes = (each.requested for each in self.instants if each.action.is_write)
        return next((requested for requested in writes if requested not in kept), "")

    def is_archived(self, requested: str) -> bool:
        """Whether the instant is older than the active timeline's start, and not on it.

        Archival that goes beyond a savepoint leaves a gap behind the instant that is kept. An instant in that
        gap is archived if the archive has it.
        """
        if self.contains(requested) or self.first_active is None:
            return False
        if requested < self.first_active:
            return True
        in_hole = requested < self._first_unkept
        return in_hole and self.archive is not None and requested in self.archive.completion_times()

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
        known = self.archive.completion_times().get(requested) if self.archive is not None else None
        return known if known is not None else requested

    def latest_completion(self, *actions: Action) -> str | None:
        """The newest completion time on the active timeline; None when nothing is completed there."""
        return max((str(each.completion) for each in self.completed(*actions)), default=None)

    def newest_completion(self) -> str | None:
        """The newest completion time of all committed instants; None when there are none.

        Reads the archive: an instant that was requested early and completed late is archived before instants
        that were requested after it, and may have completed after all of them.
        """
        newest = self.latest_completion()
        archived = self.archive.completion_times().items() if self.archive is not None else ()
        later = [each for each in archived if newest is None or each[1] > newest]
        # Instants that were archived after this timeline was listed do not belong to it.
        known = [
            time for requested, time in later if self.first_active is None or self.is_archived(requested)
        ]
        return max(known, default=newest)

    def times(self) -> list[str]:
        """All requested and completion times, for `InstantGenerator.observe`."""
        return [
            time for each in self.instants for time in (each.requested, each.completion) if time is not None
        ]


def load_timeline(storage: Storage, root: str = DATA_ROOT) -> Timeline:
    """Reads the active timeline below `root` ('.hoodie', or '.hoodie/metadata/.hoodie' for the metadata
    table).

    A folder that does not exist is an empty timeline. Raises UnsupportedTableError for a file of an unknown
    action.
    """
    folder = join_path(root, "timeline")
    instants: list[Instant] = []
    for _ in range(_LISTINGS_MAX):
        names = [info.name for info in storage.list(folder) if not info.is_dir]
        states = [instant for name in names if (instant := parse_file_name(name)) is not None]
        instants = merge_states(states)
        # A listing is no snapshot: of an instant that completed meanwhile it may lack the requested file,
        # which tells whether a `.commit` is a compaction. The next listing has it.
        requested = {each.requested for each in states if each.state is State.REQUESTED}
        if all(each.requested in requested or each.action is Action.SAVEPOINT for each in instants):
            break
    return Timeline(tuple(instants), ArchivedTimeline(storage, root))


def merge_states(found: Iterable[Instant]) -> list[Instant]:
    """One instant per requested time (plus savepoints): in its furthest state, with the action of its
    earliest one.

    Two executors of one plan leave two completed files with the same content for readers. Hudi takes the one
    that the listing names first: the earlier completion time where listings are sorted (object stores, HDFS),
    and any of them on a local folder. We always take the earlier one.
    """
    by_requested: dict[tuple[str, bool], list[Instant]] = {}
    for instant in found:
        by_requested.setdefault((instant.requested, instant.action is Action.SAVEPOINT), []).append(instant)
    merged: list[Instant] = []
    for (requested, _), states in sorted(by_requested.items()):
        states.sort(key=lambda each: (_RANK[each.state], each.completion or ""))
        last = next((each for each in states if each.is_completed), states[-1])
        merged.append(Instant(requested, states[0].action, last.state, last.completion))
    return merged
