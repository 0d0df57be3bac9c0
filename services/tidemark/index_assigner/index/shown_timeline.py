"""Compares the instants that a snapshot's data timeline shows with those that the fold has seen.

Instants are compared by identity (`epoch_protocol.seen`). A shard's stamp is the newest completion that is
shown *and* seen: the shard has all changes that were seen up to it. It may also have changes that are shown
and not seen yet. The next opening reads those again, which changes nothing, since they completed after the
stamp. If one completed at or before the stamp, it would not be read again; then the shard is filled anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from tidemark.epoch_protocol.seen import (
    BEGINNING,
    Known,
    action_of,
    completion_of,
    newest_seen,
    requested_of,
)
from tidemark.hudi_format.timeline import Action, Timeline
from tidemark.hudi_format.timeline.identity import completions, judged_instants

# Actions that change no record's location and no ordering value.
_KEEPING = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.SAVEPOINT})
_ROLLBACK = Action.ROLLBACK.completed_word


@dataclass(frozen=True)
class ShownTimeline:
    """A timeline, and what was seen of it.

    ``known``: of the fold; None: everything shown counts as seen. ``promoted``: completion times of our own
    commits that were promoted since ``known`` was taken.
    """

    timeline: Timeline
    known: Known | None = None
    promoted: Collection[str] = ()

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Identity -> completion time."""
        return completions(self.timeline)

    @cached_property
    def times(self) -> frozenset[str]:
        """Completion times of all shown instants."""
        return frozenset(self.names.values())

    @cached_property
    def stamp(self) -> str:
        """The stamp of a shard that is brought to this timeline."""
        if self.known is None:
            return self.timeline.newest_completion() or BEGINNING
        archived = {
            name: completion_of(name)
            for name in self.known.names or ()
            if name not in self.names and self.timeline.is_archived(requested_of(name))
        }
        own = [time for time in self.promoted if time in self.times]
        return max([newest_seen(self.known, {**self.names, **archived}), *own])

    @cached_property
    def lacks_seen(self) -> bool:
        """Whether an instant that was seen is gone from the timeline, so it was undone."""
        return self.lacks((self.known.names if self.known is not None else None) or ())

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether one of these identities is neither on the timeline nor in its archive (rollbacks aside)."""
        return any(
            name not in self.names
            and action_of(name) != _ROLLBACK
            and not self.timeline.is_archived(requested_of(name))
            for name in names
        )

    def shows(self, instant: str | None) -> bool:
        """Whether the timeline shows our last commit; True when there is none."""
        return instant is None or self.timeline.is_committed(instant)

    def can_catch_up(self, stamp: str, generation: int) -> bool:
        """Whether a shard with this stamp, written under this generation of the fold, can be caught up.

        It can if all instants whose changes it lacks completed after the stamp, and none of those whose
        changes it has was undone.
        """
        if self.known is None:
            return True
        if generation < self.known.stamps_from or stamp > self.stamp or self.lacks_seen:
            return False
        return all(self.names[name] > stamp for name in self.unseen)

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """Identities, sorted, of other writers' commits that are shown and not seen yet.

        A shard that is brought to this timeline may have their changes.
        """
        known = self.known
        if known is None:
            return ()
        changing = _changing(self.timeline)
        names = [n for n in changing if not known.has_seen(n) and self.names[n] not in self.promoted]
        return tuple(sorted(names))

    def differs_from(self, timeline: Timeline, promoted: Collection[str]) -> bool:
        """Whether ``timeline`` has commits of other writers that this one lacks, or lacks some of this
        one's.
        """
        times = completions(timeline)
        here, there = _changing(self.timeline), _changing(timeline)
        came = [name for name in there - here if times[name] not in promoted]
        gone = [name for name in here - there if not timeline.is_archived(requested_of(name))]
        return bool(came or gone)


def _changing(timeline: Timeline) -> set[str]:
    return {name for name, instant in judged_instants(timeline).items() if instant.action not in _KEEPING}


def commits_after(timeline: Timeline, stamp: str) -> bool:
    """Whether instants that change records completed after the stamp."""
    changing = (instant for instant in timeline.completed() if instant.action not in _KEEPING)
    return any(str(instant.completion) > stamp for instant in changing)
