"""The changes that data instants made to one shard of the record index, read from their own log files.

They are read by instant, not by slice: a log file stays on disk for some time after a compaction merged it
into a base file, and still says what its instant did. Where a log file is gone the answer is None, never a
shorter list. Where a shard has no log file of an instant, the commit metadata of the instant's deltacommit
says whether there was one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.metadata_table.log_records import SourcedBlock, read_log_blocks, stored_entries
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX, RecordIndexEntries
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

# Sorts before every completion time: "before the first commit".
BEGINNING: Final = "0"
# Data actions that leave every record where it is. A rollback is one of them: it takes back an instant that
# never counted. (A rollback of a completed instant removes its completion time from the timeline, which
# `ShardChanges.after` notices.)
_NEVER_TOUCHING: Final = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.ROLLBACK, Action.SAVEPOINT}
)


@dataclass(frozen=True)
class ShardChanges:
    """The log files of the record index as of one listing. `logs`: file group -> instant -> names of its log
    files, in the order in which they are read; also those that a compaction has merged.
    """

    storage: Storage
    folder: str
    validity: InstantValidity
    logs: Mapping[str, Mapping[str, tuple[str, ...]]]
    _touched: dict[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)

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

    def after(self, file_id: str, completion_time: str) -> list[tuple[str, RecordIndexEntries]] | None:
        """What `ShardSnapshot.changes_after` returns, of the shard that is the file group `file_id`."""
        data = self.validity.data
        if data.archive is not None and data.archive.has_completed_after(completion_time):
            return None
        active = [(str(instant.completion), instant) for instant in data.completed()]
        # A completion time that no instant has any more was rolled back, or taken back by a restore: then the
        # caller's state may hold changes that do not count.
        if completion_time > BEGINNING and not self._is_completion(completion_time):
            return None
        changes: list[tuple[str, RecordIndexEntries]] = []
        for _, instant in sorted(
            (timed for timed in active if timed[0] > completion_time), key=lambda timed: timed[0]
        ):
            names = self.logs.get(file_id, {}).get(instant.requested, ())
            if not names and self._may_have_touched(file_id, instant):
                return None
            try:
                entries = self._read(instant.requested, names)
            except FileMissingError:
                return None
            if len(entries):
                changes.append((instant.requested, entries))
        return changes

    def _is_completion(self, time: str) -> bool:
        data = self.validity.data
        if any(each.completion == time for each in data.completed()):
            return True
        return data.archive is not None and bool(data.archive.completed_between(time, time))

    def _read(self, instant: str, names: tuple[str, ...]) -> RecordIndexEntries:
        blocks = read_log_blocks(self.storage, self.folder, names)
        return RECORD_INDEX.merge(stored_entries(block) for block in blocks if _is_own(block, instant))

    def _may_have_touched(self, file_id: str, instant: Instant) -> bool:
        """Whether the instant's deltacommit names a file of that file group. True where it is not known."""
        if instant.action in _NEVER_TOUCHING:
            return False
        found = self.validity.metadata.find(instant.requested)
        if found is None or not found.is_completed:
            return True
        if instant.requested not in self._touched:
            path = join_path(METADATA_TABLE_ROOT, "timeline", found.file_name)
            stats = decode_commit_metadata(self.storage.read(path), path).stats()
            self._touched[instant.requested] = frozenset(stat.file_id for stat in stats)
        return file_id in self._touched[instant.requested]


def _is_own(source: SourcedBlock, instant: str) -> bool:
    return source.block.instant_time == instant and not source.block.compacted_block_times
