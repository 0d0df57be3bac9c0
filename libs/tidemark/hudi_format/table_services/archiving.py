"""Moves instants from an active timeline to its archive: the steps of an archival, each of them repeatable.

1. `publish_rows`: the archive's file with the instants' rows, then `manifest_<n+1>`, then `_version_`. From
   here on the instants are on both timelines, which harms nobody.
2. `delete_instants`: the requested and inflight files of all of them, then the completed files from the
   oldest on. In any other order a crash leaves a pending instant, or a hole in which committed instants count
   as never committed.
3. `merge_plan`, `write_merged`, `publish_merged`: files of one level become one of the next, so that a
   manifest names dozens of files and not every file that was ever written.
4. `delete_superseded`: all but the newest manifests, then the files that none of these names.

The caller holds the table's lock in 1, in 2, when a merged file is published and in 4. Every deletion goes
through the caller's `delete`, which looks for the lock first. What a crash leaves is in TABLE_SERVICES.md,
section 6.2.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.publication.port import Publisher, Term
from tidemark.hudi_format.publication.tickets import Lease, Ticket
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_services.archive_planning import ArchivePlan
from tidemark.hudi_format.timeline import Action, ArchivedInstant, ArchivedTimeline, Instant, State
from tidemark.hudi_format.timeline.archive_files import (
    EVER,
    VERSION_NAME,
    ArchiveFile,
    KeptArchive,
    Manifest,
    data_file_name,
    is_data_file,
    manifest_name,
    manifest_version,
)
from tidemark.hudi_format.timeline.archive_rows import ByteSink, encode_archive_file, write_archive_file
from tidemark.hudi_format.timeline.instant import parse_file_name, requested_in

FILES_OF_A_LEVEL: Final = 10
"""Hudi's `hoodie.timeline.compaction.batch.size`."""
MERGED_BYTES_MAX: Final = 1000 << 20
MANIFESTS_KEPT: Final = 10
"""A reader that took the newest manifest goes on to open the files that it names. An archive action writes
one manifest, and one more for each level that it merges: seven levels are ten million actions. So what was
newest before an action stays behind it, and the two before. Hudi keeps three and one for each merged level.
"""
_PLANNED: Final = frozenset({Action.CLEAN, Action.COMPACTION, Action.LOG_COMPACTION})
_REPLACING: Final = frozenset({Action.REPLACE_COMMIT, Action.CLUSTERING})

Delete = Callable[[str], bool]
Hit = Callable[[str], None]

AFTER_ARCHIVE_FILE: Final = "archive_file"
AFTER_ARCHIVE_MANIFEST: Final = "archive_manifest"
AFTER_ARCHIVE_VERSION: Final = "archive_version"
AFTER_PENDING_FILES_DELETED: Final = "archive_pending_deleted"
AFTER_COMPLETED_FILE_DELETED: Final = "archive_completed_deleted"
AFTER_MERGED_PUBLISHED: Final = "archive_merged"


def history_of(root: str) -> str:
    """The archive's folder of a timeline."""
    return join_path(root, "timeline", "history")


def newest_manifest(storage: Storage, root: str) -> Manifest:
    """The newest manifest of the archive. Raises CorruptFileError, FileMissingError."""
    return KeptArchive().manifest(storage, history_of(root))


def archived_rows(storage: Storage, plan: ArchivePlan) -> list[ArchivedInstant]:
    """The rows of the plan's instants, from their files on the active timeline.

    Raises FileMissingError when one of them is not there any more.
    """
    return [_row(storage, name.instant(), plan.root) for name in plan.instants]


def _row(storage: Storage, instant: Instant, root: str) -> ArchivedInstant:
    metadata = storage.read(instant_path(instant, root))
    plan = b""
    if instant.action in _PLANNED:
        plan = _read_pending(storage, instant, State.REQUESTED, root)
    elif instant.action in _REPLACING:
        # An insert overwrite says in its inflight file what it is going to do, a clustering in the plan.
        plan = _read_pending(storage, instant, State.INFLIGHT, root) or _read_pending(
            storage, instant, State.REQUESTED, root
        )
    return ArchivedInstant(
        instant.requested, str(instant.completion), instant.action.completed_word, metadata, plan
    )


def _read_pending(storage: Storage, instant: Instant, state: State, root: str) -> bytes:
    try:
        return storage.read(instant_path(Instant(instant.requested, instant.action, state), root))
    except FileMissingError:
        # Without its requested file a compaction looks like a commit, so that is an error further above;
        # without its inflight file nothing is missing but the plan.
        return b""


def is_archived(storage: Storage, plan: ArchivePlan) -> bool:
    """Whether the archive has all instants of the plan, whoever wrote them, in whichever file."""
    return _left(storage, plan) is None


def _left(storage: Storage, plan: ArchivePlan) -> ArchivePlan | None:
    """The plan without what the archive has; None when it has all.

    An archiver that died while it deleted may have taken the requested files already: rows that were made
    anew would lack their plans.
    """
    first, last = plan.instants[0].requested, plan.instants[-1].requested
    there = ArchivedTimeline(storage, plan.root).identities(first, last)
    left = tuple(name for name in plan.instants if name.instant().file_name not in there)
    return ArchivePlan(plan.is_index, left) if left else None


def publish_rows(
    by: Term, plan: ArchivePlan, lease: Lease, delete: Delete, hit: Hit, ready: bytes | None = None
) -> None:
    """Makes the plan's instants part of the archive, those that are not yet. ``ready``: the file with the
    rows of all of them, if it was made before the lock was taken.

    Raises FileMissingError when an instant is neither archived nor on the active timeline: it was undone.
    """
    storage, folder = by.storage, history_of(plan.root)
    left = _left(storage, plan)
    if left is None:
        return
    manifest = newest_manifest(storage, plan.root)
    content = ready if left == plan else None
    if content is None:
        content = encode_archive_file(archived_rows(storage, left))
    # A file of that name in no manifest: an archiver died, maybe in the middle of writing it.
    _put_anew(by, join_path(folder, left.file_name), content, lease, delete)
    hit(AFTER_ARCHIVE_FILE)
    added = (*manifest.files, ArchiveFile(left.file_name, len(content)))
    _publish_manifest(by, folder, manifest.version, added, lease, delete, hit)


def _publish_manifest(
    by: Term,
    folder: str,
    before: int | None,
    files: tuple[ArchiveFile, ...],
    lease: Lease,
    delete: Delete,
    hit: Hit,
) -> None:
    manifest = Manifest((before or 0) + 1, tuple(_sized(by.storage, folder, file) for file in files))
    path = join_path(folder, manifest_name(manifest.version or 0))
    # A manifest that `_version_` does not name yet is what an archiver that died left: it did not count.
    _put_anew(by, path, manifest.encode(), lease, delete)
    hit(AFTER_ARCHIVE_MANIFEST)
    by.replace(join_path(folder, VERSION_NAME), str(manifest.version).encode())
    hit(AFTER_ARCHIVE_VERSION)


def _sized(storage: Storage, folder: str, file: ArchiveFile) -> ArchiveFile:
    if file.size is not None:
        return file
    info = storage.stat(join_path(folder, file.name))
    return ArchiveFile(file.name, info.size if info is not None else 0)


def _put_anew(by: Publisher, path: str, content: bytes, lease: Lease, delete: Delete) -> None:
    try:
        by.publish([by.prepare(path, content)], lease)
    except TimelineConflictError:
        delete(path)
        by.publish([by.prepare(path, content)], lease)


def take_back(storage: Storage, plan: ArchivePlan, delete: Delete) -> None:
    """Deletes what `publish_rows` made before its manifest counted: manifests that do not count yet, then the
    plan's file. Repeatable.
    """
    left = _left(storage, plan)
    if left is None:
        return
    folder, manifest = history_of(plan.root), newest_manifest(storage, plan.root)
    for name in sorted(storage.names(folder)):
        if (manifest_version(name) or 0) > (manifest.version or 0):
            delete(join_path(folder, name))
    if all(file.name != left.file_name for file in manifest.files):
        delete(join_path(folder, left.file_name))


def delete_instants(
    storage: Storage, plan: ArchivePlan, delete: Delete, hit: Hit, is_over: Callable[[], bool]
) -> bool:
    """Deletes the plan's instants from the active timeline; returns whether they are all gone. Stops when
    `is_over()`, and goes on at the next call.

    An instant that the archive does not have stays. All stay once an index was built that the plan does not
    know: its instant is older than theirs, so the timeline would begin there, and what made base files that
    are in use would count no more. They are in both timelines then, until the next archival takes the build's
    instant, too.
    """
    folder = join_path(plan.root, "timeline")
    first, last = plan.instants[0].requested, plan.instants[-1].requested
    planned, names = {name.requested for name in plan.instants}, sorted(storage.names(folder))
    builds = {time for time in map(requested_in, names) if is_bootstrap_instant(time)}
    if any(time < last for time in builds - planned):
        return True
    safe = ArchivedTimeline(storage, plan.root).completion_times(first, last)
    going = planned & safe.keys()
    pending: list[str] = []
    completed: list[Instant] = []
    for name in names:
        instant = parse_file_name(name) if requested_in(name) in going else None
        if instant is None or instant.action is Action.SAVEPOINT:
            continue
        if instant.is_completed:
            completed.append(instant)
        else:
            pending.append(name)
    for name in pending:
        if is_over():
            return False
        delete(join_path(folder, name))
    # A deletion that is not durable may come back after one that is: a pending instant would be there again.
    storage.sync_dir(folder)
    if pending:
        hit(AFTER_PENDING_FILES_DELETED)
    for instant in completed:
        if is_over():
            return False
        delete(instant_path(instant, plan.root))
        storage.sync_dir(folder)
        hit(AFTER_COMPLETED_FILE_DELETED)
    return True


class Merge(NamedTuple):
    """Files of one level of an archive that become one file of the next level."""

    root: str
    files: tuple[ArchiveFile, ...]

    @property
    def name(self) -> str:
        """The name of the merged file."""
        ranges = [file.range for file in self.files]
        level = self.files[0].level or 0
        return data_file_name(min(first for first, _ in ranges), max(last for _, last in ranges), level + 1)

    @property
    def path(self) -> str:
        """The path of the merged file."""
        return join_path(history_of(self.root), self.name)

    @property
    def size(self) -> int:
        """The bytes of the files together."""
        return sum(file.size or 0 for file in self.files)


def merge_plan(manifest: Manifest, root: str) -> Merge | None:
    """What to merge next: the oldest files of the lowest level that has `FILES_OF_A_LEVEL` of them, not more
    than that, and not many more bytes than `MERGED_BYTES_MAX`. None when no level has enough. As Hudi does.
    """
    by_level: dict[int, list[ArchiveFile]] = {}
    for file in manifest.files:
        if file.level is not None:
            by_level.setdefault(file.level, []).append(file)
    for level in sorted(by_level):
        of_level = sorted(by_level[level], key=lambda file: file.range)
        if len(of_level) < FILES_OF_A_LEVEL:
            continue
        taken = _oldest(of_level)
        if len(taken) > 1:
            return Merge(root, tuple(taken))
    return None


def _oldest(files: Sequence[ArchiveFile]) -> list[ArchiveFile]:
    taken: list[ArchiveFile] = []
    size = 0
    for file in files:
        taken.append(file)
        size += file.size or 0
        if len(taken) == FILES_OF_A_LEVEL:
            break
        if size > MERGED_BYTES_MAX:
            if len(taken) > 1:
                break
            taken, size = [], 0
    return taken if len(taken) > 1 else []


def write_merged(storage: Storage, merge: Merge, sink: ByteSink) -> None:
    """Writes the merged file: the rows of all its files in order of requested time, each once. Memory does
    not grow with their size. Needs no lock. Raises FileMissingError when another archiver merged them.
    """
    write_archive_file(_merged(storage, merge), sink)
    # The allocator would keep what the merge held, and the next one is hours away.
    pa.default_memory_pool().release_unused()


def _merged(storage: Storage, merge: Merge) -> Iterator[ArchivedInstant]:
    before: tuple[str, str, str] | None = None
    for together in _overlapping(merge.files):
        rows = [_rows_of(storage, history_of(merge.root), file) for file in together]
        for row in heapq.merge(*rows, key=lambda row: row[:3]):
            if row[:3] != before:
                before = row[:3]
                yield row


def _overlapping(files: Sequence[ArchiveFile]) -> Iterator[list[ArchiveFile]]:
    together: list[ArchiveFile] = []
    last = ""
    for file in sorted(files, key=lambda file: file.range):
        if together and file.range[0] > last:
            yield together
            together, last = [], ""
        together.append(file)
        last = max(last, file.range[1])
    yield together


def _rows_of(storage: Storage, folder: str, file: ArchiveFile) -> Iterator[ArchivedInstant]:
    kept = KeptArchive()
    for group in kept.groups(storage, folder, file):
        yield from kept.contents(storage, folder, group, EVER)


def publish_merged(by: Term, merge: Merge, ticket: Ticket, lease: Lease, delete: Delete, hit: Hit) -> bool:
    """Puts the merged file in the place of those that it holds. False when another archiver merged some of
    them meanwhile: then it is of no use. Repeatable.
    """
    manifest = newest_manifest(by.storage, merge.root)
    names = {file.name for file in merge.files}
    if any(file.name == merge.name for file in manifest.files):
        return True
    if not names <= {file.name for file in manifest.files}:
        return False
    try:
        by.publish([ticket], lease)
    except TimelineConflictError:
        delete(merge.path)
        by.publish([ticket], lease)
    hit(AFTER_MERGED_PUBLISHED)
    left = tuple(file for file in manifest.files if file.name not in names)
    merged = ArchiveFile(merge.name, ticket.size)
    _publish_manifest(by, history_of(merge.root), manifest.version, (*left, merged), lease, delete, hit)
    return True


def delete_superseded(storage: Storage, root: str, delete: Delete, is_over: Callable[[], bool]) -> bool:
    """Deletes all but the newest manifests, then files that none of these names; returns whether it is done.
    Stops when `is_over()`.
    """
    folder = history_of(root)
    names = storage.names(folder)
    versions = sorted(version for name in names if (version := manifest_version(name)) is not None)
    kept, gone = versions[-MANIFESTS_KEPT:], versions[:-MANIFESTS_KEPT]
    if not kept:
        return True
    archive = KeptArchive()
    named = {file.name for version in kept for file in archive.read(storage, folder, version).files}
    files = sorted(name for name in names if is_data_file(name) and name not in named)
    for name in (*map(manifest_name, gone), *files):
        if is_over():
            return False
        delete(join_path(folder, name))
    return True
