"""A MERGE_ON_READ table of real files in memory, and one assigner process over it that tags for it.

Every batch of events is tagged, written and committed as one epoch, by hand: what the topics carry is applied
to file slices and to the record index. Another engine deletes beside it; slices and index are compacted.
`check` reads the slices back and compares them with what was tagged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.memory_storage import InMemoryStorage
from tests.unit.hudi_format.doubles import ManualClock as InstantClock
from tests.unit.index_assigner.assign_rig import (
    DATA_PARTITIONS,
    LANES,
    SCHEMA,
    SHARDS,
    Event,
    keyed_rows,
)
from tidemark.epoch_protocol.batches import (
    FILE_ID,
    KEY,
    OP,
    ORDERING,
    PARTITION,
    DataOp,
    IndexOp,
    decode_batch,
)
from tidemark.epoch_protocol.entries import Counts, Topic
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.base_file import attach_meta_columns, write_base_file
from tidemark.hudi_format.file_group.changes import Deletes
from tidemark.hudi_format.file_group.log_blocks import data_log_bytes
from tidemark.hudi_format.file_group.slice_reader import read_slice
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table import (
    MetadataTableSnapshot,
    RecordIndexEntries,
    write_record_index_log,
)
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER, record_index_log
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import InstantGenerator, RecordLocation, ShardId
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.table_config import MergeMode, TableDefinition, TableType
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.index_assigner.assign.emit import EmitLimits, Emitter
from tidemark.index_assigner.assign.keyed_batch import keyed_batch
from tidemark.index_assigner.assign.placement import InsertLease, Placement, Want
from tidemark.index_assigner.assign.tagger import BatchTagger
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice

TTL_MS = 60_000
MARGIN_MS = 10_000
FIELD = OrderingField.of(SCHEMA, "at")
EVENT_TIME = MergeMode.EVENT_TIME_ORDERING
NOTHING = encode_commit_metadata(CommitMetadata())

Place = tuple[str, str]
Row = tuple[Place, int, str]


@dataclass
class GroupChange:
    """What a commit does to one file group; a delete without an ordering value is unconditional."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    deletes: dict[str, int | None] = field(default_factory=dict)


class SlicedTable:
    """The table: commits, compactions, and what it holds."""

    def __init__(self) -> None:
        self.storage = InMemoryStorage()
        definition = TableDefinition(
            name="orders",
            table_type=TableType.MERGE_ON_READ,
            record_key_fields=("id",),
            partition_fields=("day",),
            ordering_fields=("at",),
        )
        create_table(self.storage, definition)
        self.times = InstantGenerator(InstantClock())
        bootstrap_metadata_table(self.storage, SHARDS, self.times)
        self.has_base: set[Place] = set()
        # No file changes once it is there, and all commits are whole: what a slice holds follows from the
        # names of its files. Most epochs leave most of them as they were.
        self._rows: dict[FileSlice, dict[str, Row]] = {}
        self._entries: dict[FileSlice, dict[str, Place]] = {}

    def commit(self, groups: Mapping[Place, GroupChange], index: Mapping[str, Place | None]) -> str:
        """A whole commit; returns its completion time."""
        instant = self.times.next()
        requested = create_requested(Unfenced(self.storage), instant, Action.DELTA_COMMIT)
        data = create_inflight(Unfenced(self.storage), requested, NOTHING)
        for place, change in sorted(groups.items()):
            self._write(instant, place, change)
        begun = begin_delta_commit(Unfenced(self.storage), instant)
        logs = [publish_files_log(Unfenced(self.storage), instant, [])]
        for shard in range(SHARDS):
            mine = {key: place for key, place in index.items() if Event(key).shard == shard}
            if mine:
                gone = sum(place is None for place in mine.values())
                content = write_record_index_log(_entries(mine), instant)
                logs.append(record_index_log(instant, ShardId(shard), len(content), len(mine) - gone, gone))
                publish_log(Unfenced(self.storage), logs[-1], content)
        complete_delta_commit(
            Unfenced(self.storage), begun, self.times.next(), delta_commit_metadata(instant, logs)
        )
        completion = self.times.next()
        complete(Unfenced(self.storage), data, completion, NOTHING)
        return completion

    def _write(self, instant: str, place: Place, change: GroupChange) -> None:
        day, file_id = place
        rows = pa.Table.from_pylist(change.rows, schema=SCHEMA.arrow)
        with_meta = attach_meta_columns(rows, rows.column("id"), day, instant, 0, file_id)
        if place not in self.has_base:
            assert not change.deletes
            self.has_base.add(place)
            name = f"{day}/{file_id}_0-0-0_{instant}.parquet"
            self.storage.create(name, write_base_file(with_meta, SCHEMA))
            return
        values = [np.iinfo(np.int64).min if at is None else at for at in change.deletes.values()]
        deletes = Deletes.with_ordering(pa.array(change.deletes, pa.string()), np.array(values, np.int64))
        log = data_log_bytes(SCHEMA, instant, with_meta, deletes, day, FIELD)
        self.storage.create(f"{day}/.{file_id}_{instant}.log.1_0-0-0", log)

    def slices(self) -> list[FileSlice]:
        days = [each.name for each in self.storage.list("") if each.is_dir and not each.name.startswith(".")]
        names = {day: [each.name for each in self.storage.list(day)] for day in days}
        return TableView.load(self.storage).slices(names)

    def live(self) -> dict[str, Row]:
        """Every live key with its file group, ordering value and note; none is there twice."""
        found: dict[str, Row] = {}
        for each in self.slices():
            if each not in self._rows:
                self._rows[each] = self._read(each)
            for key, row in self._rows[each].items():
                assert key not in found, f"{key} lives twice"
                found[key] = row
        return found

    def _read(self, of: FileSlice) -> dict[str, Row]:
        place, found = (of.partition_path, of.file_id), dict[str, Row]()
        for row in read_slice(self.storage, of, SCHEMA, EVENT_TIME, FIELD).to_pylist():
            assert row["id"] not in found, f"{row['id']} lives twice"
            found[row["id"]] = (place, row["at"], row["note"])
        return found

    def index(self) -> dict[str, Place]:
        """The record index."""
        snapshot = MetadataTableSnapshot.load(self.storage)
        found: dict[str, Place] = {}
        for number in range(SHARDS):
            shard = snapshot.shard(ShardId(number))
            if shard.file_slice not in self._entries:
                self._entries[shard.file_slice] = _places(shard.entries())
            found |= self._entries[shard.file_slice]
        return found

    def compact(self, day: str = "") -> None:
        """Every slice (of the day) with log files becomes a base file; the old files go."""
        before = [each for each in self.slices() if each.log_files and each.partition_path.startswith(day)]
        instant = self.times.next()
        inflight = create_inflight(
            Unfenced(self.storage),
            create_requested(Unfenced(self.storage), instant, Action.COMPACTION, b"plan"),
        )
        for each in before:
            rows = read_slice(self.storage, each, SCHEMA, EVENT_TIME, FIELD)
            name = f"{each.partition_path}/{each.file_id}_0-0-0_{instant}.parquet"
            self.storage.create(name, write_base_file(rows, SCHEMA))
        complete(
            Unfenced(self.storage),
            inflight,
            self.times.next(),
            encode_commit_metadata(CommitMetadata(compacted=True)),
        )
        for each in before:
            for path in each.paths():
                self.storage.delete(path)

    def compact_index(self) -> None:
        """Folds the record index into base files; the old files go."""
        content = self.index()
        before = [
            each.path for each in self.storage.list(RECORD_INDEX_FOLDER) if "record-index-" in each.name
        ]
        requested = create_requested(
            Unfenced(self.storage), self.times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT
        )
        inflight = create_inflight(Unfenced(self.storage), requested, root=METADATA_TABLE_ROOT)
        for shard in range(SHARDS):
            mine = {key: place for key, place in sorted(content.items()) if Event(key).shard == shard}
            found = _entries(mine)
            values = encode_values(found.location_ids, found.locations, found.instant_ms)
            name = f"{RECORD_INDEX_FOLDER}/record-index-{shard:04d}-0_{shard}-0-0_{inflight.requested}.hfile"
            self.storage.create(name, write_hfile(found.keys, values, metadata_record_schema()))
        metadata = encode_commit_metadata(CommitMetadata(compacted=True))
        complete(Unfenced(self.storage), inflight, self.times.next(), metadata, root=METADATA_TABLE_ROOT)
        for path in before:
            self.storage.delete(path)


def _places(entries: RecordIndexEntries) -> dict[str, Place]:
    keys, ids = entries.keys.to_pylist(), entries.location_ids.tolist()
    at = [(location.partition_path, location.file_id) for location in entries.locations]
    return {key: at[number] for key, number in zip(keys, ids, strict=True)}


def _entries(places: Mapping[str, Place | None]) -> RecordIndexEntries:
    known = sorted({place for place in places.values() if place is not None})
    ids = [-1 if place is None else known.index(place) for place in places.values()]
    return RecordIndexEntries(
        pa.array(places, pa.string()),
        np.array(ids, np.int32),
        [RecordLocation(*place) for place in known],
        np.zeros(len(ids), np.int64),
    )


class OneGroup:
    """Leases of one file group per table partition, whatever is in it: the hardest case."""

    def lease(self, wants: Sequence[Want]) -> list[InsertLease]:
        return [
            InsertLease(want.partition_path, f"shared-{want.partition_path}", want.records) for want in wants
        ]


@dataclass
class _Tombstones:
    """The topic: (lane, rows), each kept for the time to live and a margin."""

    made_ms: int
    lane: int
    rows: pa.RecordBatch


class OrderedTable:
    """The table with one assigner at a time. `expected`: key -> (ordering value, note) as tagged."""

    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder
        self.table = SlicedTable()
        self.clock = ManualClock()
        self.ids = SeededIds(seed)
        self.expected: dict[str, tuple[int, str]] = {}
        self.counts = Counts()
        self._topic: list[_Tombstones] = []
        self._offset = 0
        self._disks = 0
        self._rocks: RocksTier | None = None
        self.start("disk")

    # ------------------------------------------------------------ the process

    def start(self, disk: str) -> None:
        """Another process; `disk` names its folder, one that was never used is empty."""
        self.close()
        self.locations = Locations(DATA_PARTITIONS)
        limits = IndexLimits(16 << 20, 1 << 30)
        self._rocks = RocksTier(self.folder / disk, "orders", limits.rocks_memory)
        parts = OrderingParts(SCHEMA, EVENT_TIME, FIELD, True, TTL_MS)
        self.tiers = TieredIndex(
            self.table.storage, self._rocks, self.locations, SHARDS, LANES, True, limits, parts, self.clock
        )
        self.placement = Placement(OneGroup(), self.locations, self.ids)
        self.tagger = BatchTagger(self.tiers, self.locations, self.placement, self.clock, True, TTL_MS)
        self.emitter = Emitter(SCHEMA, self.locations, LANES, EmitLimits(1 << 20, 1 << 24))
        self._open()

    def lose_disk(self) -> None:
        """Another process with an empty disk; tombstones come from the topic as far as it still has them."""
        self._disks += 1
        self.start(f"disk-{self._disks}")

    def close(self) -> None:
        if self._rocks is not None:
            self.tiers.stop()
            self._rocks.close()
            self._rocks = None

    def _open(self) -> None:
        snapshot = MetadataTableSnapshot.load(self.table.storage)
        kept_ms = self.clock.now_ms() - TTL_MS - MARGIN_MS
        for lane in range(LANES):
            self.tiers.open_lane(lane, snapshot)
            first = self.tiers.tombstones_position(lane)
            tail = [each for each in self._topic[first:] if each.lane == lane and each.made_ms >= kept_ms]
            self.tiers.load_tombstones(lane, [each.rows for each in tail], len(self._topic))

    # ------------------------------------------------------------ epochs

    def feed(self, *events: Event) -> Counts:
        """One epoch of these events; what became of them."""
        slices = []
        for lane in range(LANES):
            mine = [event for event in events if event.lane == lane]
            if mine:
                slices.append(KeyedSlice(str(lane), 0, 1, [keyed_rows(mine)]))
        tagged = self.tagger.tag(keyed_batch(slices, SCHEMA, self.locations))
        encoded = self.emitter.encode(tagged)
        for lane, changes in tagged.staged.items():
            self.tiers.stage(lane, changes)
        self._offset += 1
        groups: dict[Place, GroupChange] = {}
        index: dict[str, Place | None] = {}
        for each in encoded:
            rows = decode_batch(each.value)
            if each.topic is Topic.TOMBSTONES:
                self._topic.append(_Tombstones(self.clock.now_ms(), each.partition, rows))
            for row in rows.to_pylist():
                if each.topic is Topic.DATA:
                    self._take_data(groups, row)
                elif each.topic is Topic.INDEX and row[OP] != IndexOp.UNCHANGED:
                    gone = row[OP] == IndexOp.DELETE
                    index[row[KEY]] = None if gone else (row[PARTITION], row[FILE_ID])
        self.tiers.counted(range(LANES), self._offset, dict.fromkeys(range(LANES), len(self._topic)))
        self.tiers.promote(self._offset, self.table.commit(groups, index), self._offset)
        self.counts += tagged.counts
        self.check()
        return tagged.counts

    def _take_data(self, groups: dict[Place, GroupChange], row: dict[str, Any]) -> None:
        key, change = row[KEY], groups.setdefault((row[PARTITION], row[FILE_ID]), GroupChange())
        if row[OP] == DataOp.DELETE:
            change.deletes[key] = row[ORDERING]
            if key not in {each["id"] for other in groups.values() for each in other.rows}:
                del self.expected[key]
            return
        change.rows.append({name: row[name] for name in SCHEMA.arrow.names})
        if row[OP] == DataOp.INSERT or row["at"] >= self.expected[key][0]:
            self.expected[key] = row["at"], row["note"]

    # ------------------------------------------------------------ another engine

    def foreign_delete(self, key: str, at: int | None) -> None:
        """Another engine deletes a live key, with an ordering value or without; all is tagged anew."""
        place, stored, _ = self.table.live()[key]
        assert at is None or at >= stored
        self.table.commit({place: GroupChange(deletes={key: at})}, {key: None})
        del self.expected[key]
        self.tiers.rewind()
        self.placement.forget()
        self._open()

    # ------------------------------------------------------------ questions

    def check(self) -> None:
        """The slices show what was tagged, and the record index names where it is."""
        live = self.table.live()
        assert {key: (at, note) for key, (_, at, note) in live.items()} == self.expected
        assert {key: place for key, (place, _, _) in live.items()} == self.table.index()

    def place(self, key: str) -> Place:
        return self.table.index()[key]

    def stats(self) -> dict[str, float]:
        return self.tiers.stats()
