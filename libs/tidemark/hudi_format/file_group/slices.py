"""A file slice: the base file and the log files that make up a file group's content at one moment.

Slices of the data table come from `table_view.TableView`, those of the metadata table from
`metadata_table.snapshot`. Nothing else lists them: without knowing which groups were replaced it would return
groups that no reader looks at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidemark.hudi_format.storage.base import join_path

FileGroupId: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class FileSlice:
    """The files of one file group that a reader merges. Names are without folder; logs are in merge order.

    `base_instant` is the requested instant with which the slice began: that of its base file, of a
    compaction, or of the first log file where the group has no base file.
    """

    partition_path: str
    file_id: str
    base_file: str | None
    base_instant: str
    log_files: tuple[str, ...] = ()

    def paths(self) -> list[str]:
        """The paths of all files, relative to the table's base."""
        names = ([self.base_file] if self.base_file else []) + list(self.log_files)
        return [join_path(self.partition_path, name) for name in names]
