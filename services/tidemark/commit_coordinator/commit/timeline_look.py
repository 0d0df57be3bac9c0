"""What of the data timeline has not been taken into account yet: a set difference of identities.

See `epoch_protocol.seen` for what an identity is, and docs/adr/0005-seen-by-identity.md for what an order of
completion times would miss. The caller holds the table's lock where its decision rests on the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.table_state import Timelines, rolled_back_by
from tidemark.epoch_protocol.entries import TimelineSeen
from tidemark.epoch_protocol.seen import SeenInstants, completion_of, requested_of
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant
from tidemark.hudi_format.timeline.identity import is_judged, judged_instants

# They move no key and no row (ARCHITECTURE.md, "Void and rewind").
_HARMLESS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})
_UNDOING: Final = frozenset({Action.ROLLBACK, Action.RESTORE})
_NAMES_PER_ENTRY: Final = 5_000


@dataclass(frozen=True)
class TimelineLook:
    """The difference between a timeline and what the fold has seen; all by identity.

    ``foreign``: other writers' commits, restores and rollbacks, also archived ones. ``undone``: was seen, and
    is neither active nor archived. ``harmless``: new, and moves no key. ``removed``: archived or undone.
    ``known``: what was seen before the first look of a version that keeps identities, None after it.
    """

    start: str
    foreign: tuple[str, ...]
    undone: tuple[str, ...]
    harmless: tuple[str, ...]
    removed: tuple[str, ...]
    forget_stamps: bool
    known: tuple[str, ...] | None
    moved: bool

    @property
    def surprises(self) -> tuple[str, ...]:
        """What tags and caches may rest on no longer."""
        return self.foreign + self.undone

    def reason(self) -> str:
        """For people: what was found."""
        found = [f"another writer committed {self.foreign[0]}"] if self.foreign else []
        found += [f"another writer undid {self.undone[0]}"] if self.undone else []
        more = len(self.surprises) - len(found)
        return " and ".join(found) + (f" (and {more} more)" if more > 0 else "")

    def entries(self, term: int, handled: bool) -> list[TimelineSeen]:
        """What tells the fold; ``handled``: a rewind takes the surprises into account."""
        added = [*(self.known or ()), *self.harmless, *(self.foreign if handled else ())]
        removed = [name for name in self.removed if handled or name not in self.undone]
        if not (added or removed or self.moved or self.known is not None):
            return []
        entries = []
        for at in range(0, max(len(added), len(removed), 1), _NAMES_PER_ENTRY):
            part = slice(at, at + _NAMES_PER_ENTRY)
            anew = self.known is not None and at == 0
            entries.append(TimelineSeen(term, self.start, added[part], removed[part], anew=anew))
        return entries


def look(
    storage: Storage, timelines: Timelines, state: FoldState, own_instant: str | None = None
) -> TimelineLook:
    """``own_instant``: of our open attempt, which is not completed, or at its decided time: no surprise."""
    data = timelines.data
    shown = {name: each for name, each in judged_instants(data).items() if each.requested != own_instant}
    seen, known = state.seen, None
    if seen is None:
        known = tuple(name for name in sorted(shown) if completion_of(name) <= state.handled)
        seen = SeenInstants()
        seen.add(known)
        seen.newest = max(seen.newest, state.handled)
    fresh = {name: each for name, each in sorted(shown.items()) if name not in seen.names}
    ours = {own_instant, *(voided.instant for voided in state.voided)}
    harmless = tuple(name for name, each in fresh.items() if _is_harmless(storage, each, ours))
    active_foreign = [name for name in fresh if name not in harmless]
    gone = sorted(seen.names - shown.keys())
    start = data.first_active or ""
    archived: frozenset[str] = frozenset()
    if known is None and data.archive is not None and (gone or start > seen.start):
        archived = data.archive.identities()
    foreign = [*active_foreign, *_archived_unseen(archived, seen, start, own_instant, shown)]
    undone = tuple(name for name in gone if name not in archived and _tells(name))
    return TimelineLook(
        start=start,
        foreign=tuple(sorted(foreign)),
        undone=undone,
        harmless=harmless,
        removed=tuple(gone),
        forget_stamps=bool(undone)
        or any(fresh[name].action in _UNDOING for name in active_foreign)
        or any(completion_of(name) <= seen.newest for name in foreign),
        known=known,
        moved=start > seen.start,
    )


def _is_harmless(storage: Storage, instant: Instant, ours: set[str | None]) -> bool:
    """A compaction, or the rollback of an instant of ours that never was completed."""
    if instant.action is Action.ROLLBACK:
        return ours.issuperset(rolled_back_by(storage, instant))
    return instant.action in _HARMLESS


def _archived_unseen(
    archived: frozenset[str],
    seen: SeenInstants,
    start: str,
    own_instant: str | None,
    shown: Mapping[str, Instant],
) -> Iterator[str]:
    """Archived since the last look, before anybody of ours saw it."""
    for name in sorted(archived):
        requested = requested_of(name)
        if not seen.start <= requested < start or name in seen.names or name in shown:
            continue
        if is_judged(name) and requested != own_instant:
            yield name


def _tells(name: str) -> bool:
    """Whether the instant's absence says that something was undone; a rollback undoes nothing by going."""
    return not name.endswith(f".{Action.ROLLBACK.completed_word}")


def has_surprises(storage: Storage, timelines: Timelines, state: FoldState) -> bool:
    """Whether a rewind is due before anything is planned."""
    return bool(look(storage, timelines, state).surprises)
