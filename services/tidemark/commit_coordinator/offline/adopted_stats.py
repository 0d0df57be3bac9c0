"""Column stats of a table that is adopted: compared with the rows, and made anew from them.

All of them are made anew, not the wrong ones alone: the rows are read for the comparison anyway, and stats
that are ours begin with a folder of ours. What was wrong is told, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.commit_coordinator.opening.table_open import OpenedTable
from tidemark.hudi_format.column_ranges import has_ranges
from tidemark.hudi_format.column_stats_scan import ColumnStatsScan
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS, read_index_definitions, stats_columns
from tidemark.hudi_format.metadata_table.index_creation import unlist_indexes
from tidemark.hudi_format.metadata_table.own_stats import foreign_stats
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.scanned_ranges import WrongRange
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.stream_runtime.clock import Clock

_TOLD_MAX: Final = 20


@dataclass
class AdoptedStats:
    """What was done to the stats of a table. `columns`: those that its column stats have now."""

    columns: Sequence[str] = ()
    files: int = 0
    wrong: Sequence[WrongRange] = ()
    lines: list[str] = field(default_factory=list)


class StatsToAdopt:
    """Makes the column stats of a table ours, where it has some that are not. Scan first, then call `adopt`
    under the table's lock.
    """

    def __init__(self, storage: Storage, opened: OpenedTable) -> None:
        self._storage = storage
        self._foreign = foreign_stats(storage, read_table_config(storage))
        self._done = AdoptedStats()
        self._scan: ColumnStatsScan | None = None
        if self._foreign is None or COLUMN_STATS.name not in self._foreign.names:
            return
        indexed = stats_columns(read_index_definitions(storage))
        types = {field.name: field.type for field in opened.schema.arrow}
        named = [name for name in indexed if name not in STATS_META_COLUMNS]
        self._done.columns = [name for name in named if name in types and has_ranges(types[name])]
        self._done.lines += [
            f"{name} was taken out of the column stats: {_why_not(types.get(name))}"
            for name in named
            if name not in self._done.columns
        ]
        if self._done.columns:
            self._scan = ColumnStatsScan(storage, opened.config, opened.schema, self._done.columns)
            self._scan.scan()

    def adopt(self, clock: Clock) -> AdoptedStats:
        """Makes them. Hold the table's lock. Raises as `ColumnStatsScan.create`."""
        done = self._done
        if self._foreign is None:
            return done
        if "partition_stats" in self._foreign.names:
            done.lines.append(
                "partition_stats were switched off: with two writers Hudi loses rows by them alone"
            )
        if self._scan is None:
            if COLUMN_STATS.name in self._foreign.names:
                done.lines.append("column_stats were switched off: no column is left that can have any")
            unlist_indexes(self._storage, self._foreign.names)
            return done
        self._scan.scan()
        done.files, done.wrong = self._scan.files, self._scan.wrong()
        self._scan.create(clock)
        done.lines += [f"{wrong.path}, {wrong.column}: {wrong.reason}" for wrong in done.wrong[:_TOLD_MAX]]
        if len(done.wrong) > _TOLD_MAX:
            done.lines.append(f"and {len(done.wrong) - _TOLD_MAX} more; --json names all")
        done.lines.append(
            f"column stats of {', '.join(done.columns)} were compared with the rows of {done.files} files "
            f"and made anew; {len(done.wrong)} ranges were wrong"
        )
        return done


def _why_not(arrow: object) -> str:
    if arrow is None:
        return "the table has no such column"
    return f"columns of {arrow} can have none, and a filter on one of bytes fails in Hudi"
