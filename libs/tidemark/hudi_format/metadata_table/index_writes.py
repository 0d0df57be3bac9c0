"""Which files each commit of the metadata table wrote into an index, by the commits' own metadata.

Archived commits are read from the archive, in one piece for many of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_PARTITION
from tidemark.hudi_format.storage.base import Storage, name_of
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata

Files = Mapping[str, frozenset[str]]
"""File group of the record index -> names of its files."""

WRITING_ACTIONS: Final = ("deltacommit", "commit", "compaction", "logcompaction")


class IndexWrites:
    """Reads each commit's metadata once. `metadata`: the metadata table's timeline."""

    def __init__(self, storage: Storage, metadata: Timeline) -> None:
        self._storage, self._metadata = storage, metadata
        self._written: dict[str, Files] = {}
        self._archived: dict[str, bytes] = {}
        self._looked_for: set[str] = set()

    def of(self, requested: str, more: Collection[str] = ()) -> Files | None:
        """The files that this commit wrote; None where the commit is not completed, or nothing is known of
        it. `more`: commits that will be asked for later, and can be looked for at the same time.

        Raises FileMissingError when the commit was archived since the timeline was listed.
        """
        if requested not in self._written:
            content = self._content(requested, more)
            if content is None:
                return None
            self._written[requested] = index_files(requested, *content)
        return self._written[requested]

    def _content(self, requested: str, more: Collection[str]) -> tuple[bytes, str] | None:
        found = self._metadata.find(requested)
        if found is not None:
            path = instant_path(found, METADATA_TABLE_ROOT)
            return (self._storage.read(path), path) if found.is_completed else None
        if requested not in self._looked_for:
            self._look_for({requested, *(other for other in more if self._metadata.find(other) is None)})
        content = self._archived.pop(requested, None)
        return None if content is None else (content, archived_name(requested))

    def _look_for(self, instants: set[str]) -> None:
        self._looked_for |= instants
        if self._metadata.archive is None:
            return
        for found in self._metadata.archive.instants_at(instants):
            if found.action in WRITING_ACTIONS and found.metadata:
                self._archived[found.requested] = found.metadata


def index_files(instant: str, content: bytes, where: str) -> Files:
    """The files that the commit metadata `content` names as written by `instant`. Raises CorruptFileError."""
    files: dict[str, set[str]] = {}
    for stat in decode_commit_metadata(content, where).write_stats.get(RECORD_INDEX_PARTITION, ()):
        # A write stat may also name log files that earlier instants wrote.
        names = {
            name for name in (name_of(stat.path), *(stat.log_files or ())) if instant_of(name) == instant
        }
        files.setdefault(stat.file_id, set()).update(names)
    return {file_id: frozenset(names) for file_id, names in files.items()}


def written_logs(instant: str, content: bytes, where: str, partition: str) -> list[str]:
    """The log files that the commit metadata `content` names as written by `instant` into this partition.
    Raises CorruptFileError.
    """
    stats = decode_commit_metadata(content, where).write_stats.get(partition, ())
    names = {name for stat in stats for name in (name_of(stat.path), *(stat.log_files or ()))}
    return sorted(name for name in names if name.startswith(".") and instant_of(name) == instant)


def archived_name(requested: str) -> str:
    """What errors call an archived instant."""
    return f"archived instant {requested} of the metadata table"


def instant_of(name: str) -> str:
    """The instant in the name of a base or log file; "" for another file."""
    parsed = parse_data_file(name)
    return parsed.instant if parsed is not None else ""
