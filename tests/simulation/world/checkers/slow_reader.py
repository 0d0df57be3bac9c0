"""A reader that lists the data timeline and takes its time before it opens files: what it may lose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tests.simulation.world.checkers.cleans import Cleans
from tests.simulation.world.checkers.table import Content, Timeline, View


class SlowReader(NamedTuple):
    """``timeline``: as it listed it at ``since_ms``; ``expected``: what was committed then; ``view``: what it
    would have read then.
    """

    timeline: Timeline
    expected: Content
    view: View
    since_ms: int

    def is_late(self, cleans: Cleans, compactions: Iterable[str], exists: Callable[[str], bool]) -> bool:
        """Whether it has to list anew. The index was compacted meanwhile; or a file that it needs went with a
        clean: whoever cleans keeps files for as long as its policy says, and no longer.
        """
        newest = max(self.timeline.completed.values(), default="")
        return any(instant > newest for instant in compactions) or bool(self.lost(cleans, exists))

    def lost(self, cleans: Cleans, exists: Callable[[str], bool]) -> set[str]:
        """The files that it needs, and that went with one of these cleans."""
        needed = {file.path for _, files in self.view.merged for file in files}
        return {
            path for clean in cleans.values() for path in clean.files if path in needed and not exists(path)
        }
