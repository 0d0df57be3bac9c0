"""Refuses a table whose record index lost entries of living rows when another engine folded log files.

Hudi 1.2.0 commits a log compaction of the data table like a write: it deletes the index entries of all keys
that the folded log files delete. Where the row is now nobody asks.

Example: k moves from group G in partition x to partition y: a log file of G deletes it, y gets a row, and its
index entry says y. A log compaction folds the log files of G, and Hudi deletes the entry of k. The row in y
has no entry, so the next update of k, by Hudi or by Tidemark, would insert it a second time.

The rule: a log compaction is wrong if it deleted an entry. It removes no row, so an entry that was there
named a living one, unless a replacecommit removed that row. An entry of a write that was requested later
stands above the log compaction's, though it may have completed before: it is not deleted.

- An index that was built after the log compaction is right.
- Only log compactions on the active timeline are looked at. The coordinator looks before each plan, so one
  that is archived was looked at, unless no coordinator ran; and where the index files of that time are gone
  nobody can tell any more. A warning asks for `tidemark verify` then, which compares all rows with the index.
"""

from __future__ import annotations

import logging

from tidemark.hudi_format.errors import UnsupportedTableError
from tidemark.hudi_format.metadata_table.index_history import IndexHistory, newest_index_build
from tidemark.hudi_format.metadata_table.replaced_entries import taken_entries
from tidemark.hudi_format.metadata_table.restored_index import INDEX_REMEDY
from tidemark.hudi_format.replaced_rows import ReplacedRows
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import Action, Instant, Timeline

_log = logging.getLogger("tidemark.table")


class FoldedEntries:
    """Checks each completed log compaction of the active data timeline once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._passed: frozenset[Instant] = frozenset()

    def check(self, data: Timeline, metadata: Timeline) -> None:
        """Raises UnsupportedTableError where a log compaction deleted entries of living rows;
        CorruptFileError; FileMissingError where files were deleted meanwhile: list again.
        """
        there = frozenset(data.completed(Action.LOG_COMPACTION))
        if new := there - self._passed:
            build = newest_index_build(self._storage, metadata)
            history = IndexHistory(self._storage, metadata, build)
            for folding in sorted(new, key=lambda instant: str(instant.completion)):
                if str(folding.completion) > build:
                    self._check(folding.requested, history, data)
        self._passed = there

    def _check(self, requested: str, history: IndexHistory, data: Timeline) -> None:
        changed = history.changed_by(requested, but_later=True)
        if changed is None:
            _log.warning(
                "whether the log compaction %s of another engine took index entries of rows that had moved "
                "elsewhere cannot be told any more: the index files of that time were cleaned. If it did, "
                "updates double rows: run `tidemark verify`",
                requested,
            )
            return
        entries = [entry for shard in changed for entry in taken_entries(*shard)]
        gone = ReplacedRows(self._storage).gone(data) if entries else frozenset()
        taken = [key for key, group in entries if group not in gone]
        if taken:
            raise UnsupportedTableError(
                f"the log compaction {requested} of another engine took the index entries of {len(taken)} "
                f"keys that have rows (as {taken[0]!r}): updates would double them",
                INDEX_REMEDY,
            )
