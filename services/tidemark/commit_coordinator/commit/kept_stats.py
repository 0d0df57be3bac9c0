"""Which column stats a commit of ours has to write: read under the table's lock before a plan, and again
before the decision.

Example: an epoch is planned while the stats have column a. Another engine's write adds column b to the
definition at once and completes later. The epoch's files have no records of b, and readers leave out each
file that has a record of a and none of b. So the attempt is void, and is planned again with both columns.
"""

from __future__ import annotations

from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.kept_stats import KeptStats
from tidemark.hudi_format.index_definitions import COLUMN_STATS
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.metadata_table.stats_layout import (
    StatsLayout,
    stats_columns_in_use,
    stats_groups,
)
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableConfig


class StatsLayouts:
    """Reads the layout. Lists the partition's folder only when an index was built since the last call."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._groups: tuple[str, int] | None = None

    def current(self, config: TableConfig, timelines: Timelines) -> StatsLayout | None:
        """The layout as of ``timelines``; None where ``config``, which was just read, lists no column stats.

        Raises UnsupportedTableError for stats that cannot be written.
        """
        if COLUMN_STATS not in config.metadata_partitions:
            self._groups = None
            return None
        build = newest_build(timelines.metadata)
        if self._groups is None or self._groups[0] != build:
            validity = InstantValidity(timelines.data, timelines.metadata)
            self._groups = (build, stats_groups(self._storage, validity))
        return StatsLayout(stats_columns_in_use(self._storage), self._groups[1])


def as_entry(layout: StatsLayout | None) -> KeptStats | None:
    """The layout as the plan's entry has it."""
    return None if layout is None else KeptStats(list(layout.columns), layout.groups)


def refuse_other_stats(planned: EpochPlanned, layout: StatsLayout | None) -> None:
    """Raises AttemptLostError when the table keeps other column stats now than when the epoch was planned.

    Without a rewind: no key moved, and the same transactions are written anew.
    """
    if as_entry(layout) != planned.column_stats:
        raise AttemptLostError(
            f"the table's column stats were changed: {_told(planned.column_stats)} when the epoch was "
            f"planned, {_told(as_entry(layout))} now",
            rewind=False,
        )


def _told(stats: KeptStats | None) -> str:
    return "none" if stats is None else f"{', '.join(stats.columns)} in {stats.groups} file groups"
