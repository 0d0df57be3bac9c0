"""Which commits an index knows of: those that the fold had seen, and our own that were promoted since."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tidemark.epoch_protocol.seen import Known
from tidemark.hudi_format.timeline import Timeline
from tidemark.index_assigner.index.errors import SnapshotBehindError
from tidemark.index_assigner.index.shown_timeline import ShownTimeline

PROMOTED_MIN: Final = 1_000
"""So many promoted commits are remembered before the timeline is listed to forget the archived ones."""


class SeenCommits:
    """``promoted``: completion times of our own commits since the fold was last asked."""

    def __init__(self) -> None:
        self.promoted: set[str] = set()
        self._known: Known | None = None
        self._required: str | None = None
        self._promoted_max = PROMOTED_MIN
        self._shown: ShownTimeline | None = None

    def take(self, known: Known) -> None:
        """Takes what the fold has seen by now."""
        self._known, self.promoted, self._shown = known, set(), None
        self._required = known.committed or self._required

    def shown(self, timeline: Timeline, what: str) -> ShownTimeline:
        """What this timeline shows. Raises SnapshotBehindError when it lacks our last commit; ``what`` is
        opened with it.

        As long as nothing changes it is the same object, which knows what it has worked out: a thousand units
        of a partitioned index are opened with one timeline.
        """
        shown = self._shown
        if shown is None or shown.timeline is not timeline:
            shown = self._shown = ShownTimeline(timeline, self._known, frozenset(self.promoted))
        if not shown.shows(self._required):
            raise SnapshotBehindError(
                f"{what}: the metadata table snapshot ends before our commit {self._required}, which is "
                "known: load a new snapshot"
            )
        return shown

    def promote(self, completion: str | None, instant: str | None) -> None:
        """Takes note of our commit; ``completion`` None: it had no rows."""
        if completion is not None:
            self.promoted.add(completion)
            self._shown = None
        self._required = instant or self._required

    def forget_archived(self, active_times: Callable[[], Collection[str]]) -> None:
        """Forgets promoted commits that are archived: only those matter that a listing of the active timeline
        shows. So the set is at most twice as large as the active timeline, or `PROMOTED_MIN`.
        """
        if len(self.promoted) > self._promoted_max:
            self.promoted &= set(active_times())
            self._shown = None
            self._promoted_max = max(PROMOTED_MIN, 2 * len(self.promoted))
