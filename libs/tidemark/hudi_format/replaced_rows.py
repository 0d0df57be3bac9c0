"""File groups whose rows another engine removed by replacing the groups, at one look at the data timeline.

An insert overwrite or a delete partition removes the rows of the file groups that it replaces, for good: also
after its replacecommit was archived. A clustering replaces groups, too, but moves their rows to new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant, Timeline
from tidemark.hudi_format.timeline.archived import ArchivedTimeline
from tidemark.hudi_format.timeline.avro_records import decode_replace_commit_metadata

_REPLACING: Final = Action.REPLACE_COMMIT.completed_word
_CLUSTERING: Final = "CLUSTER"

Groups = frozenset[FileGroupId]


class ReplacedRows:
    """Reads each replacecommit once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Groups] = {}

    def names(self, timeline: Timeline) -> frozenset[str]:
        """The names of the completed files of all replacecommits and clusterings, active and archived.

        Raises CorruptFileError.
        """
        active = frozenset(instant.file_name for instant in _active(timeline))
        return active | timeline.archive.identities_of(_REPLACING) if timeline.archive is not None else active

    def of(self, names: Iterable[str], timeline: Timeline) -> dict[str, Groups]:
        """Per name the file groups whose rows that replacecommit removed; none for a clustering.

        Raises CorruptFileError, and FileMissingError when a replacecommit was archived or rolled back since:
        list again.
        """
        new = set(names) - self._known.keys()
        for instant in _active(timeline):
            if instant.file_name in new:
                path = instant_path(instant)
                self._known[instant.file_name] = _groups(self._storage.read(path), path)
        if timeline.archive is not None:
            self._read(timeline.archive, new - self._known.keys())
        return {name: self._known[name] for name in names if name in self._known}

    def taking_rows(self, timeline: Timeline) -> frozenset[str]:
        """The names of the replacecommits that removed rows, so no clusterings. Raises as `of`."""
        return frozenset(name for name, groups in self.of(self.names(timeline), timeline).items() if groups)

    def gone(self, timeline: Timeline) -> Groups:
        """All file groups whose rows were removed. Raises as `of`."""
        return frozenset().union(*self.of(self.names(timeline), timeline).values())

    def archived(self, archive: ArchivedTimeline) -> Groups:
        """The file groups whose rows archived replacecommits removed; their files are gone by now.

        Raises CorruptFileError.
        """
        names = archive.identities_of(_REPLACING)
        self._read(archive, names - self._known.keys())
        return frozenset().union(*(self._known[name] for name in names if name in self._known))

    def _read(self, archive: ArchivedTimeline, names: Collection[str]) -> None:
        if not names:
            return
        for instant in archive.instants_at({name.partition("_")[0] for name in names}):
            name = f"{instant.requested}_{instant.completion}.{instant.action}"
            if name in names:
                self._known[name] = _groups(instant.metadata, f"archived replacecommit {instant.requested}")


def _active(timeline: Timeline) -> tuple[Instant, ...]:
    return timeline.completed(Action.REPLACE_COMMIT, Action.CLUSTERING)


def completion_of(name: str) -> str:
    """The completion time in the name of a completed timeline file."""
    return name.partition("_")[2].partition(".")[0]


def _groups(data: bytes, where: str) -> Groups:
    metadata = decode_replace_commit_metadata(data, where)
    if metadata.commit.operation_type == _CLUSTERING:
        return frozenset()
    replaced = metadata.replaced_file_ids
    return frozenset((partition, file_id) for partition, ids in replaced.items() for file_id in ids)
