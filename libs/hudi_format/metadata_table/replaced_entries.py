"""Whether the record index lost entries of rows that are there when another engine replaced file groups.

Hudi's insert overwrite and delete partition delete the entries of all keys that the *base files* of the
partition name (`HoodieBackedTableMetadataWriter.getRecordIndexReplacedRecords` of 1.2.0). In a MERGE_ON_READ
table a log file may say that a row of the base file is gone: deleted, or moved to another partition.

Example: the base file of group G in partition x has key k. k moves to partition y: a delete in a log file of
G, a row in y, and the index says y. Partition x is dropped: Hudi deletes the index entry of k. The row in y
has none, and the next update of k, by Hudi or by us, would insert it a second time.

Such a replacecommit is told by its own changes of the index: a deleted entry that named a file group that was
not replaced, by this one or before. (Where partition y was dropped before, k has no row, and its entry was
left behind.) A clustering moves entries along with their rows. What was built after it is right.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from hudi_format.commit.instants import instant_path
from hudi_format.errors import UnsupportedTableError
from hudi_format.file_group.names import BaseFileName, parse_data_file
from hudi_format.file_group.slices import FileGroupId, FileSlice
from hudi_format.metadata_table.file_ids import METADATA_TABLE_PATH
from hudi_format.metadata_table.restored_index import INDEX_REMEDY, newest_build
from hudi_format.metadata_table.shard import ShardSnapshot
from hudi_format.model import is_bootstrap_instant
from hudi_format.replaced_rows import ReplacedRows
from hudi_format.storage.base import Storage, join_path
from hudi_format.timeline import Action, Instant, Timeline
from hudi_format.timeline.avro_records import decode_replace_commit_metadata

_FOLDER: Final = join_path(METADATA_TABLE_PATH, "record_index")
_CLUSTERING: Final = "CLUSTER"


class ReplacedEntries:
    """Looks at each completed replacecommit once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._passed: set[str] = set()
        self._rows = ReplacedRows(storage)

    def check(self, data: Timeline, metadata: Timeline) -> None:
        """Raises UnsupportedTableError where a replacecommit on the active timelines took entries of rows
        that are there; CorruptFileError, and FileMissingError where files were taken away meanwhile: list
        again.
        """
        for instant in data.completed(Action.REPLACE_COMMIT, Action.CLUSTERING):
            if instant.file_name not in self._passed:
                if str(instant.completion) > newest_build(metadata):
                    self._check(instant, data, metadata)
                self._passed.add(instant.file_name)

    def _check(self, instant: Instant, data: Timeline, metadata: Timeline) -> None:
        path = instant_path(instant)
        found = decode_replace_commit_metadata(self._storage.read(path), path)
        change = metadata.find(instant.requested)
        if found.commit.operation_type == _CLUSTERING or change is None or not change.is_completed:
            return
        groups = {(where, each) for where, ids in found.replaced_file_ids.items() for each in ids}
        found_elsewhere = _taken(self._storage, metadata, change, groups)
        gone = self._rows.before(str(instant.completion), data) if found_elsewhere else frozenset()
        taken = [key for key, group in found_elsewhere if group not in gone]
        if taken:
            raise UnsupportedTableError(
                f"another engine's {found.commit.operation_type} {instant.requested} took the index "
                f"entries of {len(taken)} keys whose rows are in file groups that it did not replace (as "
                f"{taken[0]!r}): updates would double them",
                INDEX_REMEDY,
            )


def _taken(
    storage: Storage, metadata: Timeline, change: Instant, replaced: set[FileGroupId]
) -> list[tuple[str, FileGroupId]]:
    """Keys whose entries the instant deleted, although they named other file groups: these."""
    completions = {each.requested: str(each.completion) for each in metadata.completed()}
    taken: list[tuple[str, FileGroupId]] = []
    for file_id, names in _by_group(storage).items():
        mine = [name for name in names if _instant(name) == change.requested and ".log." in name]
        if not mine:
            continue
        after = _shard(storage, FileSlice("record_index", file_id, None, change.requested, tuple(mine)))
        changes = after.log_changes()
        deleted = changes.keys.filter(pa.array(changes.location_ids < 0))
        if not len(deleted):
            continue
        before = _slice_before(file_id, names, completions, str(change.completion))
        keys = deleted.sort()
        found = _shard(storage, before).lookup(keys)
        places = [found.locations[number] for number in found.location_ids[found.found].tolist()]
        groups = [(each.partition_path, each.file_id) for each in places]
        named = zip(keys.filter(pa.array(found.found)).to_pylist(), groups, strict=True)
        taken += [(key, group) for key, group in named if group not in replaced]
    return taken


def _by_group(storage: Storage) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for each in storage.list(_FOLDER):
        parsed = parse_data_file(each.name)
        if parsed is not None:
            groups.setdefault(parsed.file_id, []).append(each.name)
    return {file_id: sorted(groups[file_id]) for file_id in sorted(groups)}


def _instant(name: str) -> str:
    parsed = parse_data_file(name)
    return parsed.instant if parsed is not None else ""


def _slice_before(file_id: str, names: list[str], completions: dict[str, str], completion: str) -> FileSlice:
    """What the index said before that completion."""
    bases = {
        parsed.instant: name
        for name in names
        if isinstance(parsed := parse_data_file(name), BaseFileName)
        and (is_bootstrap_instant(parsed.instant) or completions.get(parsed.instant, "~") < completion)
    }
    begin = max(bases, default="")
    logs = [
        (completions[instant], name)
        for name in names
        if ".log." in name and begin < completions.get(instant := _instant(name), "") < completion
    ]
    return FileSlice(
        "record_index", file_id, bases.get(begin), begin, tuple(name for _, name in sorted(logs))
    )


def _shard(storage: Storage, file_slice: FileSlice) -> ShardSnapshot:
    return ShardSnapshot(storage, _FOLDER, file_slice, lambda _: True, lambda _: None)
