"""The indexes that a world's table may keep beside the record index: column stats and a secondary index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.simulation.world.checkers.secondary import (
    DEFINITIONS,
    PROPERTIES,
    SecondaryIndex,
    unfinished,
)
from tests.simulation.world.checkers.services import Entry
from tests.simulation.world.checkers.stats import ColumnStats
from tests.simulation.world.checkers.table import Reader, View


class Indexes:
    """``keeps_secondary``: whether the table has the secondary index by now."""

    def __init__(self, reader: Reader, read: Callable[[str], bytes]) -> None:
        self._reader, self._read = reader, read
        self.stats, self.secondary, self.keeps_secondary = ColumnStats(reader, read), SecondaryIndex(), False

    def faults(
        self, instant: str, commit: Mapping[str, Any], decisions: Iterable[tuple[int, Entry]], view: View
    ) -> Iterator[str]:
        """What is wrong with them after a commit, whose metadata is given. ``view``: the table after it."""
        yield from self.stats.faults(instant, commit, decisions, view)
        yield from (f"commit {instant}: {fault}" for fault in self._secondary_faults(view))
        if "tidemark.epoch" in (commit.get("extraMetadata") or {}):
            for index in sorted(self._unfinished()):
                yield f"commit {instant} completes while {index} is half made: it is in none of it"

    def begin_secondary(self, view: View) -> Iterator[str]:
        """The table has the secondary index from here on; what is wrong with it as it was made."""
        self.keeps_secondary = True
        yield from (f"as it was made {fault}" for fault in self._secondary_faults(view))

    def end_secondary(self) -> None:
        """The table has it no more."""
        self.keeps_secondary = False

    def _secondary_faults(self, view: View) -> Iterator[str]:
        if self.keeps_secondary:
            yield from self.secondary.faults(self._reader.secondary(view), self._reader.content(view).rows)

    def _unfinished(self) -> set[str]:
        """The indexes that are half made. No epoch may complete meanwhile: it would be in none of them."""
        definitions = self._read(DEFINITIONS) if self._reader.has(DEFINITIONS) else b""
        return unfinished(self._read(PROPERTIES), definitions)
