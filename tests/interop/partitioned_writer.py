"""Commits of ours to a table whose record index is divided by data partition. A row is identified by
(partition path, key): the same key in another partition is another row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tests.interop.native_commit import IndexLogs, NativeWriter, PendingCommit, index_entries
from tests.interop.native_plan import CommitPlan
from tidemark.hudi_format.keys import KeyGenerator
from tidemark.hudi_format.metadata_table.partitioned_index import (
    PartitionedEntries,
    PartitionedLayout,
    commit_logs,
    find,
    initial_logs,
    layout_of,
)
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import RecordLocation
from tidemark.hudi_format.ordering import NO_ORDERING, OrderingField
from tidemark.hudi_format.schema import cast_rows

Identity = tuple[str, str]
Changes = dict[Identity, RecordLocation | None]


class PartitionedWriter(NativeWriter):
    """`NativeWriter` for such a table; partitions that a commit begins get `shards` groups."""

    shards = 2

    def commit_rows(self, upserts: pa.Table, deletes: Sequence[Identity] = ()) -> str:
        """Upserts rows, deletes (partition path, key) unconditionally; returns the instant."""
        return self.finish(self.prepare_rows(upserts, deletes))

    def prepare_rows(self, upserts: pa.Table, deletes: Sequence[Identity] = ()) -> PendingCommit:
        """As `NativeWriter.prepare`."""
        snapshot = MetadataTableSnapshot.load(self._storage)
        plan, changes = self._plan_rows(snapshot, upserts, deletes)
        before = layout_of(snapshot)
        layout = before.begun({path for path, _ in changes}, self.shards)
        return self._prepare(snapshot, plan, lambda instant: _logs(instant, before, layout, changes))

    def _plan_rows(
        self, snapshot: MetadataTableSnapshot, upserts: pa.Table, deletes: Sequence[Identity]
    ) -> tuple[CommitPlan, Changes]:
        upserts = cast_rows(upserts, self.schema.arrow)
        generator = KeyGenerator.from_table_config(self.table.config, self.schema)
        keys, paths = generator.record_keys(upserts).keys, generator.partition_paths(upserts).keys
        ordering = OrderingField.of(self.schema, self.table.config.ordering_fields[0])
        slices = {RecordLocation(each.partition_path, each.file_id): each for each in self.table.slices()}
        plan, changes = CommitPlan(upserts, keys, ordering, slices), Changes()
        rows = list(zip(paths.to_pylist(), keys.to_pylist(), strict=True))
        known = _located(snapshot, [*rows, *deletes])
        for number, row in enumerate(rows):
            target = known.get(row) or self._home(row[0], plan)
            plan.group(target).rows.append(number)
            if row not in known:
                changes[row] = target
        for row in deletes:
            plan.group(known[row]).deletes.append((row[1], NO_ORDERING))
            changes[row] = None
        return plan, changes

    def _home(self, path: str, plan: CommitPlan) -> RecordLocation:
        places = [place for place in (*sorted(plan.slices), *plan.groups) if place.partition_path == path]
        return places[0] if places else RecordLocation(path, f"{self._ids.uuid()}-0")


def _located(snapshot: MetadataTableSnapshot, rows: Sequence[Identity]) -> dict[Identity, RecordLocation]:
    paths = sorted({path for path, _ in rows})
    numbers = np.array([paths.index(path) for path, _ in rows], np.int32)
    answer = find(snapshot, pa.array([key for _, key in rows], pa.string()), numbers, paths)
    return {
        row: answer.locations[at]
        for row, at, is_there in zip(rows, answer.location_ids.tolist(), answer.found.tolist(), strict=True)
        if is_there
    }


def _logs(instant: str, before: PartitionedLayout, layout: PartitionedLayout, changes: Changes) -> IndexLogs:
    paths = sorted({path for path, _ in changes})
    numbers = np.array([paths.index(path) for path, _ in changes], np.int32)
    keys = pa.array([key for _, key in changes], pa.string())
    entries = PartitionedEntries(index_entries(keys, list(changes.values()), instant), numbers, paths)
    return [
        *initial_logs(layout.groups_beyond(before), instant),
        *commit_logs(entries, layout, instant),
    ]
