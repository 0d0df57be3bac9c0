"""Finds the committed data files by listing the storage, and compares them with the metadata table's
listing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.file_group.names import BaseFileName, parse_data_file
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions_in_use import partitions_in_use
from tidemark.hudi_format.metadata_table.snapshot import metadata_slices
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import Storage, join_path, parent_of
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Timeline, load_timeline
from tidemark.hudi_format.timeline.clean_records import decode_clean_metadata
from tidemark.table_verification.commit_check import NamedFiles
from tidemark.table_verification.findings import Findings, Kind

BuildSlices = Callable[[Mapping[str, Iterable[str]]], list[FileSlice]]


@dataclass(frozen=True)
class CommittedFiles:
    """``files``: partition path -> file name -> size in bytes, of files whose instant is committed.

    ``ignored``: number of data files of writes that have not ended.
    """

    files: Mapping[str, Mapping[str, int]]
    ignored: int

    @property
    def count(self) -> int:
        """Number of files."""
        return sum(map(len, self.files.values()))


def list_committed(storage: Storage, timeline: Timeline, findings: Findings) -> CommittedFiles:
    """Lists all base and log files of the data table whose instant the timeline calls committed.

    A file whose instant is not on the timeline is an orphan, which is a finding: once the timeline's first
    instant is newer, readers would take the orphan's instant for an archived commit. A file whose write began
    after the timeline was listed is ignored: it is newer than the timeline, or its instant is there by now.
    """
    files: dict[str, dict[str, int]] = {}
    unknown: dict[str, str] = {}
    ignored = 0
    newest = max(timeline.times(), default="")
    for top in storage.list(""):
        entries = [top] if not top.is_dir else [] if top.name == ".hoodie" else storage.walk(top.path)
        for info in entries:
            parsed = parse_data_file(info.name)
            if parsed is None:
                continue
            if timeline.is_committed(parsed.instant):
                files.setdefault(parent_of(info.path), {})[info.name] = info.size
            elif timeline.contains(parsed.instant) or parsed.instant > newest:
                ignored += 1
            else:
                unknown[info.path] = parsed.instant
    orphans = _orphans(storage, unknown, DATA_ROOT)
    for path in orphans:
        findings.add_one(Kind.ORPHAN_FILE, f"{path}: the timeline has no instant {unknown[path]}")
    return CommittedFiles(files, ignored + len(unknown) - len(orphans))


def _orphans(storage: Storage, unknown: Mapping[str, str], *roots: str) -> list[str]:
    """Those of the files (path -> instant) that are there although no timeline with these roots has their
    instant now either.

    A table service chooses its instant when it is planned, and its first file appears when it is decided:
    instants of epochs lie in between. So a file of one that began since the timelines were listed is in the
    middle of them, and not newer. When an action is taken back its files go first, and then its instant.
    """
    if not unknown:
        return []
    now = [load_timeline(storage, root) for root in roots]

    def is_known(instant: str) -> bool:
        return any(timeline.contains(instant) for timeline in now)

    return [path for path, instant in unknown.items() if not is_known(instant) and storage.exists(path)]


def cleaned_files(storage: Storage, timeline: Timeline) -> frozenset[str]:
    """Paths of the files that completed cleans of the active data timeline name.

    Tidemark's own clean commits first and deletes after, so these files may still be there. Raises
    FileMissingError when a clean was archived meanwhile.
    """
    paths: set[str] = set()
    for clean in timeline.completed(Action.CLEAN):
        path = instant_path(clean)
        try:
            deleted = decode_clean_metadata(storage.read(path), path).deleted
        except CorruptFileError:
            continue
        paths.update(join_path(partition, name) for partition, names in deleted.items() for name in names)
    return frozenset(paths)


def check_listing(
    files: CommittedFiles,
    listed: ListedFiles,
    timeline: Timeline,
    build: BuildSlices,
    findings: Findings,
    cleaned: Callable[[], frozenset[str]],
) -> int:
    """Compares the `files` partition with the files in the storage.

    Listed files of instants that are not committed are ignored. While a clean is pending, missing files
    that no reader needs are ignored as well: the clean may have deleted them. Files that are not listed are
    no difference where a completed clean names them (``cleaned``), or where another engine carried a
    compaction's plan of Tidemark's out with a base file of its own: they are to be deleted. Returns how many.
    """
    to_be_deleted = 0
    compactions = frozenset(instant.requested for instant in timeline.completed(Action.COMPACTION))

    def counts(name: str) -> bool:
        parsed = parse_data_file(name)
        return parsed is not None and timeline.is_committed(parsed.instant)

    for partition, of_partition in sorted(files.files.items()):
        if not listed.is_listed(partition):
            findings.add_one(Kind.PARTITION_NOT_LISTED, partition or "(the table's folder)")
        known = listed.files(partition)
        compacted = cache(partial(_compacted_slices, known, compactions))
        for name, size in sorted(of_partition.items()):
            where = join_path(partition, name)
            if name not in known and (where in cleaned() or _slice_of(name) in compacted()):
                to_be_deleted += 1
            elif name not in known:
                findings.add_one(Kind.FILE_NOT_LISTED, where)
            elif known[name] != size:
                findings.add_one(Kind.FILE_SIZE, f"{where}: {size} bytes, listed with {known[name]}")
    for partition in listed.partitions:
        present = files.files.get(partition, {})
        missing = {name for name in listed.files(partition) if name not in present and counts(name)}
        if missing and timeline.pending(Action.CLEAN):
            missing = _needed(partition, missing, present, build)
        for name in sorted(missing):
            findings.add_one(Kind.FILE_MISSING, join_path(partition, name))
    return to_be_deleted


def _compacted_slices(listed: Iterable[str], compactions: Collection[str]) -> frozenset[tuple[str, str]]:
    """(file id, instant) of the listed base files that a compaction made.

    Of such a slice there may be a second base file for a while: Tidemark's coordinator died within the
    compaction, and Spark carried the plan out. The coordinator's file goes when its successor ends the
    action. A second one that a write left, by a task that Spark repeated, is deleted by nobody.
    """
    slices = (_slice_of(name) for name in listed)
    return frozenset(of_it for of_it in slices if of_it is not None and of_it[1] in compactions)


def _slice_of(name: str) -> tuple[str, str] | None:
    of_it = BaseFileName.parse(name)
    return None if of_it is None else (of_it.file_id, of_it.instant)


def check_named(
    named: NamedFiles,
    present: Mapping[str, Iterable[str]],
    reported: ListedFiles | None,
    build: BuildSlices,
    root: str,
    findings: Findings,
) -> None:
    """Checks that no file which a commit wrote is gone while readers still need it.

    ``reported``: files that are listed there are left out, because `check_listing` has checked them.
    """
    for partition, names in sorted(named.items()):
        stored = set(present.get(partition, ()))
        known = reported.files(partition) if reported is not None else {}
        absent = {name for name in names if name not in stored and name not in known}
        if not absent:
            continue
        for name in sorted(_needed(partition, absent, stored, build)):
            findings.add_one(
                Kind.COMMITTED_FILE_GONE,
                f"{join_path(root, partition, name)}: written by commit {names[name]}",
            )


def _needed(partition: str, absent: set[str], present: Iterable[str], build: BuildSlices) -> set[str]:
    """Those of the absent files that a reader would open if they existed.

    The slices are built as if the absent files existed: a reader opens exactly the files of the newest
    slices.
    """
    slices = build({partition: [*present, *sorted(absent)]})
    return {name for one in slices for name in (one.base_file, *one.log_files) if name in absent}


@dataclass(frozen=True)
class MetadataFiles:
    """File names in the metadata table's partitions in use, and a builder of their slices."""

    names: Mapping[str, list[str]]
    build: BuildSlices

    @classmethod
    def list(cls, storage: Storage, validity: InstantValidity, findings: Findings) -> MetadataFiles:
        """Lists the files; adds those whose instant is on no timeline to ``findings``."""
        newest = max(validity.data.times() + validity.metadata.times(), default="")
        names: dict[str, list[str]] = {}
        unknown: dict[str, str] = {}
        for partition in partitions_in_use(storage):
            listed = storage.list(join_path(METADATA_TABLE_PATH, partition.name))
            names[partition.name] = [info.name for info in listed]
            for info in listed:
                parsed = parse_data_file(info.name)
                if parsed is None or parsed.instant > newest or _is_known(parsed.instant, validity):
                    continue
                unknown[info.path] = parsed.instant
        for path in _orphans(storage, unknown, DATA_ROOT, METADATA_TABLE_ROOT):
            findings.add_one(Kind.ORPHAN_FILE, f"{path}: no timeline has {unknown[path]}")
        return cls(names, lambda files: metadata_slices(files, validity))


def _is_known(instant: str, validity: InstantValidity) -> bool:
    timelines = (validity.data, validity.metadata)
    return any(timeline.contains(instant) or timeline.is_archived(instant) for timeline in timelines)
