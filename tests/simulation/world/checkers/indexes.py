"""The indexes that a world's table may keep beside the record index: column stats and a secondary index."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.simulation.world.checkers.secondary import (
    DEFINITIONS,
    FOLDER,
    PROPERTIES,
    SecondaryIndex,
    defined_column,
    is_listed,
    unfinished,
)
from tests.simulation.world.checkers.services import Entry
from tests.simulation.world.checkers.stats import ColumnStats
from tests.simulation.world.checkers.table import Reader, View


class Indexes:
    """``indexed``: the column of the secondary index that the table has by now, None while it has none.
    ``may_go``: an operator's command acts, by which an index may go that is whole.
    """

    def __init__(self, reader: Reader, read: Callable[[str], bytes]) -> None:
        self._reader, self._read = reader, read
        self.stats, self.secondary = ColumnStats(reader, read), SecondaryIndex()
        self.indexed: str | None = None
        self._is_defined = self.may_go = False

    def faults(
        self, instant: str, commit: Mapping[str, Any], decisions: Iterable[tuple[int, Entry]], view: View
    ) -> Iterator[str]:
        """What is wrong with them after a commit, whose metadata is given. ``view``: the table after it."""
        yield from self.stats.faults(instant, commit, decisions, view)
        yield from (f"commit {instant}: {fault}" for fault in self._secondary_faults(self.indexed, view))
        if "tidemark.epoch" in (commit.get("extraMetadata") or {}):
            for index in sorted(unfinished(*self._said())):
                yield f"commit {instant} completes while {index} is half made: it is in none of it"

    def changed(self, view: View, is_ours: bool) -> Iterator[str]:
        """The table's properties and definitions may say something else now. What is wrong with an index that
        the table has from here on.

        ``is_ours``: whoever of us defines an index has put all of it there before: readers use what is
        defined and has files, whether it is listed or not.
        """
        was, was_defined = self.indexed, self._is_defined
        said = self._said()
        column = defined_column(said[1])
        self._is_defined = column is not None
        self.indexed = column if is_listed(said[0]) else None
        if column is None and is_listed(said[0]):
            yield "a secondary index is listed, and is not defined: nobody knows its column"
        if was is not None and self.indexed is None and is_ours and not self.may_go:
            yield "a secondary index that is whole is taken out, and nobody asked for that"
        is_in_use = is_ours and self._is_defined and not was_defined and bool(self._reader.files(FOLDER))
        if (self.indexed is not None and was is None) or is_in_use:
            yield from (f"as it was made {fault}" for fault in self._secondary_faults(column, view))

    def _secondary_faults(self, column: str | None, view: View) -> Iterator[str]:
        if column is not None:
            entries, rows = self._reader.secondary(view), self._reader.content(view).rows
            yield from self.secondary.faults(column, entries, rows)

    def _said(self) -> tuple[bytes, bytes]:
        """The table's properties and definitions."""
        properties, definitions = (
            self._read(path) if self._reader.has(path) else b"" for path in (PROPERTIES, DEFINITIONS)
        )
        return properties, definitions
