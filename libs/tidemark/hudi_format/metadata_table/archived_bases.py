"""Keeps base files of the metadata table in force whose instants are archived, while an index is built.

A build completes at an instant `0000…N`, which is the start of the timeline from then on. What was archived
before is neither on the timeline nor older than its start, and counts no more, for Hudi neither
(TABLE_SERVICES.md, section 5). Nearly all of that is superseded. Not so a base file whose file group was not
written to since. Example: rows are updated alone, so nothing is written to the record index, and the
compaction that made its base files goes to the archive after some thousand commits. So the builder puts such
an instant back on the timeline first, in its own hold of the lock. It goes again with a later archival.

Other engines do not: their build hides such base files, and entries of the record index with them. A
coordinator that finds a new build puts the instants back behind it (`hidden_bases`, `unhide`), unless another
engine has compacted a file group of an index without its base file by then (`compacted_without`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from operator import attrgetter

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import AlreadyExistsError, FileMissingError
from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.metadata_table.index_life import LIFE_PATH, partition_build
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_PARTITION,
)
from tidemark.hudi_format.metadata_table.partitions_in_use import partition_files, partitions_in_use
from tidemark.hudi_format.metadata_table.validity import InstantValidity, base_files
from tidemark.hudi_format.publication.port import Term
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
    validity = _validity(storage)
    return {base.instant for names in partition_files(storage).values() for base in validity.bases(names)}


def _whole(storage: Storage) -> set[str]:
    """The instants that have the file which is put back last, the inflight one."""
    names = storage.names(join_path(METADATA_TABLE_ROOT, "timeline"))
    return {requested_in(name) for name in names if name.endswith(f".{State.INFLIGHT.value}")}


def hidden_bases(storage: Storage, *, also_half: bool) -> list[ArchivedInstant]:
    """Archived instants of base files that are there and do not count, because the timeline begins at the
    build of an index now. Oldest first. ``also_half``: and those on the timeline that lack a file, as
    somebody who died while he put them back leaves them.
    """
    archive = ArchivedTimeline(storage, METADATA_TABLE_ROOT)
    if archive.is_empty():
        return []
    validity, whole = _validity(storage), _whole(storage)
    there = {base.instant for names in partition_files(storage).values() for base in base_files(names)}
    lacking = {
        instant
        for instant in there
        if not validity.is_valid_base(instant) or (also_half and instant not in whole)
    }
    return archive.instants_at(lacking)


def unhide(by: Term, hidden: Sequence[ArchivedInstant]) -> None:
    """Makes hidden base files count again. Hold the table's lock. Repeatable.

    Raises FencedOutError where the term is over, LockLostError.
    """
    files = [file for row in hidden for file in _files_of(row)]
    if files:
        by.publish([by.prepare(path, data, name_decides=True) for path, data in files], by.lock.lease())


def renew_index_life(by: Term) -> None:
    """Makes the record index another one for caches (`index_life`), which read it anew then. Raises
    FencedOutError.
    """
    with suppress(FileMissingError):
        by.replace(LIFE_PATH, by.storage.read(LIFE_PATH))


def compacted_without(
    storage: Storage, build: str, hidden: Sequence[ArchivedInstant]
) -> dict[str, list[str]]:
    """Each index of which entries are lost -> its newer base files, of compactions that were requested after
    ``build`` (a completion time) and passed over the group's base file of ``hidden``: its entries are in none
    of them. To be asked before `unhide`.

    A record index that was rebuilt since lacks nothing. Another one that is made anew has no file of before.
    """
    instants, validity = {row.requested for row in hidden}, _validity(storage)
    found: dict[str, list[str]] = {}
    for partition in partitions_in_use(storage):
        name = partition.name
        if partition is FILES or (name == RECORD_INDEX_PARTITION and partition_build(storage, name) > build):
            continue  # each commit writes to the list of files, so each compaction has its base file
        names = storage.names(join_path(METADATA_TABLE_PATH, name))
        if lost := _bases_without(names, build, instants, validity):
            found[name] = lost
    return found


def _bases_without(
    names: Iterable[str], build: str, hidden: Collection[str], validity: InstantValidity
) -> list[str]:
    """The base files of one folder that lack what a hidden one has."""
    groups: dict[str, list[BaseFileName]] = {}
    for base in base_files(names):
        groups.setdefault(base.file_id, []).append(base)
    found: list[str] = []
    for bases in groups.values():
        counted = [base for base in bases if validity.is_valid_base(base.instant)]
        before = max(
            (base for base in bases if base.instant < build and (base in counted or base.instant in hidden)),
            key=attrgetter("instant"),
            default=None,
        )
        if before is not None and before not in counted:
            found += (str(base) for base in counted if base.instant > build)
    return sorted(found)


def _validity(storage: Storage) -> InstantValidity:
    return InstantValidity(load_timeline(storage), load_timeline(storage, METADATA_TABLE_ROOT))


def _put_back(storage: Storage, row: ArchivedInstant) -> None:
    for path, content in _files_of(row):
        with suppress(AlreadyExistsError):
            storage.create(path, content)


def _files_of(row: ArchivedInstant) -> tuple[tuple[str, bytes], ...]:
    """Paths and contents, in the order in which they are made. The completed file comes first: what looked
    pending would be rolled back by the next engine, with its base files.
    """
    action = Action(row.action)
    if action is Action.COMMIT and row.plan:
        action = Action.COMPACTION
    instants = (
        Instant(row.requested, action, State.COMPLETED, row.completion),
        Instant(row.requested, action, State.REQUESTED),
        Instant(row.requested, action, State.INFLIGHT),
    )
    paths = [instant_path(instant, METADATA_TABLE_ROOT) for instant in instants]
    return tuple(zip(paths, (row.metadata, row.plan, b""), strict=True))
