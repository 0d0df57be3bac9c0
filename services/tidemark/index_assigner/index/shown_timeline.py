"""What a snapshot's data timeline shows, against what the fold has seen of it; both by identity.

A shard's stamp is the newest completion that is shown *and* seen: everything seen up to it is in the shard.
What is shown and not seen yet may be in the shard as well: the next opening reads it again, which changes
nothing. Where that is not enough, because it completed at or before the stamp, the shard is filled anew.
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

# Actions that leave every record where it is, and its ordering value as it is.
_KEEPING = frozenset({Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.SAVEPOINT})
_ROLLBACK = Action.ROLLBACK.completed_word


@dataclass(frozen=True)
class ShownTimeline:
    """``known`` None: all that is shown counts as seen. ``promoted``: completion times of our own commits
    that the index took over since ``known`` was taken.
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
        """Completion times."""
        return frozenset(self.names.values())

    @cached_property
    def stamp(self) -> str:
        """What a shard reflects that is brought to this timeline."""
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
        """Whether something that was seen is gone from the timeline: it was undone."""
        return self.lacks((self.known.names if self.known is not None else None) or ())

    def lacks(self, names: Iterable[str]) -> bool:
        """Whether one of these identities is gone from the timeline, and not into its archive."""
        return any(
            name not in self.names
            and action_of(name) != _ROLLBACK
            and not self.timeline.is_archived(requested_of(name))
            for name in names
        )

    def shows(self, instant: str | None) -> bool:
        """Whether our last commit is in what is shown."""
        return instant is None or self.timeline.is_committed(instant)

    def can_catch_up(self, stamp: str, generation: int) -> bool:
        """Whether all that a shard with that stamp, written under that generation, does not reflect completed
        after the stamp, and nothing that it reflects was undone.
        """
        if self.known is None:
            return True
        if generation < self.known.stamps_from or stamp > self.stamp or self.lacks_seen:
            return False
        return all(self.names[name] > stamp for name in self.unseen)

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """Identities of what other writers committed that is shown and not seen yet: a shard that is brought
        to this timeline may hold it. Sorted.
        """
        known = self.known
        if known is None:
            return ()
        changing = _changing(self.timeline)
        found = [n for n in changing if not known.has_seen(n) and self.names[n] not in self.promoted]
        return tuple(sorted(found))

    def differs_from(self, timeline: Timeline, promoted: Collection[str]) -> bool:
        """Whether another listing has commits of other writers that this one has not, or lacks some."""
        found = completions(timeline)
        here, there = _changing(self.timeline), _changing(timeline)
        came = [name for name in there - here if found[name] not in promoted]
        gone = [name for name in here - there if not timeline.is_archived(requested_of(name))]
        return bool(came or gone)


def _changing(timeline: Timeline) -> set[str]:
    return {name for name, each in judged_instants(timeline).items() if each.action not in _KEEPING}


def commits_after(timeline: Timeline, stamp: str) -> bool:
    """Whether instants that change records completed after the stamp."""
    return any(str(each.completion) > stamp for each in timeline.completed() if each.action not in _KEEPING)
