"""Keyed rows in, batches out: whoever applies the batches ends where a replay of single events ends."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.unit.index_assigner.assign_rig import (
    DATA_PARTITIONS,
    KEYED_SCHEMA,
    LANES,
    SCHEMA,
    Event,
    HandLeases,
    keyed_rows,
)
from tests.unit.index_assigner.dict_index import DictIndex, Known
from tests.unit.index_assigner.domain.test_tagging_model import Event as ModelEvent
from tests.unit.index_assigner.domain.test_tagging_model import replay
from tests.unit.index_assigner.writer_model import WriterModel
from tidemark.epoch_protocol.batches import (
    DATA_COLUMNS,
    INDEX_COLUMNS,
    TOMBSTONE_COLUMNS,
    BatchHeader,
    IndexOp,
    decode_batch,
    with_user_columns,
)
from tidemark.epoch_protocol.entries import Counts, Topic
from tidemark.epoch_protocol.messages import EncodedBatch, produced_ranges
from tidemark.index_assigner.assign.emit import EmitLimits, Emitter, outgoing
from tidemark.index_assigner.assign.keyed_batch import keyed_batch
from tidemark.index_assigner.assign.placement import InsertLease, NoPlaceError, Placement
from tidemark.index_assigner.assign.tagger import BatchTagger
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.shuffle.keyed_parts import KeyedRows
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.shuffle.shuffle_batch import encode_lanes
from tidemark.ledger_client.topics import TopicNames
from tidemark.record_formats.errors import SetupError
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage
from tidemark.stream_runtime.kafka.ports import TopicPartition

TTL_MS = 60_000
NAMES = TopicNames("orders")
DATA_SCHEMA = with_user_columns(DATA_COLUMNS, SCHEMA.arrow)


class LateClock(ManualClock):
    """Of a machine that has just slept for an hour."""

    def latest_ms(self) -> int:
        return self.now_ms() + 3_600_000


class Rig:
    def __init__(self, ordered: bool, limits: EmitLimits | None = None, room: int = 3) -> None:
        self.table = WriterModel(ordered)
        self.locations = Locations(DATA_PARTITIONS)
        self.index = DictIndex(self.locations, exact=self.table.ordering_of)
        self.leases = HandLeases(room)
        placement = Placement(self.leases, self.locations, SeededIds(1))
        self.placement = placement
        self.tagger = BatchTagger(self.index, self.locations, placement, LateClock(), ordered, TTL_MS)
        self.emitter = Emitter(SCHEMA, self.locations, LANES, limits or EmitLimits(1 << 20, 1 << 24))
        self.counts = Counts()
        for lane in range(LANES):
            self.index.open_lane(lane, None)  # type: ignore[arg-type]
        self._offset = 0

    def slices(self, events: Sequence[Event], letters: int = 0) -> list[KeyedSlice]:
        dead = [OutgoingMessage(TopicPartition(NAMES.dead_letter, 0), b"?")] * letters
        found = []
        for lane in range(LANES):
            mine = [e for e in events if e.lane == lane]
            # Two batches with dictionaries of their own per lane.
            batches = [keyed_rows(part) for part in (mine[:1], mine[1:]) if part]
            if batches or dead:
                found.append(KeyedSlice(str(lane), 0, 1, batches, dead))
                dead = []
        return found

    def run(self, events: Sequence[Event], letters: int = 0) -> list[EncodedBatch]:
        tagged = self.tagger.tag(keyed_batch(self.slices(events, letters), SCHEMA, self.locations))
        batches = self.emitter.encode(tagged)
        for lane, changes in tagged.staged.items():
            self.index.stage(lane, changes)
        self.index.counted(range(LANES), self._offset)
        self._offset += 1
        for batch in batches:
            rows = decode_batch(batch.value)
            assert rows.num_rows == batch.rows
            self.table.apply(batch.topic, batch.partition, rows)
        assert all(expires == LateClock().latest_ms() + TTL_MS for expires in self.table.expires_ms)
        self.counts += tagged.counts
        return batches

    def forget_exactness(self) -> None:
        for lane in range(LANES):
            self.index.promote(self._offset, None, 1)
            committed = self.index.lanes[lane].committed
            for key, known in committed.items():
                if known.location >= 0 and known.ordering is not None:
                    committed[key] = Known(known.location, known.ordering - 1, False)


def total(counts: Counts) -> int:
    return (
        counts.inserts
        + counts.updates
        + counts.deletes
        + counts.superseded
        + counts.no_ops
        + counts.dead_letters
    )


def events_for(ordered: bool) -> st.SearchStrategy[Event]:
    ordering = st.one_of(st.none(), st.integers(0, 9)) if ordered else st.none()
    made = st.builds(
        Event,
        key=st.sampled_from([f"k{i}" for i in range(6)]),
        day=st.sampled_from(["d1", "d2", None]),
        at=ordering,
        delete=st.booleans(),
    )
    return made.filter(lambda e: e.delete or (e.day is not None and (not ordered or e.at is not None)))


batches_of_events = st.booleans().flatmap(
    lambda ordered: st.tuples(
        st.just(ordered),
        st.lists(st.lists(events_for(ordered), min_size=1, max_size=14), min_size=1, max_size=6),
    )
)


@settings(max_examples=250, deadline=None)
@given(batches_of_events, st.booleans(), st.integers(0, 3))
def test_batches_end_as_a_replay_and_every_record_is_counted_once(given_batches, forgetful, letters):
    ordered, batches = given_batches
    rig = Rig(ordered)
    for events in batches:
        if forgetful:
            rig.forget_exactness()
        rig.run(events, letters)
    model = [ModelEvent(e.key, e.delete, e.at if ordered else None, e.day or "") for b in batches for e in b]
    rows, tombstones = replay(model, ordered)
    assert rig.table.live() == {key: (row.partition, row.ordering) for key, row in rows.items()}
    assert rig.table.tombstones == (tombstones if ordered else {})
    assert rig.counts.input == sum(len(b) for b in batches) + letters * len(batches)
    assert total(rig.counts) == rig.counts.input
    assert rig.counts.dead_letters == letters * len(batches)


@settings(max_examples=60, deadline=None)
@given(batches_of_events)
def test_a_successor_that_reads_the_batches_knows_what_the_owner_staged(given_batches):
    ordered, batches = given_batches
    rig = Rig(ordered)
    successor = DictIndex(rig.locations)
    for lane in range(LANES):
        successor.open_lane(lane, None)  # type: ignore[arg-type]
    for offset, events in enumerate(batches):
        encoded = rig.run(events)
        for lane in range(LANES):
            successor.load_counted(
                lane,
                offset,
                [decode_batch(b.value) for b in encoded if (b.topic, b.partition) == (Topic.INDEX, lane)],
                [
                    decode_batch(b.value)
                    for b in encoded
                    if (b.topic, b.partition) == (Topic.TOMBSTONES, lane)
                ],
            )
    for lane in range(LANES):
        owned, rebuilt = rig.index.lanes[lane].counted, successor.lanes[lane].counted
        assert [_comparable(entries) for _, entries in rebuilt] == [
            _comparable(entries) for _, entries in owned
        ]


def _comparable(entries: dict[str, Known]) -> dict[str, tuple[object, ...]]:
    return {
        key: (e.location, e.ordering, e.deleted_from) if e.location < 0 else (e.location, e.ordering, e.exact)
        for key, e in entries.items()
    }


def test_columns_are_as_declared_and_headers_number_each_topic_partition():
    rig = Rig(True, EmitLimits(batch_bytes=400, message_bytes=1 << 20), room=1000)
    events = [Event(f"key-{i}", "d1", i, note="x" * 50) for i in range(60)]
    rig.run(events)
    encoded = rig.run(events[:30] + [Event(f"key-{i}", None, 100, delete=True) for i in range(30, 60)])
    schemas = {Topic.DATA: DATA_SCHEMA, Topic.INDEX: INDEX_COLUMNS, Topic.TOMBSTONES: TOMBSTONE_COLUMNS}
    assert all(decode_batch(b.value).schema.equals(schemas[b.topic]) for b in encoded)
    messages = outgoing(encoded, NAMES, "nonce-1", "schema-1")
    places: dict[TopicPartition, list[int]] = {}
    for batch, message in zip(encoded, messages, strict=True):
        header = BatchHeader.decode(message.headers)
        assert (header.nonce, header.schema_id, header.rows) == ("nonce-1", "schema-1", batch.rows)
        places.setdefault(message.topic_partition, []).append(header.sequence)
    assert all(sequences == list(range(len(sequences))) for sequences in places.values())
    assert max(len(sequences) for sequences in places.values()) > 2
    produced = produced_ranges(encoded, range(100, 100 + len(encoded)))
    assert sum(p.batches for p in produced) == len(encoded)
    assert sum(p.records for p in produced if p.topic is Topic.TOMBSTONES) == 30
    assert {p.first for p in produced} < set(range(100, 100 + len(encoded)))


def test_messages_keep_below_the_limit_and_a_row_that_cannot_is_refused():
    limits = EmitLimits(batch_bytes=1 << 20, message_bytes=8_000)
    rig = Rig(False, limits)
    encoded = rig.run([Event(f"key-{i}", note="x" * 500) for i in range(100)])
    sizes = [len(b.value) for b in encoded]
    assert max(sizes) <= 8_000
    assert len([b for b in encoded if b.topic is Topic.DATA]) > 5
    with pytest.raises(SetupError, match="message_bytes"):
        rig.run([Event("large", note="x" * 9_000)])


def test_the_largest_row_that_the_shuffle_stage_lets_through_fits_into_a_data_message():
    message_bytes = 20_000
    rig = Rig(True, EmitLimits(1 << 20, message_bytes))
    rig.leases.lease = lambda wants: [  # type: ignore[method-assign]
        InsertLease(wants[0].partition_path, "f47ac10b-58cc-4372-a567-0e02b2c3d479-0", 10)
    ]
    largest = 0
    for size in range(17_000, 20_000, 8):
        rows = keyed_rows([Event("k", "d" * 30, 1, note="x" * size)])
        keyed = KeyedRows(rows, np.zeros(1, np.int32), np.zeros(1, np.int64), [])
        if not encode_lanes(keyed, 1 << 20, message_bytes).refused:
            largest = size
    assert 17_000 < largest < 19_000
    (data,) = [b for b in rig.run([Event("k", "d" * 30, 1, note="x" * largest)]) if b.topic is Topic.DATA]
    assert len(data.value) < message_bytes


def test_without_an_ordering_field_in_place_updates_have_no_index_row():
    rig = Rig(False)
    rig.run([Event("a"), Event("b")])
    encoded = rig.run([Event("a", note="new"), Event("b", "d2"), Event("c", None, delete=True)])
    index = [row for b in encoded if b.topic is Topic.INDEX for row in decode_batch(b.value).to_pylist()]
    assert [(row["_tm_key"], row["_tm_op"], row["_tm_exact"]) for row in index] == [
        ("b", IndexOp.UPSERT, False)
    ]
    assert not [b for b in encoded if b.topic is Topic.TOMBSTONES]
    assert (rig.counts.updates, rig.counts.moves, rig.counts.no_ops) == (2, 1, 1)


def test_with_an_ordering_field_an_update_in_place_has_an_index_row_with_its_exactness():
    rig = Rig(True)
    rig.run([Event("a", at=1), Event("b", at=1)])
    rig.index.promote(0, None, 1)
    lane = Event("a").lane
    committed = rig.index.lanes[lane].committed
    committed["a"] = Known(committed["a"].location, 0, False)
    encoded = rig.run([Event("a", at=5), Event("b", at=5)])
    index = [row for b in encoded if b.topic is Topic.INDEX for row in decode_batch(b.value).to_pylist()]
    assert sorted((r["_tm_key"], r["_tm_op"], r["_tm_ordering"], r["_tm_exact"]) for r in index) == [
        ("a", IndexOp.UNCHANGED, 5, False),
        ("b", IndexOp.UNCHANGED, 5, True),
    ]
    assert rig.index.exact_asked == []


def test_leases_are_asked_once_per_batch_for_all_partitions_and_used_up_first():
    rig = Rig(False, room=4)
    rig.run([Event(f"a{i}", f"d{i % 3}") for i in range(9)])
    assert len(rig.leases.asked) == 1
    assert sorted((w.partition_path, w.records) for w in rig.leases.asked[0]) == [
        ("d0", 3),
        ("d1", 3),
        ("d2", 3),
    ]
    rig.run([Event(f"b{i}", f"d{i}") for i in range(3)])
    assert len(rig.leases.asked) == 1
    rig.run([Event("c0", "d0"), Event("c1", "d0")])
    assert [(w.partition_path, w.records) for w in rig.leases.asked[1]] == [("d0", 2)]
    assert max(len(rows) for rows in rig.table.groups.values()) <= 4


def test_without_a_coordinator_a_used_up_lease_is_overrun_and_an_unknown_partition_waits():
    rig = Rig(False, room=2)
    rig.run([Event("a"), Event("b")])
    rig.leases.down = True
    rig.run([Event(f"more-{i}") for i in range(5)])
    assert len(rig.table.live()) == 7
    assert len(rig.table.groups) == 1
    with pytest.raises(NoPlaceError, match="d2"):
        rig.run([Event("c", "d2")])
    rig.placement.forget()
    with pytest.raises(NoPlaceError, match="d1"):
        rig.run([Event("c", "d1")])
    rig.leases.down = False
    rig.run([Event("c", "d2")])
    assert rig.table.live()["c"] == ("d2", None)


def test_rows_of_an_older_schema_get_nulls_and_of_a_newer_one_stop_the_stage():
    rig = Rig(False)
    rows = keyed_rows([Event("a", note="n")])
    older = KeyedSlice("0", 0, 1, [rows.drop_columns(["note"])])
    batch = keyed_batch([older], SCHEMA, rig.locations)
    assert batch.rows.column("note").to_pylist() == [None]
    wide = pa.schema([*KEYED_SCHEMA, pa.field("extra", pa.int64())])
    newer = pa.RecordBatch.from_arrays([*rows.columns, pa.array([1])], schema=wide)
    with pytest.raises(SetupError, match="extra"):
        keyed_batch([KeyedSlice("0", 0, 1, [newer])], SCHEMA, rig.locations)


def test_rows_that_a_delete_would_hide_go_to_a_file_group_of_their_own() -> None:
    """`fg-…` are leased; what is made here has another name. "bad" is hidden there, too, the first time."""
    rig = Rig(ordered=True, room=50)
    names = rig.locations.file_ids
    made: list[str] = []

    def hidden(key: str, location: int, ordering: int) -> bool:
        if names[location].startswith("fg-"):
            return key != "fine" and ordering < 10
        made.append(key)
        return key == "bad" and made.count("bad") == 1

    rig.index.hidden = hidden
    rig.run([Event("fine", at=1), Event("low", at=2), Event("bad", at=3), Event("high", at=10)])
    groups = {key: place[1] for key, place in rig.table.index.items()}
    assert groups["fine"] == groups["high"] == "fg-0"
    assert len({groups["fine"], groups["low"], groups["bad"]}) == 3
    rig.run([Event("low", day="d2", at=4), Event("next", at=5)])
    assert rig.table.index["next"][1] == groups["bad"], "the isolated file group that was made last"
    assert rig.table.index["low"][1] not in groups.values(), "one for each table partition"
    rig.placement.forget()
    rig.run([Event("last", at=5)])
    assert rig.table.index["last"][1] not in {*groups.values(), rig.table.index["low"][1]}
    rig.table.live()
