"""Compares the data timeline with the instants that the fold has seen, to find what other writers did since.

Instants are compared by identity (`epoch_protocol.seen`), as sets. docs/adr/0005-seen-by-identity.md says
what a comparison of completion times would miss. Example: the fold has seen {a, b}, the timeline shows {b,
c}. c is another writer's commit. a is in the archive: it was archived; or it is not: another writer undid it.

The caller holds the table's lock if its decision rests on the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.own_services import DecidedByOurs
from tidemark.commit_coordinator.commit.table_state import Timelines, rolled_back_by, undone_by
from tidemark.epoch_protocol.entries import TimelineSeen
from tidemark.epoch_protocol.seen import SeenInstants, action_of, completion_of, name_of, requested_of
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant, Timeline
from tidemark.hudi_format.timeline.avro_records import (
    OPERATION_COMPACT,
    OPERATION_LOG_COMPACT,
    decode_commit_metadata,
)
from tidemark.hudi_format.timeline.identity import is_judged, judged_instants

# Compactions move no key and change no row, so they need no rewind (ARCHITECTURE.md, "Void and rewind").
_HARMLESS: Final = frozenset({Action.COMPACTION, Action.LOG_COMPACTION})
_COMPACTED: Final = frozenset(action.completed_word for action in _HARMLESS)
_COMPACTING: Final = frozenset({OPERATION_COMPACT, OPERATION_LOG_COMPACT})
_UNDOING: Final = frozenset({Action.ROLLBACK, Action.RESTORE})
_NAMES_PER_ENTRY: Final = 5_000


@dataclass(frozen=True)
class TimelineLook:
    """The difference between the data timeline and what the fold has seen. All instants are identities.

    ``start``: the first requested time on the active timeline. ``moved``: it begins later than it did at the
    last look. ``foreign``: other writers' instants that were not seen, active or archived. ``undone``: was
    seen, and is neither active nor archived. ``harmless``: was not seen, and moves no key. ``archived``: was
    that, and is in the archive. ``removed``: was seen, and is not active any more. ``forget_stamps``: as in
    `Rewound`. ``known``: at the first look of a version that keeps identities, those that earlier versions
    had handled by completion time; None later.
    """

    start: str
    foreign: tuple[str, ...]
    undone: tuple[str, ...]
    harmless: tuple[str, ...]
    removed: tuple[str, ...]
    forget_stamps: bool
    known: tuple[str, ...] | None
    moved: bool
    archived: tuple[str, ...] = ()

    @property
    def moves_no_key(self) -> tuple[str, ...]:
        """What was not seen and makes no rewind necessary. Later nobody looks at it again."""
        return self.harmless + self.archived

    @property
    def surprises(self) -> tuple[str, ...]:
        """The instants that make a rewind necessary: tags and caches were made without them."""
        return self.foreign + self.undone

    def reason(self) -> str:
        """The surprises as a text for operators: the first of each kind, and how many more there are."""
        texts = [f"another writer committed {self.foreign[0]}"] if self.foreign else []
        texts += [f"another writer undid {self.undone[0]}"] if self.undone else []
        more = len(self.surprises) - len(texts)
        return " and ".join(texts) + (f" (and {more} more)" if more > 0 else "")

    def entries(self, term: int, handled: bool) -> list[TimelineSeen]:
        """The entries that tell the fold about the difference; empty when there is none to tell.

        ``handled``: a `Rewound` goes with them, so the surprises count as seen from then on. Without it they
        stay surprises, and only the harmless and the archived instants are told.
        """
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
    """Compares the loaded timeline with the fold's ``state``. Raises CorruptFileError for a broken rollback.
    What a decided service action of ours makes is no surprise (`own_services`).

    ``own_instant``: the requested time of our open attempt. It is pending, or completed by ourselves at its
    decided time, so it is no surprise.
    """
    data = timelines.data
    shown = {
        name: instant for name, instant in judged_instants(data).items() if instant.requested != own_instant
    }
    seen, known = state.seen, None
    if seen is None:
        # The first look of a version that keeps identities: earlier ones had handled all up to a time.
        known = tuple(name for name in sorted(shown) if completion_of(name) <= state.handled)
        seen = SeenInstants()
        seen.add(known)
        seen.newest = max(seen.newest, state.handled)
    fresh = {name: instant for name, instant in sorted(shown.items()) if name not in seen.names}
    ours = {own_instant, *(voided.instant for voided in state.voided)}
    decided = DecidedByOurs.of(storage, state)
    harmless = tuple(
        name
        for name, instant in fresh.items()
        if _is_harmless(storage, instant, ours) or decided.undoes(storage, instant)
    )
    active_foreign = [name for name in fresh if name not in harmless]
    gone = sorted(seen.names - shown.keys())
    start = data.first_active or ""
    archived: frozenset[str] = frozenset()
    # The archive is read only if an instant left the active timeline since the last look, and of it only what
    # was archived since.
    if known is None and data.archive is not None and (gone or start > seen.start):
        times = [requested_of(name) for name in gone]
        archived = data.archive.identities(min([seen.start, *times]), max([start, *times]))
    own = decided.compacted | ({own_instant} if own_instant is not None else set())
    unseen = frozenset(_archived_unseen(archived, seen, start, own, shown))
    moves_no_key = frozenset(_archived_harmless(data, unseen, ours, decided))
    foreign = [*active_foreign, *unseen - moves_no_key]
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
        archived=tuple(sorted(moves_no_key)),
    )


def _is_harmless(storage: Storage, instant: Instant, ours: set[str | None]) -> bool:
    """Whether it is a compaction, or a rollback that names only ``ours``: attempts that never completed."""
    if instant.action is Action.ROLLBACK:
        return ours.issuperset(rolled_back_by(storage, instant))
    return instant.action in _HARMLESS


def _archived_unseen(
    archived: frozenset[str],
    seen: SeenInstants,
    start: str,
    own: Collection[str],
    shown: Mapping[str, Instant],
) -> Iterator[str]:
    """Other writers' instants that were completed and archived between two looks.

    Archiving moves the start of the active timeline forward. So an archived instant that was requested
    between the start of the last look and today's was active since that look.
    """
    for name in sorted(archived):
        requested = requested_of(name)
        if not seen.start <= requested < start or name in seen.names or name in shown:
            continue
        if is_judged(name) and requested not in own:
            yield name


def _archived_harmless(
    data: Timeline, names: Collection[str], ours: set[str | None], decided: DecidedByOurs
) -> Iterator[str]:
    """Those of these archived instants that would be ``harmless`` if they were active. A row that does not
    tell what it was is none.
    """
    if data.archive is None or not names:
        return
    for row in data.archive.instants_at({requested_of(name) for name in names}):
        name = name_of(row.requested, row.completion, row.action)
        with suppress(CorruptFileError):
            if action_of(name) == Action.ROLLBACK.completed_word:
                undone = undone_by(row.metadata, name)
                if ours.issuperset(undone) or decided.undid(row.requested, undone):
                    yield name
            elif action_of(name) in _COMPACTED:
                operation = decode_commit_metadata(row.metadata, name).operation_type
                if operation in _COMPACTING:
                    yield name


def _tells(name: str) -> bool:
    """Whether the instant's absence means that it was undone. A rollback that is deleted undoes nothing."""
    return not name.endswith(f".{Action.ROLLBACK.completed_word}")


def has_surprises(storage: Storage, timelines: Timelines, state: FoldState) -> bool:
    """Whether other writers did something that no rewind has taken into account."""
    return bool(look(storage, timelines, state).surprises)
