"""Whether a partition path can be a folder of the table as it is now: asked once a path.

A path that is fine by its text (`hudi_format.partition_paths`) may still name a file that lies there, or lead
through a link; the writer could write nothing there, and its whole epoch would fail with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_KNOWN_MAX: Final = 100_000

FolderProblem = Callable[[str], str | None]
"""Why nothing may be written into this folder of the table; None: it may be made, or is one."""


class PartitionFolders:
    """Remembers the paths that are fine. Used by one thread."""

    def __init__(self, problem_of: FolderProblem) -> None:
        self._problem_of = problem_of
        self._fine: set[str] = set()

    def error(self, path: str) -> str | None:
        """Why the partition path cannot be taken; None when it can."""
        if path in self._fine:
            return None
        problem = self._problem_of(path) if path else None
        if problem is not None:
            return f"the partition path {path[:80]!r} cannot be a folder: {problem}"
        if len(self._fine) >= _KNOWN_MAX:
            self._fine.clear()
        self._fine.add(path)
        return None
