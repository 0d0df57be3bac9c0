"""File groups that another engine replaced together with their rows, as of one look at the data timeline.

An insert overwrite or a delete partition takes the rows of the file groups that it replaces away, and that
stays so when its replacecommit is archived. A clustering replaces groups, too, and moves their rows.
"""

from __future__ import annotations

from typing import Final

from hudi_format.commit.instants import instant_path
from hudi_format.file_group.slices import FileGroupId
from hudi_format.storage.base import Storage
from hudi_format.timeline import Action, Timeline
from hudi_format.timeline.archived import ArchivedTimeline
from hudi_format.timeline.avro_records import decode_replace_commit_metadata

_REPLACING: Final = (".replacecommit", ".clustering")
_CLUSTERING: Final = "CLUSTER"

Groups = frozenset[FileGroupId]


class ReplacedRows:
    """Reads each replacecommit once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._known: dict[str, Groups] = {}

    def before(self, completion: str, timeline: Timeline) -> Groups:
        """Those of the active and of the archived timeline that were replaced before this completion time.
        Raises CorruptFileError, and FileMissingError where a replacecommit was archived or taken back
        meanwhile: list again.
        """
        active = timeline.completed(Action.REPLACE_COMMIT, Action.CLUSTERING)
        for each in active:
            if each.file_name not in self._known:
                path = instant_path(each)
                self._known[each.file_name] = _groups(self._storage.read(path), path)
        names = {each.file_name for each in active}
        if timeline.archive is not None:
            names |= self._read(timeline.archive)
        return frozenset().union(*(self._known[name] for name in names if _completion(name) < completion))

    def archived(self, archive: ArchivedTimeline) -> Groups:
        """Those of the archived timeline, whose files are gone by now. Raises CorruptFileError."""
        return frozenset().union(*(self._known[name] for name in self._read(archive)))

    def _read(self, archive: ArchivedTimeline) -> set[str]:
        """The names of the archived replacecommits, which are known from now on."""
        names = {name for name in archive.identities() if name.endswith(_REPLACING)}
        new = names - self._known.keys()
        if new:
            requested = [name.partition("_")[0] for name in new]
            for each in archive.instants(min(requested), max(requested)):
                name = f"{each.requested}_{each.completion}.{each.action}"
                if name in new:
                    self._known[name] = _groups(each.metadata, f"archived replacecommit {each.requested}")
        return names & self._known.keys()


def _completion(name: str) -> str:
    return name.partition("_")[2].partition(".")[0]


def _groups(data: bytes, where: str) -> Groups:
    metadata = decode_replace_commit_metadata(data, where)
    if metadata.commit.operation_type == _CLUSTERING:
        return frozenset()
    replaced = metadata.replaced_file_ids
    return frozenset((partition, each) for partition, ids in replaced.items() for each in ids)
