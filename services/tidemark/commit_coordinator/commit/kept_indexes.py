"""Which indexes a commit of ours has to write beside a global record index, and how they are laid out: read
under the table's lock before a plan, and again before the decision.

Example: an epoch is planned while the stats have column a. Another engine's write adds column b to the
definition at once and completes later. The epoch's files have no records of b, and readers leave out each
file that has a record of a and none of b. So the attempt is void, and is planned again with both columns.

Likewise a secondary index that Spark builds from the table's slices while the epoch is written would lack the
epoch's rows for ever, if the epoch were committed without entries for it. So would one that is dropped and
made anew meanwhile, with as many file groups: the epoch's log files went with the folder of the former one.
Name, column and groups are the same; what tells is the file that is made with the folder (`index_life`).

A partitioned record index that was built anew may divide a partition into another number of file groups, and
the epoch's entries are in those of the former number. A build that is there no more was archived: nothing was
built, and the attempt stands. (Whoever builds one and archives it, too, wrote to the table meanwhile, which
voids the attempt.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

import msgspec

from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.errors import AttemptLostError
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.kept_indexes import KeptPartitioned, KeptSecondary, KeptStats
from tidemark.hudi_format.index_definitions import COLUMN_STATS
from tidemark.hudi_format.metadata_table.index_life import partition_life
from tidemark.hudi_format.metadata_table.restored_index import newest_build
from tidemark.hudi_format.metadata_table.secondary_layout import SecondaryLayout, secondary_layouts
from tidemark.hudi_format.metadata_table.stats_layout import (
    StatsLayout,
    stats_columns_in_use,
    stats_groups,
)
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.schema import TableSchema
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


@dataclass(frozen=True)
class KeptIndexes:
    """The indexes beside the record index that a commit has to write."""

    stats: StatsLayout | None
    secondary: tuple[SecondaryLayout, ...]
    partitioned: KeptPartitioned | None = None
    builds: Mapping[str, str] = field(default_factory=dict)
    """Of each secondary index, by name: what tells one building of it from another."""

    @property
    def column_stats(self) -> KeptStats | None:
        """The column stats as a plan's entry has them."""
        return None if self.stats is None else KeptStats(list(self.stats.columns), self.stats.groups)

    @property
    def entries(self) -> list[KeptSecondary]:
        """The secondary indexes as a plan's entry has them."""
        return [
            KeptSecondary(index.name, index.column, index.groups, self.builds.get(index.name, ""))
            for index in self.secondary
        ]

    def check_schema(self, schema: TableSchema) -> None:
        """Raises UnsupportedTableError for columns of which rows of this schema can have no records."""
        for index in (self.stats, *self.secondary):
            if index is not None:
                index.check_schema(schema)


NO_INDEXES: Final = KeptIndexes(None, ())


class IndexLayouts:
    """Reads the layouts of all indexes."""

    def __init__(self, storage: Storage, stats: StatsLayouts, partition_shards: int = 0) -> None:
        """``partition_shards``: as in `TableFacts`."""
        self._storage, self._stats, self._partition_shards = storage, stats, partition_shards

    def current(self, config: TableConfig, timelines: Timelines) -> KeptIndexes:
        """The layouts as of ``timelines`` and of ``config``, which was just read.

        Raises UnsupportedTableError for indexes that cannot be written.
        """
        validity = InstantValidity(timelines.data, timelines.metadata)
        secondary = secondary_layouts(self._storage, config, validity)
        begun = self._partition_shards
        partitioned = KeptPartitioned(begun, newest_build(timelines.metadata)) if begun else None
        builds = {index.name: partition_life(self._storage, index.name) for index in secondary}
        return KeptIndexes(self._stats.current(config, timelines), secondary, partitioned, builds)


def refuse_other_indexes(planned: EpochPlanned, kept: KeptIndexes, *, is_written: bool = False) -> None:
    """Raises AttemptLostError when the table keeps other indexes now than when the epoch was planned.

    Without a rewind: no key moved, and the same transactions are written anew. ``is_written``: the epoch's
    files are in the metadata table for good. Then an index that is gone is no reason, as nobody reads it, nor
    is another time of the file that tells builds apart: a copy of the table has one.
    """
    stats, before = kept.column_stats, planned.secondary
    # A plan of an earlier version names no builds.
    unknown = {index.name for index in before if not index.build}
    secondary = [_without_build(now) if now.name in unknown else now for now in kept.entries]
    if is_written:
        stats = planned.column_stats if stats is None else stats
        before = [_without_build(index) for index in planned.secondary]
        secondary = [index for index in before if index.name not in {now.name for now in secondary}]
        secondary += map(_without_build, kept.entries)
        secondary.sort(key=attrgetter("name"))
    if stats != planned.column_stats:
        raise AttemptLostError(
            f"the table's column stats were changed: {_told(planned.column_stats)} when the epoch was "
            f"planned, {_told(kept.column_stats)} now",
            rewind=False,
        )
    if secondary != before:
        raise AttemptLostError(
            f"the table's secondary indexes were changed: {_listed(planned.secondary)} when the epoch was "
            f"planned, {_listed(kept.entries)} now{_built_anew(planned.secondary, kept.entries)}",
            rewind=False,
        )
    if _is_built_since(planned.partitioned, kept.partitioned):
        raise AttemptLostError(
            "an index was built since the epoch was planned: the record index may have other file groups now",
            rewind=False,
        )


def _is_built_since(before: KeptPartitioned | None, now: KeptPartitioned | None) -> bool:
    if before is None or now is None:
        return before is not now
    return now.build > before.build


def _without_build(index: KeptSecondary) -> KeptSecondary:
    return msgspec.structs.replace(index, build="")


def _built_anew(before: list[KeptSecondary], now: list[KeptSecondary]) -> str:
    """How they differ where the rest of the text does not show it."""
    return ", made anew" if list(map(_without_build, before)) == list(map(_without_build, now)) else ""


def _told(stats: KeptStats | None) -> str:
    return "none" if stats is None else f"{', '.join(stats.columns)} in {stats.groups} file groups"


def _listed(indexes: list[KeptSecondary]) -> str:
    told = [f"{index.name} of {index.column} in {index.groups} file groups" for index in indexes]
    return ", ".join(told) or "none"
