"""Keeps base files of the metadata table in force whose instants are archived, while an index is built.

A build completes at an instant `0000…N`, which is the start of the timeline from then on. What was archived
before is neither on the timeline nor older than its start, and counts no more, for Hudi neither
(TABLE_SERVICES.md, section 5). Nearly all of that is superseded. Not so a base file whose file group was not
written to since. Example: rows are updated alone, so nothing is written to the record index, and the
compaction that made its base files goes to the archive after some thousand commits. So the builder puts such
an instant back on the timeline first, in its own hold of the lock. It goes again with a later archival.
"""

from __future__ import annotations

from contextlib import suppress

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.metadata_table.partitions_in_use import partition_files
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import (
    METADATA_TABLE_ROOT,
    Action,
    ArchivedInstant,
    ArchivedTimeline,
    Instant,
    State,
    load_timeline,
)
from tidemark.hudi_format.timeline.instant import requested_in


def put_back_bases(storage: Storage, build: str) -> None:
    """Puts instants of base files back that are archived, before the instant ``build`` completes: of all base
    files that count, as a restore may need one that is not the newest of its group. Hold the table's lock.
    Repeatable, as long as the build has not completed.

    The newest comes first. The timeline begins at what was put back last, so those that are still to come are
    older than its start, and count at every moment. The other way round the second one would be hidden behind
    the first, and a repetition would not find it.
    """
    archive = ArchivedTimeline(storage, METADATA_TABLE_ROOT)
    if archive.is_empty():
        return
    lacking = _needed(storage) - _whole(storage) - {build}
    for row in reversed(archive.instants_at(lacking)):
        _put_back(storage, row)


def _needed(storage: Storage) -> set[str]:
    """The instants of the base files that count."""
    validity = InstantValidity(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))
    return {base.instant for names in partition_files(storage).values() for base in validity.bases(names)}


def _whole(storage: Storage) -> set[str]:
    """The instants that have the file which is put back last, the inflight one."""
    names = storage.names(join_path(METADATA_TABLE_ROOT, "timeline"))
    return {requested_in(name) for name in names if name.endswith(f".{State.INFLIGHT.value}")}


def _put_back(storage: Storage, row: ArchivedInstant) -> None:
    """The completed file comes first: what looked pending would be rolled back by the next engine, with its
    base files.
    """
    action = Action(row.action)
    if action is Action.COMMIT and row.plan:
        action = Action.COMPACTION
    instants = [Instant(row.requested, action, state) for state in (State.REQUESTED, State.INFLIGHT)]
    completed = Instant(row.requested, action, State.COMPLETED, row.completion)
    for instant, content in zip((completed, *instants), (row.metadata, row.plan, b""), strict=True):
        with suppress(AlreadyExistsError):
            storage.create(instant_path(instant, METADATA_TABLE_ROOT), content)
