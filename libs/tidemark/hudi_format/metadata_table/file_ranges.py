"""The range of each indexed column in a file that is written in parts."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemark.hudi_format.column_ranges import ColumnRange, cut_ranges, united, whole_ranges


class FileRanges:
    """Ranges of these columns; of none where the table keeps no stats."""

    def __init__(self, columns: Sequence[str]) -> None:
        self._columns = columns
        self._whole: list[ColumnRange] = []

    def add(self, rows: pa.Table) -> None:
        """Takes in rows of the file, with their meta columns. Raises `SchemaError`."""
        more = whole_ranges(rows, self._columns)
        if more and self._whole:
            more = [united(former, found) for former, found in zip(self._whole, more, strict=True)]
        self._whole = more or self._whole

    @property
    def whole(self) -> list[ColumnRange]:
        """As `ranges`, with whole bounds."""
        return self._whole

    @property
    def ranges(self) -> list[ColumnRange]:
        """Of all rows so far; empty where nothing was added, or a column has no range (`column_ranges`)."""
        return cut_ranges(self._whole)
