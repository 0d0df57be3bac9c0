"""Checks that all log files that a reader of the table would open are whole and can be read by this library.

The coordinator checks before anything is written to a table, and again after commits of other engines. A file
that is found unreadable only when a key's slice is read would stop an assigner again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.log_blocks import check_log_blocks
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.storage.base import Storage, join_path, name_of, parent_of


class ReadableLogs:
    """Checks the block headers of each log file once. `ordering_field`: None for a table that merges by
    commit time.
    """

    def __init__(self, storage: Storage, ordering_field: str | None) -> None:
        self._storage = storage
        self._ordering_field = ordering_field
        self._seen: frozenset[str] = frozenset()

    def check(self, slices: Iterable[FileSlice], sizes: Callable[[str], Mapping[str, int]]) -> None:
        """Checks the log files of the slices that were not checked before.

        `sizes`: partition path -> name -> committed size in bytes (`ListedFiles.files`). A file that was
        cleaned away meanwhile is skipped: a later check sees the files that came in its place. Raises
        UnsupportedTableError, which names the first file that cannot be read, and CorruptFileError.
        """
        names = frozenset(
            join_path(file_slice.partition_path, name)
            for file_slice in slices
            for name in file_slice.log_files
        )
        for path in sorted(names - self._seen):
            committed = sizes(parent_of(path)).get(name_of(path), 0)
            try:
                check_log_blocks(self._storage, path, self._ordering_field, committed)
            except FileMissingError:
                continue
        self._seen = names
