"""Checks once per partition path whether it can be a folder of the table as it is now.

A path whose text is valid (`hudi_format.partition_paths`) may still name an existing file, or lead through
a link. The writer could write nothing there, and its whole epoch would fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_KNOWN_MAX: Final = 100_000

FolderProblem = Callable[[str], str | None]
"""Path -> why nothing can be written into that folder; None: it exists, or can be created."""


class PartitionFolders:
    """Checks paths, and remembers the valid ones. Used by one thread."""

    def __init__(self, problem_of: FolderProblem) -> None:
        self._problem_of = problem_of
        self._fine: set[str] = set()

    def error(self, path: str) -> str | None:
        """Why the partition path cannot be a folder; None when it can."""
        if path in self._fine:
            return None
        problem = self._problem_of(path) if path else None
        if problem is not None:
            return f"the partition path {path[:80]!r} cannot be a folder: {problem}"
        if len(self._fine) >= _KNOWN_MAX:
            self._fine.clear()
        self._fine.add(path)
        return None
