"""Refuses a table whose record index lost entries of living rows when another engine replaced file groups.

Hudi's insert overwrite and delete partition delete the entries of all keys that the *base files* of the
partition name (`HoodieBackedTableMetadataWriter.getRecordIndexReplacedRecords` of 1.2.0). In a MERGE_ON_READ
table a log file may say that a row of the base file was deleted, or has moved to another partition.

Example: the base file of group G in partition x has key k. k moves to partition y: a log file of G deletes
it, y gets a row, and its index entry says y. Then partition x is dropped, and Hudi deletes the entry of k.
The row in y has no entry, so the next update of k, by Hudi or by Tidemark, would insert it a second time.

The rule: a replacecommit is wrong if it deleted an entry that named a file group which no replacecommit
replaced.

- If partition y was dropped, too, k has no row, and the drop of x is right. In which order the drops came
  nobody can tell, because each engine uses its own clock. So the drop of x is right as long as the drop of y
  is on a timeline; when a restore takes that back, it is checked again.
- A clustering replaces groups, too, but moves the entries along with the rows.
- An index that was built after the replacecommit is right.
- In a COPY_ON_WRITE table a base file names living rows only.

The files that the check reads disappear: the metadata table is compacted and cleaned, timelines are archived.
So

- replacecommits are looked for on the active *and* on the archived timeline,
- those that passed are stored beside the table (`checked_index`), and are not checked again as long as all of
  them are on a timeline,
- where the files are gone before a check, the table is refused as well, until somebody compared rows and
  index (`tidemark verify`) or built the index anew.
"""

from __future__ import annotations

from collections.abc import Set

import pyarrow as pa

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.metadata_table.checked_index import (
    CHECKED_INDEX,
    checked_replacecommits,
    keep_checked,
)
from tidemark.hudi_format.metadata_table.index_history import IndexHistory, newest_index_build
from tidemark.hudi_format.metadata_table.restored_index import INDEX_REMEDY
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.replaced_rows import Groups, ReplacedRows, completion_of
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import Timeline

_WHO = "another engine's insert overwrite or delete partition"


class ReplacedEntries:
    """Checks each completed replacecommit once, and all of them again where one of them was taken back."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._passed: frozenset[str] = frozenset()
        self._to_keep: frozenset[str] = frozenset()
        self._rows = ReplacedRows(storage)

    def check(self, data: Timeline, metadata: Timeline) -> None:
        """Raises UnsupportedTableError where a replacecommit deleted entries of living rows, or where the
        files that would tell are gone; CorruptFileError; FileMissingError where files were deleted meanwhile:
        list again.

        Where nothing was replaced since the last call, this reads the archive's newest manifest alone.
        """
        names = self._rows.names(data)
        if names == self._passed:
            return
        if not self._passed <= names:
            self._passed = self._to_keep = frozenset()
        if not self._is_copy_on_write():
            known = self._passed | checked_replacecommits(self._storage, names)
            self._to_keep |= self._check_new(names - known, data, metadata)
        self._passed = names

    def keep(self, by: Term) -> None:
        """Stores the replacecommits that passed `check` and are not stored yet.

        Raises OSError, and FencedOutError where the term is over.
        """
        if self._to_keep:
            keep_checked(self._storage, self._to_keep, self._passed, by)
            self._to_keep = frozenset()

    def _check_new(self, names: Set[str], data: Timeline, metadata: Timeline) -> Set[str]:
        """Checks these replacecommits; returns those of them that replaced rows. Raises as `check`."""
        new = {name: groups for name, groups in self._rows.of(names, data).items() if groups}
        if not new:
            return frozenset()
        build = newest_index_build(self._storage, metadata)
        history = IndexHistory(self._storage, metadata, build)
        for name in sorted(new, key=completion_of):
            if completion_of(name) > build:
                self._check(name, new[name], history, data)
        return new.keys()

    def _is_copy_on_write(self) -> bool:
        return read_table_config(self._storage).table_type is TableType.COPY_ON_WRITE

    def _check(self, name: str, replaced: Groups, history: IndexHistory, data: Timeline) -> None:
        requested = name.partition("_")[0]
        changed = history.changed_by(requested)
        if changed is None:
            raise UnsupportedTableError(
                f"whether {_WHO} {requested} took index entries of rows that had moved elsewhere cannot be "
                "told any more: the index files of that time were cleaned. If it did, updates would double "
                "rows",
                f"Run `tidemark verify`: where rows and index agree it says so in {CHECKED_INDEX}, and "
                f"Tidemark goes on. Where they do not: {INDEX_REMEDY[0].lower()}{INDEX_REMEDY[1:]}",
            )
        elsewhere = [
            entry for before, changes in changed for entry in taken_entries(before, changes, replaced)
        ]
        gone = self._rows.gone(data) if elsewhere else frozenset()
        taken = [key for key, group in elsewhere if group not in gone]
        if taken:
            raise UnsupportedTableError(
                f"{_WHO} {requested} took the index entries of {len(taken)} keys whose rows are in file "
                f"groups that it did not replace (as {taken[0]!r}): updates would double them",
                INDEX_REMEDY,
            )


def taken_entries(
    before: ShardSnapshot, changes: ShardSnapshot, replaced: Groups = frozenset()
) -> list[tuple[str, FileGroupId]]:
    """(key, file group) of each deleted entry that named a file group which is not in ``replaced``."""
    changed = changes.log_changes()
    keys = changed.keys.filter(pa.array(changed.location_ids < 0)).sort()
    if not len(keys):
        return []
    found = before.lookup(keys)
    places = [found.locations[number] for number in found.location_ids[found.found].tolist()]
    groups = [(place.partition_path, place.file_id) for place in places]
    named = zip(keys.filter(pa.array(found.found)).to_pylist(), groups, strict=True)
    return [(key, group) for key, group in named if group not in replaced]
