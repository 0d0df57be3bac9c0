"""What one commit of the metadata table changed in the record index, and what the index said before it.

Both are read from files that Hudi deletes some commits later: it compacts the metadata table, cleans the
slices before, and archives the instants. Archived instants are read from the archive. Where a file is gone
the answer is None, never a part of it: all files of all commits that belong to the answer have to exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table.bootstrap import INITIAL_TOKEN
from tidemark.hudi_format.metadata_table.index_writes import (
    WRITING_ACTIONS,
    Files,
    archived_name,
    index_files,
    instant_of,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX_FOLDER,
    RECORD_INDEX_PARTITION,
)
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.model import BOOTSTRAP_INSTANT_PREFIX, is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

_BEHIND_ALL: Final = "\uffff"


class IndexHistory:
    """The history as of one listing of the metadata table's timeline and of the record index's folder.

    ``build``: the result of `newest_index_build`. Commits before it wrote files of a former index, which were
    deleted and say nothing of this one.
    """

    def __init__(self, storage: Storage, metadata: Timeline, build: str) -> None:
        self._storage = storage
        self._metadata = metadata
        self._build = build
        self._names = _by_group(storage)
        self._active = {instant.requested: str(instant.completion) for instant in metadata.completed()}
        self._written: dict[str, Files] = {}

    def changed_by(
        self, requested: str, *, but_later: bool = False
    ) -> list[tuple[ShardSnapshot, ShardSnapshot]] | None:
        """For each shard that the commit changed: the shard before the commit, and the commit's changes as a
        shard of their own. None: not all of the files exist any more.

        ``but_later``: the shard before is without changes of commits that were requested later and completed
        earlier. They stand above this commit's, because entries merge by requested times.

        Raises CorruptFileError, and FileMissingError where a file was cleaned meanwhile: list again.
        """
        completion = self._known(requested)
        mine = self._read({requested}).get(requested)
        if completion is None or mine is None:
            return None
        shards: list[tuple[ShardSnapshot, ShardSnapshot]] = []
        for file_id, names in sorted(mine.items()):
            before = self._slice_before(file_id, completion)
            if before is None or not names <= self._names.get(file_id, frozenset()):
                return None
            if but_later:
                older = tuple(name for name in before.log_files if instant_of(name) < requested)
                before = replace(before, log_files=older)
            changes = FileSlice(RECORD_INDEX_PARTITION, file_id, None, requested, tuple(sorted(names)))
            shards.append((self._shard(before), self._shard(changes)))
        return shards

    def _slice_before(self, file_id: str, completion: str) -> FileSlice | None:
        names = sorted(self._names.get(file_id, ()))
        if any(self._is_unknown(instant_of(name), completion) for name in names):
            return None
        bases = {
            parsed.instant: name
            for name in names
            if isinstance(parsed := parse_data_file(name), BaseFileName)
            and (is_bootstrap_instant(parsed.instant) or self._completion(parsed.instant) < completion)
        }
        begin = max(bases, default="")
        if not begin and not any(_begins_group(name) for name in names):
            return None
        since = max(begin, self._build)
        for files in self._read(self._completed_between(since, completion)).values():
            if not files.get(file_id, frozenset()) <= set(names):
                return None
        logs = [
            (self._completion(instant_of(name)), name)
            for name in names
            if ".log." in name and since < self._completion(instant_of(name)) < completion
        ]
        return FileSlice(
            RECORD_INDEX_PARTITION,
            file_id,
            bases.get(begin),
            begin,
            tuple(name for _, name in sorted(logs)),
        )

    def _completion(self, instant: str) -> str:
        return self._known(instant) or self._metadata.completion_time(instant) or _BEHIND_ALL

    def _known(self, instant: str) -> str | None:
        """When the instant completed, as the active or the archived timeline says."""
        active, archive = self._active.get(instant), self._metadata.archive
        return archive.completion_time(instant) if active is None and archive is not None else active

    def _completed_between(self, after: str, before: str) -> set[str]:
        """The instants that completed after the one time and before the other."""
        archive = self._metadata.archive
        found = dict(archive.completed_between(after, before)) if archive is not None else {}
        return {requested for requested, time in (found | self._active).items() if after < time < before}

    def _is_unknown(self, instant: str, completion: str) -> bool:
        """Whether no timeline says when the instant completed, and it may have been before ``completion``."""
        return (
            instant < completion
            and not is_bootstrap_instant(instant)
            and not self._metadata.contains(instant)
            and self._metadata.completion_time(instant) is None
            and self._known(instant) is None
        )

    def _read(self, instants: Collection[str]) -> dict[str, Files]:
        """Instant -> files that it wrote into the record index, for those instants that are commits."""
        missing = set(instants) - self._written.keys()
        contents = dict(_contents(self._storage, self._metadata, missing))
        self._written |= {instant: index_files(instant, *content) for instant, content in contents.items()}
        return {instant: self._written[instant] for instant in instants if instant in self._written}

    def _shard(self, file_slice: FileSlice) -> ShardSnapshot:
        return ShardSnapshot(self._storage, RECORD_INDEX_FOLDER, file_slice, lambda _: True, lambda _: None)


def newest_index_build(storage: Storage, metadata: Timeline) -> str:
    """Completion time of the newest bootstrap of the *record* index, on the active or the archived timeline;
    "" without one.

    Other indexes are built by bootstrap deltacommits, too; these name the partition that they wrote. The
    bootstrap of an empty table names none, and may be the record index's.
    """
    builds = [
        (instant.requested, str(instant.completion))
        for instant in metadata.completed()
        if is_bootstrap_instant(instant.requested)
    ]
    contents = dict(_contents(storage, metadata, {requested for requested, _ in builds}))
    built = [time for requested, time in builds if _may_build(*contents.get(requested, (b"", "")))]
    if metadata.archive is not None:
        end = BOOTSTRAP_INSTANT_PREFIX + _BEHIND_ALL
        for instant in metadata.archive.instants(BOOTSTRAP_INSTANT_PREFIX, end):
            if _may_build(instant.metadata, archived_name(instant.requested)):
                built.append(instant.completion)
    return max(built, default="")


def _contents(
    storage: Storage, metadata: Timeline, instants: Collection[str]
) -> Iterator[tuple[str, tuple[bytes, str]]]:
    """Of the commits among these instants: requested time, and the content of the completed file with what
    errors call it.
    """
    for requested in sorted(instants):
        commit = metadata.find(requested)
        if commit is not None and commit.is_completed and commit.action.value in WRITING_ACTIONS:
            path = instant_path(commit, METADATA_TABLE_ROOT)
            yield requested, (storage.read(path), path)
    archived = {requested for requested in instants if not metadata.contains(requested)}
    if archived and metadata.archive is not None:
        for instant in metadata.archive.instants_at(archived):
            if instant.action in WRITING_ACTIONS:
                yield instant.requested, (instant.metadata, archived_name(instant.requested))


def _may_build(content: bytes, where: str) -> bool:
    partitions = decode_commit_metadata(content, where).write_stats.keys() if content else ()
    return not partitions or RECORD_INDEX_PARTITION in partitions


def _begins_group(name: str) -> bool:
    """Whether a file group begins with this file: one that was written when the index was built or, where the
    index is divided by data partition, by the commit that first wrote the partition.
    """
    parsed = parse_data_file(name)
    is_first_log = isinstance(parsed, LogFileName) and parsed.write_token == INITIAL_TOKEN
    return is_first_log or is_bootstrap_instant(instant_of(name))


def _by_group(storage: Storage) -> Files:
    groups: dict[str, set[str]] = {}
    for name in storage.names(RECORD_INDEX_FOLDER):
        parsed = parse_data_file(name)
        if parsed is not None:
            groups.setdefault(parsed.file_id, set()).add(name)
    return {file_id: frozenset(names) for file_id, names in groups.items()}
