"""A table's files put together: both timelines, their documents, and the slices that readers work with."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, Final

import pyarrow.parquet as pq

from tests.hudi_rules.documents import Document, decode
from tests.hudi_rules.slices import (
    Group,
    Slice,
    clustered,
    groups_of,
    read_slice,
    replaced,
    replaced_for_good,
    scheduled,
    slices_of,
)
from tests.hudi_rules.timeline import Instant, Timeline, parse_timeline

DATA: Final = ".hoodie/timeline"
METADATA: Final = ".hoodie/metadata/.hoodie/timeline"

Names = Callable[[str], list[str]]
Read = Callable[[str], bytes]


def newest_manifest(names: Callable[[str], Collection[str]], read: Read, folder: str) -> int | None:
    """The number of the manifest that counts in a history's folder, for who reads and for who archives: what
    `_version_` says, and without it the largest one, which an archiver left that died before. None when there
    is none.
    """
    there = names(folder)
    if "_version_" in there and (text := read(f"{folder}/_version_").strip()):
        return int(text)
    numbers = (int(name.partition("_")[2]) for name in there if name.startswith("manifest_"))
    return max(numbers, default=None)


class HudiTable:
    """A table as it is now; made anew for each look. ``names(folder)`` lists a folder's files, ``read(path)``
    gives a file's bytes, ``files``: partition path -> names, from the folders or as the metadata table lists
    them.
    """

    def __init__(self, names: Names, read: Read, files: Mapping[str, list[str]], root: str = DATA) -> None:
        self._names, self._read, self._root = names, read, root
        self.files = {partition: list(each) for partition, each in files.items()}

    @cached_property
    def timeline(self) -> Timeline:
        return parse_timeline(self._names(self._root), self.archived)

    @cached_property
    def archived(self) -> dict[str, str]:
        """Requested -> completion time of what is in the history."""
        return {row["instantTime"]: row["completionTime"] for row in self.history}

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The archived instants: instantTime, completionTime, action, metadata, plan."""
        folder = f"{self._root}/history"
        number = newest_manifest(self._names, self._read, folder)
        if number is None:
            return []
        manifest = json.loads(self._read(f"{folder}/manifest_{number}"))
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for file in manifest["files"]:
            content = self._read(f"{folder}/{file['fileName']}")
            for row in pq.ParquetFile(io.BytesIO(content)).read(use_threads=False).to_pylist():
                # Two archivers may both have written it.
                rows[row["instantTime"], row["action"]] = row
        return [rows[each] for each in sorted(rows)]

    def document(self, instant: Instant) -> Document:
        """What a completed instant says."""
        return decode(self._read(f"{self._root}/{instant.name}"))

    def plan(self, instant: Instant) -> Document:
        """What was requested."""
        return decode(self._read(f"{self._root}/{instant.requested}.{instant.action}.requested"))

    @cached_property
    def replaced(self) -> dict[Group, str]:
        """File group -> the replacecommit that took it away. One that is archived does so no more: its groups
        were cleaned before that.
        """
        done = self.timeline.completed("replacecommit", "clustering")
        return replaced({each.requested: self.document(each) for each in done})

    @cached_property
    def replaced_in_history(self) -> frozenset[Group]:
        """File groups that archived replacecommits took away with their rows."""
        done = [row["metadata"] for row in self.history if row["action"] == "replacecommit"]
        return replaced_for_good([decode(each) for each in done])

    @cached_property
    def scheduled(self) -> dict[Group, str]:
        """File group -> the compaction that is scheduled for it."""
        pending = self.timeline.pending("compaction")
        return scheduled({each.requested: self.plan(each) for each in pending})

    @cached_property
    def clustered(self) -> dict[Group, str]:
        """File group -> the clustering that is scheduled for it."""
        pending = self.timeline.pending("clustering")
        return clustered({each.requested: self.plan(each) for each in pending})

    @cached_property
    def groups(self) -> dict[Group, list[str]]:
        return groups_of(self.files)

    def slices(self, group: Group) -> list[Slice]:
        """All slices of a file group, oldest first."""
        return slices_of(self.groups[group], self.timeline, self.scheduled.get(group))

    def read_slices(self) -> dict[Group, tuple[str | None, list[str]]]:
        """What a snapshot reader merges: replaced groups are invisible."""
        found: dict[Group, tuple[str | None, list[str]]] = {}
        for group, names in self.groups.items():
            if group in self.replaced:
                continue
            shown = read_slice(names, self.timeline, self.scheduled.get(group))
            if shown is not None:
                found[group] = shown
        return found

    @cached_property
    def savepoints(self) -> dict[str, dict[str, set[str]]]:
        """Savepointed instant -> partition path -> the files that it keeps."""
        found: dict[str, dict[str, set[str]]] = {}
        for name in self._names(self._root):
            if name.endswith(".savepoint") and "_" in name:
                parts = decode(self._read(f"{self._root}/{name}"))["partitionMetadata"]
                found[name.partition("_")[0]] = {
                    partition: set(each["savepointDataFile"]) for partition, each in parts.items()
                }
        return found
