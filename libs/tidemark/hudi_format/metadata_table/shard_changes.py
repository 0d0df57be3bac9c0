"""The changes that data instants made to one shard of the record index, read from their own log files.

They are read by instant, not by slice: a log file stays on disk for some time after a compaction merged it
into a base file, and still says what its instant did. It makes no difference either whether the instant is
still on the active timelines, or archived since. Where a log file is gone the answer is None, never a
shorter list; where one goes while it is read, an error. Where a shard has no log file of an instant, the
commit metadata of the instant's deltacommit says whether there was one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from tidemark.hudi_format.errors import ChangesGoneError, FileMissingError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.metadata_table.bootstrap import INITIAL_TOKEN
from tidemark.hudi_format.metadata_table.index_writes import IndexWrites
from tidemark.hudi_format.metadata_table.log_records import SourcedBlock, block_heads, blocks_entries
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    RecordIndexEntries,
    parse_record_index_file_id,
)
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action

# Sorts before every completion time: "before the first commit".
BEGINNING: Final = "0"
# Data actions that leave every record where it is. A rollback is one of them: it takes back an instant that
# never counted. (A rollback of a completed instant removes its completion time from the timeline, which
# `ShardChanges.after` notices.)
_NEVER_TOUCHING: Final = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.ROLLBACK, Action.SAVEPOINT}
)
# In the archive a compaction is a `commit`, as an upsert of a COPY_ON_WRITE table is: its deltacommit tells.
_NEVER_TOUCHING_WORDS: Final = frozenset({"clean", "rollback", "savepoint", "logcompaction"})

_Names: TypeAlias = tuple[str, ...]
_Archived: TypeAlias = Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True)
class _Commit:
    """A completed data instant. `never_touches`: its action moves no record."""

    completion: str
    requested: str
    never_touches: bool


@dataclass(frozen=True, slots=True)
class ChangeStream:
    """The changes that instants made to one shard, in the order of the instants. Iterated, it yields each
    instant with the entries of one log block; an instant may have several, of which the later ones count.

    One block is in memory at a time: a shard that was away for long may lack millions of changes. Each
    iteration reads the files again. Raises ChangesGoneError where one was deleted meanwhile.
    """

    _storage: Storage
    _folder: str
    _written: tuple[tuple[str, _Names], ...]

    def __bool__(self) -> bool:
        return bool(self._written)

    def __iter__(self) -> Iterator[tuple[str, RecordIndexEntries]]:
        for instant, names in self._written:
            try:
                heads = block_heads(self._storage, self._folder, names)
                own = [head for head in heads if _is_own(head, instant)]
                for stored in blocks_entries(self._storage, own):
                    entries = RECORD_INDEX.merge([stored])
                    if len(entries):
                        yield instant, entries
            except FileMissingError as error:
                raise ChangesGoneError(str(error)) from error

    def parts(self) -> Iterator[RecordIndexEntries]:
        """The entries without their instants."""
        return (entries for _, entries in self)


@dataclass(frozen=True)
class ShardChanges:
    """The log files of the record index as of one listing. `logs`: file group -> instant -> names of its log
    files, in the order in which they are read; also those that a compaction has merged.
    """

    storage: Storage
    folder: str
    validity: InstantValidity
    logs: Mapping[str, Mapping[str, _Names]]
    _archived: dict[str, _Archived] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of_names(
        cls, storage: Storage, folder: str, validity: InstantValidity, names: Iterable[str]
    ) -> ShardChanges:
        """`names`: all names in the record index's folder."""
        logs: dict[str, dict[str, list[LogFileName]]] = {}
        for name in names:
            parsed = LogFileName.parse(name)
            if parsed is not None and not (parsed.is_cdc or parsed.is_archive):
                logs.setdefault(parsed.file_id, {}).setdefault(parsed.instant, []).append(parsed)
        ordered = {
            file_id: {
                instant: tuple(str(log) for log in sorted(group, key=lambda name: name.order))
                for instant, group in by_instant.items()
            }
            for file_id, by_instant in logs.items()
        }
        return cls(storage, folder, validity, ordered)

    @cached_property
    def _writes(self) -> IndexWrites:
        return IndexWrites(self.storage, self.validity.metadata)

    def after(self, file_id: str, completion_time: str) -> ChangeStream | None:
        """What `ShardSnapshot.changes_after` returns, of the shard that is the file group `file_id`."""
        commits = self._commits_after(completion_time)
        if commits is None or self._has_unknown_logs(file_id, completion_time, commits):
            return None
        written: list[tuple[str, _Names]] = []
        unnamed = [commit.requested for commit in commits if not self._named(file_id, commit.requested)]
        for commit in commits:
            names = self._files_of(file_id, commit, unnamed)
            if names is None:
                return None
            if names:
                written.append((commit.requested, names))
        return ChangeStream(self.storage, self.folder, tuple(written))

    def any_after(self, completion_time: str) -> bool:
        """Whether an instant that may change records completed after that time, archived ones included."""
        commits = self._commits_after(completion_time)
        return commits is None or not all(commit.never_touches for commit in commits)

    def _commits_after(self, completion_time: str) -> list[_Commit] | None:
        """The data instants that completed after that time, in the order of completion; None where they, or
        the instant that completed at that time, are not known.
        """
        data = self.validity.data
        active = [
            _Commit(str(instant.completion), instant.requested, instant.action in _NEVER_TOUCHING)
            for instant in data.completed()
        ]
        if completion_time <= BEGINNING:
            # All commits that the table ever had: nobody has kept the log files of the first ones.
            is_cut = data.archive is not None and data.archive.has_completed_after(BEGINNING)
            return None if is_cut else sorted(active, key=_in_order)
        archived = self._archived_from(completion_time)
        known = {commit.completion for commit in active} | {completion for _, completion, _ in archived}
        # A completion time that no instant has any more was rolled back, or taken back by a restore: then the
        # caller's state may hold changes that do not count.
        if completion_time not in known or (archived and data.first_active is None):
            return None
        commits = active + [
            _Commit(completion, requested, action in _NEVER_TOUCHING_WORDS)
            for requested, completion, action in archived
            # The others are on the active timeline, too, or were not there yet when it was listed.
            if data.is_archived(requested)
        ]
        after = (commit for commit in commits if commit.completion > completion_time)
        return sorted(after, key=_in_order)

    def _archived_from(self, completion_time: str) -> _Archived:
        if completion_time not in self._archived:
            archive = self.validity.data.archive
            names = archive.completed_names(completion_time) if archive is not None else ()
            self._archived[completion_time] = names
        return self._archived[completion_time]

    def _has_unknown_logs(self, file_id: str, completion_time: str, commits: Sequence[_Commit]) -> bool:
        """Whether the shard has log files that count, of instants that were requested after that time and
        that neither the timeline nor its archive knows: nobody can tell when they completed.
        """
        known = {commit.requested for commit in commits}
        return any(
            instant > completion_time
            and instant not in known
            and not is_bootstrap_instant(instant)
            and self.validity.data.is_archived(instant)
            and self.validity.is_valid(instant)
            for instant in self.logs.get(file_id, {})
        )

    def _named(self, file_id: str, requested: str) -> _Names:
        return self.logs.get(file_id, {}).get(requested, ())

    def _files_of(self, file_id: str, commit: _Commit, unnamed: Collection[str]) -> _Names | None:
        """The names of all log files that the commit added to the shard; None where some of them are gone, or
        may be. `unnamed`: commits that are going to be asked for, too.
        """
        names = self._named(file_id, commit.requested)
        if _is_one_of_ours(file_id, names) or (not names and commit.never_touches):
            return names
        written = self._writes.of(commit.requested, unnamed)
        # Hudi begins a new file group with an empty log file, which no write status names.
        if written is None or not written.get(file_id, frozenset()) <= frozenset(names):
            return None
        return names


def _in_order(commit: _Commit) -> tuple[str, str]:
    return commit.completion, commit.requested


def _is_one_of_ours(file_id: str, names: _Names) -> bool:
    """Whether these are all log files that a commit of ours adds to a shard: one with the token
    `<shard>-0-0`. In a partitioned index the token of entries is `<shard>-0-1`, and a file of 80 bytes,
    `0-0-0`, stands before it in a group that the commit begins. That one alone tells nothing: the other may
    be gone.

    Of other engines' commits there may be several, and a clean that has begun may have deleted some of them.
    """
    group = parse_record_index_file_id(file_id)
    parsed = [log for log in map(LogFileName.parse, names) if log is not None]
    if group.partition_path is None:
        return len(parsed) == 1 and _is_version_one(parsed[0], "-0-0")
    written = [log for log in parsed if log.write_token != INITIAL_TOKEN]
    return len(written) == 1 and _is_version_one(written[0], f"{group.shard}-0-1")


def _is_version_one(log: LogFileName, token_end: str) -> bool:
    return log.version == 1 and log.write_token.endswith(token_end)


def _is_own(source: SourcedBlock, instant: str) -> bool:
    return source.block.instant_time == instant and not source.block.compacted_block_times
