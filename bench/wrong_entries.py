"""Entries of rows that nobody has, put into a secondary index beside its writers: what a repair finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa

from tidemark.commit_coordinator.offline.index_command import IndexCommand
from tidemark.hudi_format.metadata_table.partitions.secondary_index import (
    SecondaryChanges,
    SecondaryIndexPartition,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index_codec import composite_keys
from tidemark.hudi_format.metadata_table.secondary_creation import secondary_partition
from tidemark.hudi_format.metadata_table.secondary_repair import RepairTimes, write_entries
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.publication.port import Command
from tidemark.hudi_format.secondary_index_scan import keys_by_group
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.table_schema import table_schema
from tidemark.hudi_format.timeline import Action, Timeline
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

_NONE: Final = pa.array([], pa.string())


def put_wrong_entries(storage: Storage, name: str, count: int) -> None:
    """In one commit without rows, as a repair writes its entries, on a MERGE_ON_READ table that may be served
    and has commits. `name`: the index's, as users call it.
    """
    command, partition = IndexCommand(storage, SystemClock(), SystemIds()), secondary_partition(name)
    with command.command() as by:
        command.at_rest(by, partition.name, _Put(command, by, partition, count))


class _Put:
    """See `index_command.Last`."""

    def __init__(
        self, command: IndexCommand, by: Command, partition: SecondaryIndexPartition, count: int
    ) -> None:
        self._command, self._by, self._partition, self._count = command, by, partition, count

    def look(self, alive: Callable[[int, int], None]) -> MetadataTableSnapshot:
        self._seen = MetadataTableSnapshot.load(self._by.storage)
        return self._seen

    def is_next(self, metadata: Timeline) -> bool:
        return True

    def act(self, timelines: tuple[Timeline, Timeline]) -> None:
        storage, groups = self._by.storage, len(self._seen.slices[self._partition.name])
        schema = table_schema(storage, read_table_config(storage), timelines[0])
        assert schema is not None
        by_group = keys_by_group(_keys(self._count), groups)
        changes = {group: SecondaryChanges(keys, _NONE) for group, keys in by_group}
        times = RepairTimes(*(self._command.later(timelines) for _ in range(3)))
        write_entries(self._by, self._partition, changes, times, schema, Action.DELTA_COMMIT)


def _keys(count: int) -> pa.StringArray:
    numbers = [f"{number:09}" for number in range(count)]
    values, keys = ([f"{what} {number}" for number in numbers] for what in ("wrong", "nobody"))
    return composite_keys(pa.array(values), pa.array(keys)).sort()
