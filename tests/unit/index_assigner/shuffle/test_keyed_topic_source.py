"""A lane of keyed is handed out in offset order, exactly what counting entries name, or not at all."""

from __future__ import annotations

from itertools import pairwise

import pytest

from testing.kafka.client import MemoryAdmin
from tests.unit.index_assigner.shuffle_world import HandShuffler, World
from tidemark.epoch_protocol.batches import decode_batch
from tidemark.epoch_protocol.errors import IncompleteRangeError, UnknownEntryError
from tidemark.index_assigner.errors import InputLostError
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from tidemark.index_assigner.shuffle.shuffle_batch import keyed_messages
from tidemark.index_assigner.slots.stage_work import Budget
from tidemark.stream_runtime.kafka.ports import TopicPartition

PLENTY = Budget(1_000_000, 1 << 30)


class Rig:
    def __init__(self, read_ahead_bytes: int = 1 << 24) -> None:
        self.world = World()
        self.folds = self.world.fold_reader()
        self.source = KeyedTopicSource(
            self.world.client,
            self.world.names.keyed,
            self.folds,
            self.world.names.ledger_partition,
            read_ahead_bytes,
            1 << 20,
        )
        self.first = HandShuffler(self.world, 0, "orders-in:0")
        self.second = HandShuffler(self.world, 1, "orders-in:1")
        self.first.claim()
        self.second.claim()

    def lane_batches(self, lane: int, *groups: list[str]):
        return [b for keys in groups for b in self.world.encode(keys) if b.partition == lane]

    def poll(self, budget: Budget = PLENTY) -> list[KeyedSlice]:
        self.folds.poll(0.0)
        return self.source.poll(budget, 0.0)

    def drain(self, budget: Budget = PLENTY, polls: int = 20) -> list[KeyedSlice]:
        slices = []
        for _ in range(polls):
            slices += self.poll(budget)
        return slices


def keys_of(slices: list[KeyedSlice]) -> list[str]:
    return [key for s in slices for b in s.batches for key in b.column("_tm_key").to_pylist()]


A = [f"a{i}" for i in range(8)]
B = [f"b{i}" for i in range(8)]


def keys_in_lane(rig: Rig, lane: int, keys: list[str]) -> list[str]:
    return [key for batch in rig.lane_batches(lane, keys) for key in _decode(batch.value)]


def _decode(value: bytes) -> list[str]:
    keys: list[str] = decode_batch(value).column("_tm_key").to_pylist()
    return keys


def test_interleaved_transactions_come_out_in_offset_order():
    rig = Rig()
    rig.source.assign("0", 0)
    a, b = rig.lane_batches(0, A[:4], A[4:]), rig.lane_batches(0, B[:4], B[4:])
    rig.first.begin()
    rig.second.begin()
    rig.first.send(a[0])
    rig.second.send(b[0])
    rig.first.send(a[1])
    rig.second.send(b[1])
    rig.second.finish()
    rig.first.finish()
    slices = rig.drain()
    expected = [key for value in (a[0], b[0], a[1], b[1]) for key in _decode(value.value)]
    assert keys_of(slices) == expected
    assert slices[0].start == 0
    assert all(left.next == right.start for left, right in pairwise(slices))


def test_a_batch_waits_until_its_entry_is_in_the_fold():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.folds.poll(0.0)
    rig.first.shuffle(rig.lane_batches(0, A))
    assert rig.source.poll(PLENTY, 0.0) == []
    assert keys_of(rig.poll()) == keys_in_lane(rig, 0, A)


def test_a_transaction_that_does_not_count_is_skipped_without_its_rows():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.first.shuffle(rig.lane_batches(0, A[:4]))
    stale = rig.first.term
    rig.second.claim("orders-in:0")
    rig.first.shuffle(rig.lane_batches(0, A[4:]))
    assert rig.first.term == stale
    rig.second.next = 10
    rig.second.shuffle(rig.lane_batches(0, B))
    slices = rig.drain()
    assert keys_of(slices) == keys_in_lane(rig, 0, A[:4]) + keys_in_lane(rig, 0, B)


def test_what_nobody_names_is_not_skipped_before_the_fold_has_passed_the_ledger():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.second.begin()
    # Open in the ledger: it holds the fold back, also from the entry behind it.
    rig.first.shuffle(rig.lane_batches(0, A))
    assert rig.drain(polls=5) == []
    rig.second.finish()
    assert keys_of(rig.drain(polls=5)) == keys_in_lane(rig, 0, A)


def test_torn_batches_of_an_aborted_ledger_are_skipped():
    rig = Rig()
    rig.source.assign("0", 0)
    batch = rig.lane_batches(0, A)[0]
    torn = keyed_messages([batch], rig.world.names.keyed, "torn", "s")[0]
    rig.world.broker.produce(torn.topic_partition, None, torn.value, torn.headers)
    rig.first.shuffle(rig.lane_batches(0, B))
    slices = rig.drain(polls=5)
    assert keys_of(slices) == keys_in_lane(rig, 0, B)
    assert slices[0].start == 0


def test_an_entry_that_names_what_was_skipped_stops_the_reader(monkeypatch: pytest.MonkeyPatch):
    rig = Rig()
    rig.source.assign("0", 0)
    rig.poll()
    rig.first.shuffle(rig.lane_batches(0, A))
    with monkeypatch.context() as wrong:
        # A watermark of before the batch: it seems to be named by nobody, as the fold is past that.
        wrong.setattr(MemoryAdmin, "end_offset", lambda *_: 0)
        assert rig.source.poll(PLENTY, 0.0) == []
    with pytest.raises(IncompleteRangeError, match="torn or lost"):
        rig.drain()


def test_a_small_budget_splits_a_transaction_and_a_new_owner_goes_on_in_its_middle():
    rig = Rig()
    rig.source.assign("0", 0)
    a = rig.lane_batches(0, A[:3], A[3:6], A[6:])
    rig.first.shuffle(a)
    taken = rig.poll(Budget(1, 1 << 20))
    assert keys_of(taken) == _decode(a[0].value)
    rig.source.assign("0", taken[0].next)
    rest = rig.drain(Budget(1, 1 << 20))
    assert len(rest) == len(a) - 1
    assert keys_of(taken + rest) == keys_in_lane(rig, 0, A[:3]) + keys_of(rest)
    assert sorted(keys_of(taken + rest)) == sorted(key for b in a for key in _decode(b.value))


def test_a_lane_goes_on_after_it_was_released_and_assigned_again():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.first.shuffle(rig.lane_batches(0, A))
    slices = rig.drain(polls=3)
    rig.source.release("0")
    rig.first.shuffle(rig.lane_batches(0, B))
    assert rig.drain(polls=3) == []
    rig.source.assign("0", slices[-1].next)
    assert keys_of(rig.drain(polls=3)) == keys_in_lane(rig, 0, B)


def test_each_lane_is_a_stream_of_its_own():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.source.assign("1", 0)
    rig.first.shuffle(rig.world.encode(A))
    slices = rig.drain(polls=3)
    assert {s.lane: keys_of([s]) for s in slices} == {
        "0": keys_in_lane(rig, 0, A),
        "1": keys_in_lane(rig, 1, A),
    }


@pytest.mark.parametrize(
    "tampered", [{"batches": 3}, {"checksum": 1}, {"records": 7}, {"first": 1}, {"last": 40}]
)
def test_a_counting_entry_that_the_topic_does_not_bear_out_stops_the_reader(tampered):
    rig = Rig()
    rig.source.assign("0", 0)
    rig.first.begin()
    for batch in rig.lane_batches(0, A[:4], A[4:]):
        rig.first.send(batch)
    rig.first.finish(tampered=tampered)
    for _ in range(50):
        rig.second.shuffle(rig.lane_batches(0, B[:1]) or rig.lane_batches(0, B))
    with pytest.raises(IncompleteRangeError, match="new-ledger"):
        rig.drain()


def test_a_message_that_is_no_batch_is_named_by_its_place():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.first.shuffle(rig.lane_batches(0, A))
    offset = rig.world.broker.produce(TopicPartition(rig.world.names.keyed, 0), None, b"x", ())
    with pytest.raises(UnknownEntryError, match=rf"orders\.keyed\[0\] offset {offset}: not a Tidemark batch"):
        rig.drain()


def test_a_batch_whose_rows_cannot_be_read_is_named_by_its_place():
    rig = Rig()
    rig.source.assign("0", 0)
    (sound,) = rig.lane_batches(0, A)
    rig.first.shuffle([sound._replace(value=b"no Arrow stream")])
    with pytest.raises(UnknownEntryError, match=r"orders\.keyed\[0\] offset 0: .*Arrow stream.*new-ledger"):
        rig.drain()


def test_a_gap_in_the_sequence_stops_the_reader():
    rig = Rig()
    rig.source.assign("0", 0)
    a = rig.lane_batches(0, A[:4], A[4:])
    rig.first.begin()
    rig.first.send(a[0])
    rig.first._sent += [(a[1], rig.first._sent[0][1] + 1)]
    rig.first.send(a[1])
    rig.first.finish()
    with pytest.raises(IncompleteRangeError):
        rig.drain()


def test_a_trimmed_position_raises_and_never_jumps():
    rig = Rig()
    rig.first.shuffle(rig.lane_batches(0, A))
    rig.first.shuffle(rig.lane_batches(0, B))
    rig.world.admin.delete_records({TopicPartition(rig.world.names.keyed, 0): 2})
    rig.source.assign("0", 0)
    with pytest.raises(InputLostError, match=r"keyed.*retention.*--new-ledger"):
        rig.drain()


def test_who_slept_while_a_successor_went_on_lost_nothing():
    """Its fold is old: what it asks for was tagged, committed and trimmed. It learns that from the ledger."""
    rig = Rig()
    rig.first.shuffle(rig.lane_batches(0, A))
    rig.source.assign("0", 0)
    rig.first.shuffle(rig.lane_batches(0, B))
    rig.world.admin.delete_records({TopicPartition(rig.world.names.keyed, 0): 2})
    for _ in range(3):
        assert rig.source.poll(PLENTY, 0.0) == []
    rig.folds.catch_up()
    rig.source.release("0")
    rig.source.assign("0", 2)
    assert keys_of(rig.drain()) == keys_in_lane(rig, 0, B)


def test_read_ahead_is_bounded_while_nothing_can_be_resolved():
    rig = Rig(read_ahead_bytes=6_000)
    rig.source.assign("0", 0)
    rig.folds.poll(0.0)
    for _ in range(30):
        rig.first.shuffle(rig.lane_batches(0, A))
    for _ in range(30):
        assert rig.source.poll(PLENTY, 0.0) == []
    largest = max(len(m.value or b"") for m in rig.world.all_keyed(0))
    assert rig.source._held_bytes <= 6_000 + largest
    assert len(keys_of(rig.drain(polls=60))) == 30 * len(keys_in_lane(rig, 0, A))


def test_lag_counts_what_was_not_handed_out():
    rig = Rig()
    rig.source.assign("0", 0)
    rig.first.shuffle(rig.lane_batches(0, A))
    assert rig.source.lags()["0"] > 0
    rig.drain(polls=3)
    # Behind the rows lies the transaction's marker, which nobody will ever hand out.
    assert rig.source.lags()["0"] == 0
