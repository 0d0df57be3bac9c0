"""Checks once per partition path whether it can be a folder of the table as it is now, and, where the record
index is partitioned, whether the index can have it.

A path whose text is valid (`hudi_format.partition_paths`) may still name an existing file, or lead through
a link. The writer could write nothing there, and its whole epoch would fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table.partitions.record_index import index_partition_problem

_KNOWN_MAX: Final = 100_000

PathProblem = Callable[[str], str | None]
"""Path -> why nothing can be written into that folder, or the index cannot have it; None: nothing is wrong.
"""


def _no_problem(_: str) -> str | None:
    return None


class PartitionFolders:
    """Checks paths, and remembers the valid ones. Used by one thread."""

    def __init__(self, of_folder: PathProblem, kind: IndexKind) -> None:
        self._of_folder = of_folder
        self._of_index = index_partition_problem if kind is IndexKind.PARTITIONED else _no_problem
        self._fine: set[str] = set()

    def error(self, path: str) -> str | None:
        """Why the partition path cannot be taken; None when it can."""
        if path in self._fine:
            return None
        problem = self._of_folder(path) if path else None
        if problem is not None:
            return f"the partition path {path[:80]!r} cannot be a folder: {problem}"
        problem = self._of_index(path)
        if problem is not None:
            return f"the partition path {path[:80]!r} cannot be in a partitioned record index: {problem}"
        if len(self._fine) >= _KNOWN_MAX:
            self._fine.clear()
        self._fine.add(path)
        return None
