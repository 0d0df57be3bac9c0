"""What a file slice is: the base file and the log files that make up a file group's content, as of a moment.

Slices of the data table come from `table_view.TableView`, those of the metadata table from
`metadata_table.snapshot`: nothing else lists them, since who lists files without knowing which groups were
replaced hands out groups that no reader looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidemark.hudi_format.storage.base import join_path

FileGroupId: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files of one file group that a reader merges. Names are without folder; logs in the order of
    merging.

    `base_instant` is the requested instant that the slice began with: that of its base file, of a
    compaction, or of the first log file where the group has no base file.
    """

    partition_path: str
    file_id: str
    base_file: str | None
    base_instant: str
    log_files: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        """All files, relative to the table's base."""
        names = ([self.base_file] if self.base_file else []) + list(self.log_files)
        return [join_path(self.partition_path, name) for name in names]
