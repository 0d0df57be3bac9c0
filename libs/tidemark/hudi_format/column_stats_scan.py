"""Column stats of a table as it is: made from its rows, or compared with them.

Scan first without the lock (`scan`, which may take minutes), then under the lock once more: that reads only
the files that were committed meanwhile, and what it returns is the table as it is now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidemark.hudi_format.errors import FileMissingError, TimelineConflictError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.index_definitions import STATS_META_COLUMNS
from tidemark.hudi_format.metadata_table.log_records import streamed_slice_entries
from tidemark.hudi_format.metadata_table.own_stats import types_of_stats
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import ColumnStats
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.scanned_ranges import (
    RangeScan,
    WrongRange,
    check_stats_columns,
)
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, metadata_slices
from tidemark.hudi_format.metadata_table.stats_creation import StatsFailpoint, create_column_stats
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.table_view import TableView

_FOLDER: Final = join_path(METADATA_TABLE_PATH, COLUMN_STATS.name)
_LISTINGS_MAX: Final = 5


class ColumnStatsScan:
    """Ranges of the user's `columns`, and of Hudi's meta columns, in all files that readers see. `schema`:
    the table's. Raises SchemaError for columns that can have no stats.
    """

    def __init__(
        self, storage: Storage, config: TableConfig, schema: TableSchema, columns: Sequence[str]
    ) -> None:
        check_stats_columns(schema, columns)
        self._storage, self._columns = storage, columns
        self._ranges = RangeScan(storage, schema, [*STATS_META_COLUMNS, *columns], config.ordering_field)
        self._snapshot: MetadataTableSnapshot | None = None
        self._slices: list[FileSlice] = []

    @property
    def files(self) -> int:
        """How many files are scanned."""
        return len(self._ranges.ranges)

    def scan(self, say: Callable[[int, int], None] = lambda done, left: None) -> None:
        """Scans the files of the table as it is now which are not scanned yet. `say` is told how many are,
        and how many are left.

        Raises TimelineConflictError where files go faster than they are read, CorruptFileError, SchemaError,
        UnsupportedTableError.
        """
        for _ in range(_LISTINGS_MAX):
            self._snapshot = MetadataTableSnapshot.load(self._storage)
            view = TableView.of(self._storage, self._snapshot.data_timeline)
            self._slices = view.slices(self._snapshot.files.names())
            missing = self._ranges.missing(self._slices)
            try:
                for number, path in enumerate(missing):
                    say(number, len(missing) - number)
                    self._ranges.scan(path)
            except FileMissingError:
                continue
            return
        raise TimelineConflictError(
            f"{self._storage.base_uri}: files were cleaned away while they were read, {_LISTINGS_MAX} times: "
            "try again"
        )

    def wrong(self) -> list[WrongRange]:
        """The records of the table's column stats by which readers leave out rows, as of the last `scan`.
        Raises CorruptFileError.
        """
        return self._ranges.wrong(self._slices, self._stored())

    def _stored(self) -> dict[str, ColumnStats]:
        validity = self._current.validity
        names = {COLUMN_STATS.name: self._storage.names(_FOLDER)}
        parts = (
            entries
            for file_slice in metadata_slices(names, validity)
            for entries in streamed_slice_entries(self._storage, _FOLDER, file_slice, validity.is_valid)
        )
        return COLUMN_STATS.merge(parts)

    @property
    def _current(self) -> MetadataTableSnapshot:
        if self._snapshot is None:
            raise TypeError("scan first")
        return self._snapshot

    def create(self, clock: Clock, hit: Callable[[StatsFailpoint], None] = lambda place: None) -> int:
        """Makes the column stats of the table as of the last `scan`; returns the number of their records.
        Hold the table's lock since before that scan. Raises as `create_column_stats`.
        """
        times = InstantGenerator(clock)
        times.observe(self._current.data_timeline.times() + self._current.metadata_timeline.times())
        records = self._ranges.records(self._slices)
        types = types_of_stats(self._ranges.schema, self._columns)
        create_column_stats(self._storage, self._columns, records, times.next, hit, types=types)
        return len(records)
