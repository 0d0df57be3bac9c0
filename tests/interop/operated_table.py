"""A pipeline's table, its model, and Spark beside it: what Spark does to the one is done to the other."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from tests.input_model import Delete, Event, Row, StayingStream, Upsert
from tests.interop.judge import HudiJudge
from tests.interop.operated_index import PartitionedIndex, TableIndex
from tests.interop.piped_table import ARROW, PipedTable
from tests.interop.ruled_table import look
from tests.interop.spark_operations import (
    FAILS_BEFORE_COMMIT,
    SMALL_FILES,
    SparkOperations,
)
from tests.interop.verdict import assert_same_rows, assert_table_holds, assert_verify_agrees

BATCH = 60
REGIONS = 5
NOTE = pa.field("note", pa.string())


class OperatedTable:
    """``touched``: keys that the operation was about, which our next epoch changes again."""

    def __init__(
        self, judge: HudiJudge, table: PipedTable, spark: SparkOperations, index: TableIndex | None = None
    ) -> None:
        self.judge, self.table, self.spark = judge, table, spark
        self.index = index or TableIndex()
        self.model = table.model
        self.touched: list[str] = []
        self._schema = ARROW
        self._serial = 0
        self._in_flight: list[Event] = []
        self._left_to_clean = False

    # ------------------------------------------------------------ ours

    def goes_on(self, extra: Sequence[Event] = ()) -> None:
        """An epoch of ours with updates, deletes and inserts where Spark was; then everybody agrees."""
        self.commit([*extra, *self.events()])

    def commit(self, events: Sequence[Event]) -> None:
        """One epoch or several; then everybody agrees."""
        self.send(events)
        self.table.pipeline.flush()
        self.agrees()

    def send(self, events: Sequence[Event]) -> None:
        """To the input, and to the model."""
        self.table.send(events)
        self.model.apply(events)

    def meanwhile(self) -> None:
        """An epoch of ours, where none is in flight anyway."""
        if not self._in_flight:
            self.goes_on()

    @contextmanager
    def epoch_in_flight(self) -> Iterator[None]:
        """Tagged and planned, its instant on the timeline; written after this, on top of what Spark did."""
        pipeline, events = self.table.pipeline, self.events()
        pipeline.stop("writer")
        self.table.send(events)
        pipeline.wait("a planned epoch", lambda: bool(pipeline.status()["in_flight"]["instant"]))
        self._in_flight = events
        yield
        self.write_what_is_in_flight()
        pipeline.flush()

    def write_what_is_in_flight(self) -> bool:
        """The epoch in flight, where there is one, gets its writer; else during what is done beside it."""
        events, self._in_flight = self._in_flight, []
        if events:
            self.model.apply(events)
            self.table.pipeline.start("writer")
        return bool(events)

    def agrees(self) -> None:
        """The files as `tidemark verify` reads them, and the rows as Spark does."""
        assert_verify_agrees(self.table.path, len(self.model.rows))
        assert_same_rows(self.judge.snapshot(self.table.path), self.expected(), "Spark snapshot")

    def agrees_with_everybody(self) -> None:
        """Spark by both ways of listing, hudi-rs, the record index as Spark reads it."""
        is_partitioned = isinstance(self.index, PartitionedIndex)
        assert_table_holds(self.judge, self.table.path, self.expected(), is_partitioned=is_partitioned)

    def expected(self) -> list[Row]:
        """The model's rows with the columns that the table has."""
        return [{name: row.get(name) for name in self._schema.names} for row in self.model.live]

    def after(self) -> list[Event]:
        """An update, both kinds of delete, and inserts beside the keys that Spark touched."""
        keys, above = [*self.touched, *self.some(3)], self.above()
        events: list[Event] = [
            Upsert({**self.table.stream.row(keys[0], above), "region": self._region_of(keys[0])}),
            Delete(keys[1], above, typed=True),
            self.gone(keys[2]),
        ]
        regions = {self._region_of(key) for key in self.touched} or {"region-1"}
        return [*events, *(Upsert(row) for region in sorted(regions) for row in self.fresh(region, 2))]

    def gone(self, key: str) -> Delete:
        """By a null value, where that says which row is meant."""
        is_named = isinstance(self.table.stream, StayingStream)
        return Delete(key, self.above(), typed=True) if is_named else Delete(key)

    def events(self) -> list[Event]:
        """The next of the stream."""
        return list(self.table.stream.events(BATCH))

    # ------------------------------------------------------------ rows

    def above(self) -> int:
        """An ordering value above all that there were."""
        stored = [*(int(row["ts"]) for row in self.model.live), *self.model.tombstones.values()]
        return 1 + max(stored)

    def some(self, count: int, region: str = "") -> list[str]:
        """Live keys, of one region or of any; other ones each time."""
        self._serial += 1
        keys = sorted(key for key, row in self.model.rows.items() if region in ("", row["region"]))
        start = 7 * self._serial % max(len(keys), 1)
        return [*keys[start:], *keys[:start]][:count]

    def fresh(self, region: str, count: int = 3) -> list[Row]:
        """Rows of keys that nobody had before."""
        self._serial += 1
        names = [f"fresh-{self._serial}-{n}" for n in range(count)]
        if isinstance(self.table.stream, StayingStream):
            for name in names:
                self.table.stream.put(name, region)
        return [{**self.table.stream.row(name, self.above()), "region": region} for name in names]

    def _region_of(self, key: str) -> str:
        if isinstance(self.table.stream, StayingStream):
            return self.table.stream.region_of(key)
        return str(self.model.rows[key]["region"]) if key in self.model.rows else "region-1"

    def _as_table(self, rows: Sequence[Row]) -> pa.Table:
        return pa.Table.from_pylist(list(rows), schema=self._schema)

    # ------------------------------------------------------------ Spark's

    def upsert(self, rows: list[Row], **more: str) -> None:
        self.spark.write(self._as_table(rows), "upsert", **more)
        self.model.apply([Upsert(row) for row in rows])

    def changed(self, keys: Sequence[str], **more: Any) -> list[Row]:
        """The keys' rows with greater ordering values."""
        above = self.above()
        return [{**self.model.rows[key], "ts": above, "name": "of Spark", **more} for key in keys]

    def forget(self, keys: Sequence[str]) -> list[Row]:
        """The model without the keys: a delete without an ordering value leaves no trace."""
        return [self.model.rows.pop(key) for key in keys]

    @contextmanager
    def taken_back(self) -> Iterator[None]:
        """What happens in here is undone at its end. It keeps ordering values: a delete of ours that saw
        greater ones would leave a tombstone with them.
        """
        rows, tombstones = dict(self.model.rows), dict(self.model.tombstones)
        yield
        self.model.rows, self.model.tombstones = rows, tombstones

    def _updated_in_place(self, keys: Sequence[str] = (), **more: str) -> None:
        self.touched = self.some(6)
        self.upsert([{**self.model.rows[key], "name": "of Spark"} for key in keys or self.touched], **more)

    def newest(self) -> str:
        """Requested time of the newest completed write."""
        return look(self.table.path).timeline.writes()[-1].requested

    # ------------------------------------------------------------ operations

    def update(self) -> None:
        self.touched = self.some(6)
        self.upsert(self.changed(self.touched))

    def delete(self) -> None:
        self.touched = self.some(6)
        self.spark.write(self._as_table(self.forget(self.touched)), "delete")

    def move(self) -> None:
        self.touched = self.some(6)
        rows = self.changed(self.touched)
        for row in rows:
            row["region"] = f"region-{(int(row['region'][-1]) + 1) % REGIONS}"
        self.upsert(rows)

    def insert_into_our_groups(self) -> None:
        """Of small base files; Hudi passes slices with log files over, so those are compacted before."""
        self.compacted()
        rows = self.fresh("region-1")
        self.touched = [row["id"] for row in rows]
        groups = look(self.table.path).groups
        self.upsert(rows, **SMALL_FILES)
        assert look(self.table.path).groups.keys() == groups.keys()

    def insert(self) -> None:
        self._inserted("insert")

    def bulk_insert(self) -> None:
        self._inserted("bulk_insert")

    def _inserted(self, operation: str) -> None:
        """Of new keys: Hudi does not look whether there are rows of them."""
        rows = [*self.fresh("region-1"), *self.fresh("region-2"), *self.fresh(f"region-of-{operation}")]
        self.touched = [row["id"] for row in rows]
        self.spark.write(self._as_table(rows), operation)
        self.model.apply([Upsert(row) for row in rows])

    def merge_into(self) -> None:
        self.touched = self.some(6)
        rows = [*self.changed(self.touched), *self.fresh("region-2")]
        self.spark.merge(self._as_table(rows))
        self.model.apply([Upsert(row) for row in rows])

    def add_column(self) -> None:
        self._schema = self._schema.append(NOTE) if NOTE.name not in self._schema.names else self._schema
        self.touched = self.some(6)
        self.upsert(self.changed(self.touched, note="n"))

    def compaction(self) -> None:
        """Planned before an epoch of ours, or during one, and carried out after it."""
        self.touched = self.some(6)
        self.spark.compaction("schedule")
        assert look(self.table.path).scheduled
        self.meanwhile()
        self.spark.compaction("execute")
        assert not look(self.table.path).scheduled

    def compacted(self) -> bool:
        """Compacts all log files there are; whether there were any."""
        is_any = any(logs for _, logs in look(self.table.path).read_slices().values())
        if is_any:
            self.spark.compaction("schedule")
            self.spark.compaction("execute")
        return is_any

    def clustering(self) -> None:
        self.touched = self.some(6, "region-4")
        self.spark.clustering("scheduleAndExecute", "region-4")
        assert look(self.table.path).timeline.completed("clustering")

    def insert_overwrite(self) -> None:
        """Of compacted file groups: of others Hudi leaves index entries behind (`test_left_entries`)."""
        self._overwritten("insert_overwrite", self.some(10_000, "region-3"))

    def insert_overwrite_table(self) -> None:
        """As `insert_overwrite`."""
        self._overwritten("insert_overwrite_table", self.some(10_000))

    def _overwritten(self, operation: str, gone: Sequence[str]) -> None:
        self.compacted()
        rows = self.fresh("region-3")
        self.touched = [*(row["id"] for row in rows), *gone[:3]]
        self.forget(gone)
        self.spark.write(self._as_table(rows), operation)
        self.model.apply([Upsert(row) for row in rows])

    def delete_partition(self) -> None:
        """As `insert_overwrite`."""
        self.compacted()
        gone = self.forget(self.some(10_000, "region-2"))
        self.touched = [row["id"] for row in gone][:6]
        self.spark.delete_partition("region-2", self._as_table(gone))

    def clean_by_commits(self) -> None:
        self.clean("KEEP_LATEST_COMMITS")

    def clean_by_versions(self) -> None:
        self.clean("KEEP_LATEST_FILE_VERSIONS")

    def clean(self, policy: str, ahead_hours: int = 0) -> None:
        """Of slices that were left before an epoch of ours got in flight, else of some that are left now."""
        if not self._left_to_clean:
            self.leave_something_to_clean(ahead_hours)
        self._left_to_clean = False
        files = look(self.table.path).files
        self.spark.clean(policy, 1)
        assert look(self.table.path).files != files

    def compaction_and_clean(self) -> None:
        """Takes away the slices that an epoch in flight was planned on; the file groups stay."""
        former = look(self.table.path).read_slices()
        self.touched = self.some(6)
        if not self.compacted():
            self._updated_in_place(self.some(10_000))
        self.spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)
        now = look(self.table.path)
        gone = [group for group, (base, _) in former.items() if base and base not in now.groups[group]]
        assert gone
        assert now.groups.keys() >= former.keys()

    def leave_something_to_clean(self, ahead_hours: int = 0) -> None:
        """Two slices of the same file groups; the newer one by a clock that is so far ahead."""
        self.touched = self.some(6)
        self.upsert(self.changed(self.touched))
        self.compacted()
        self.spark.set_clock(self.spark.ahead_hours + ahead_hours)
        self.upsert(self.changed(self.touched))
        self._left_to_clean = True

    def rollback(self) -> None:
        """Of its own newest commit."""
        with self.taken_back():
            self._updated_in_place()
            self.spark.rollback(self.newest())

    def rollback_of_a_pending_write(self) -> None:
        """It fails before it commits; the next clean takes it back."""
        ours = {each.requested for each in look(self.table.path).timeline.pending()}
        with pytest.raises(Exception, match="ValidationException"):
            self._updated_in_place(**FAILS_BEFORE_COMMIT)
        left = {each.requested for each in look(self.table.path).timeline.pending()} - ours
        assert left
        self.taken_back_by_a_clean(left)

    def taken_back_by_a_clean(self, left: Set[str]) -> None:
        """What another process of Spark's left pending."""
        for each in left:
            heartbeat = self.table.path / ".hoodie" / ".heartbeat" / each
            if heartbeat.exists():
                # Its process died long ago.
                os.utime(heartbeat, (0, 0))
        self.spark.clean("KEEP_LATEST_COMMITS", 1)
        assert not left & look(self.table.path).timeline.instants.keys()

    def restore(self) -> None:
        """Where it drops a secondary index, Spark's next write builds one anew. Of the partition that it
        takes back Hudi leaves the first files in a partitioned record index.
        """
        kept = self.newest()
        self.spark.savepoint(kept)
        with self.taken_back():
            self.delete()
            self._updated_in_place()
            self.upsert(self.fresh("region-of-nobody"))
            self.spark.restore(kept)
        self.spark.delete_savepoint(kept)
        if not self.index.is_kept(self):
            self.update()

    def archive(self) -> None:
        """The metadata table is compacted first: without that Hudi archives nothing. The table is compacted
        and cleaned, too: where a restore stays on the timeline, log files of archived commits may not be
        there any more (docs/hudi-beside.md, "archives").
        """
        before = set(look(self.table.path).archived)
        self.touched = self.some(6)
        for _ in range(4):
            compact = {"hoodie.metadata.compact.max.delta.commits": "1"}
            self.upsert(self.changed(self.touched), **compact)
        self.compacted()
        self.spark.clean("KEEP_LATEST_FILE_VERSIONS", 1)
        self.spark.archive(2, 3)
        assert set(look(self.table.path).archived) > before
