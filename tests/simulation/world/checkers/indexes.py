"""The indexes that a world's table may keep beside the record index: column stats and a secondary index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.simulation.world.checkers.secondary import SecondaryIndex
from tests.simulation.world.checkers.services import Entry
from tests.simulation.world.checkers.stats import ColumnStats
from tests.simulation.world.checkers.table import Reader, View


class Indexes:
    """``keeps_secondary``: whether the table has the secondary index by now."""

    def __init__(self, reader: Reader, read: Callable[[str], bytes]) -> None:
        self._reader = reader
        self.stats, self.secondary, self.keeps_secondary = ColumnStats(reader, read), SecondaryIndex(), False

    def faults(
        self, instant: str, commit: Mapping[str, Any], decisions: Iterable[tuple[int, Entry]], view: View
    ) -> Iterator[str]:
        """What is wrong with them after a commit, whose metadata is given. ``view``: the table after it."""
        yield from self.stats.faults(instant, commit, decisions)
        if self.keeps_secondary:
            rows = self._reader.content(view).rows
            found = self.secondary.faults(self._reader.secondary(view), rows)
            yield from (f"commit {instant}: {fault}" for fault in found)
