"""Assigners under faults: the table that a writer makes of their batches is a replay of the input."""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest

from testing.kafka import EndFault
from tests.simulation.assign_cluster import ALL_LANES, AssignCluster, Assigner
from tests.unit.index_assigner.assign_rig import LANES, SHARDS, Event
from tidemark.assigner.v1 import assigner_pb2 as pb
from tidemark.epoch_protocol.entries import LanesClaimed, Stage, encode_entry
from tidemark.epoch_protocol.fold import Verdict
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.assign.lookups import NOT_HELD, BadLookupError, LookupBusyError, LookupService
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.index.errors import LaneNotOpenError, SnapshotBehindError
from tidemark.index_assigner.shuffle.keyed_topic_source import KeyedTopicSource
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_runtime.kafka.errors import KafkaUnavailableError

SEEDS = [int(os.environ["TIDEMARK_SEED"])] if "TIDEMARK_SEED" in os.environ else list(range(25))


def alone(seed: int = 1, ordered: bool = True, **settings: int) -> tuple[AssignCluster, Assigner]:
    cluster = AssignCluster(seed, ordered)
    only = cluster.add_assigner(0, **settings)
    only.lease.lanes = ALL_LANES
    return cluster, only


def finish(cluster: AssignCluster, *assigners: Assigner) -> None:
    cluster.settle(*assigners)
    while cluster.coordinator.commit():
        pass
    cluster.settle(*assigners, rounds=3)
    cluster.check()


@pytest.mark.parametrize("ordered", [True, False])
def test_epoch_after_epoch_ends_as_the_replay(ordered):
    cluster, only = alone(ordered=ordered)
    for _ in range(6):
        cluster.feed(cluster.random_events(30))
        cluster.settle(only, rounds=12)
        cluster.coordinator.commit()
    finish(cluster, only)
    assert cluster.coordinator.epochs >= 6
    assert only.loop.counters.not_counted == 0
    assert only.work.uncommitted_entries() == 0
    assert only.work.counts.input == len(cluster.sent)
    stats = only.lease.reported.stats
    assert stats["tagged_input"] > 0
    assert {name for name in stats if name.startswith("lag_lane_")} == {"lag_lane_0", "lag_lane_1"}


def test_a_lane_that_the_broker_would_not_let_read_is_opened_again(monkeypatch):
    cluster, only = alone()
    """Once the slot holds its lanes for open, nobody but the stage itself tries again."""
    make_whole, opened = LaneOpener.open, []
    add, asked = KeyedTopicSource.assign, []

    def first_opening_fails(opener, lanes, state):
        opened.append(lanes)
        if len(opened) == 1:
            raise SnapshotBehindError("not yet")
        make_whole(opener, lanes, state)

    def second_gets_no_answer(source, lane, position, suspect):
        add(source, lane, position, suspect)
        asked.append(lane)
        if len(asked) == 2:
            raise KafkaUnavailableError("no answer")

    monkeypatch.setattr(LaneOpener, "open", first_opening_fails)
    monkeypatch.setattr(KeyedTopicSource, "assign", second_gets_no_answer)
    cluster.feed(cluster.random_events(30))
    finish(cluster, only)
    assert asked == ["0", "1", "0", "1"]


def test_a_lone_record_goes_on_before_the_interval_is_over():
    cluster, only = alone()
    cluster.settle(only, rounds=10)
    cluster.feed([Event("k1", at=1)])
    started_s = cluster.clock.monotonic_s()
    while not only.loop.counters.transactions:
        only.loop.step()
    assert cluster.clock.monotonic_s() - started_s < 0.1


def test_lanes_of_two_assigners_are_independent_and_one_takes_over_what_is_not_committed():
    cluster = AssignCluster(2)
    first, second = cluster.add_assigner(0), cluster.add_assigner(1)
    first.lease.lanes, second.lease.lanes = frozenset({"0"}), frozenset({"1"})
    cluster.feed(cluster.random_events(60))
    cluster.settle(first, second)
    held = first.work.uncommitted_entries() + second.work.uncommitted_entries()
    entries = first.index.lanes[0].counted
    first.lease.lanes, second.lease.lanes = frozenset(), ALL_LANES
    cluster.settle(first, second)
    assert second.work.uncommitted_entries() == held
    rebuilt = second.index.lanes[0].counted
    assert [(o, e.keys()) for o, e in rebuilt] == [(o, e.keys()) for o, e in entries if e]
    cluster.feed(cluster.random_events(60))
    finish(cluster, first, second)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize(
    "place", [p for p in AssignerFailpoint if p.value.startswith("assign_") and p.value != "assign_claim"]
)
def test_an_assigner_that_dies_anywhere_is_replaced(place, nth):
    cluster, first = alone(seed=3)
    cluster.feed(cluster.random_events(20))
    cluster.settle(first, rounds=20)
    cluster.coordinator.commit()
    first.failpoints.arm(place, nth)

    def go_on() -> None:
        for _ in range(10):
            cluster.feed(cluster.random_events(20))
            cluster.settle(first, rounds=20)

    with pytest.raises(FailpointHitError):
        go_on()
    second = cluster.add_assigner(0)
    second.lease.lanes = ALL_LANES
    cluster.feed(cluster.random_events(20))
    finish(cluster, second)


@pytest.mark.parametrize("fault", list(EndFault))
def test_every_fault_of_a_transaction_end(fault):
    cluster, only = alone(seed=4)
    for round_ in range(6):
        cluster.feed(cluster.random_events(20))
        cluster.broker.faults.on_next_end("orders-assign-0", fault)
        for _ in range(40):
            only.loop.step()
            cluster.broker.deliver_late_ends()
            cluster.clock.advance(0.02)
        if round_ % 2:
            cluster.coordinator.commit()
    finish(cluster, only)


def test_a_zombie_that_does_not_know_that_it_lost_its_lanes_does_not_count():
    cluster = AssignCluster(5)
    zombie, second = cluster.add_assigner(0), cluster.add_assigner(1)
    zombie.lease.lanes = ALL_LANES
    cluster.feed(cluster.random_events(20))
    cluster.settle(zombie)
    cluster.feed(cluster.random_events(20))
    # It publishes under its old claim right behind the claim of its successor.
    zombie.failpoints.arm(AssignerFailpoint.ASSIGN_ENTRY)
    second.lease.lanes = ALL_LANES
    cluster.settle(second, rounds=6)
    with pytest.raises(FailpointHitError):
        cluster.settle(zombie, rounds=6)
    cluster.settle(second)
    finish(cluster, second)


def test_a_transaction_behind_a_newer_claim_is_not_counted_and_tagged_again():
    cluster, only = alone(seed=6)
    cluster.feed(cluster.random_events(20))
    cluster.settle(only)
    cluster.feed(cluster.random_events(20))
    claim = LanesClaimed(Stage.ASSIGN, sorted(ALL_LANES), 0, 7, "foreign")

    def claim_in_between() -> None:
        producer = cluster.client.plain_producer()
        producer.produce(cluster.names.ledger, encode_entry(claim), partition=0)
        producer.flush()

    original = only.work.prepare

    def prepare(nonce):
        prepared = original(nonce)
        if prepared is not None and not only.loop.counters.not_counted:
            claim_in_between()
        return prepared

    only.work.prepare = prepare  # type: ignore[method-assign]
    cluster.settle(only)
    assert only.loop.counters.not_counted == 1
    assert [v for _, v in cluster.verdicts()].count(Verdict.STALE_TERM) == 1
    finish(cluster, only)


def test_a_rewind_tags_the_input_again_under_the_new_generation():
    cluster, only = alone(seed=7)
    cluster.feed(cluster.random_events(30))
    cluster.settle(only)
    cluster.coordinator.commit()
    leased = len(cluster.leases.asked)
    cluster.feed(cluster.random_events(30))
    cluster.settle(only)
    cluster.coordinator.plan()
    cluster.coordinator.rewind()
    cluster.settle(only)
    assert {entry.generation for entry, v in cluster.verdicts() if v is Verdict.COUNTS} == {0, 1}
    assert len(cluster.leases.asked) > leased, "file groups are leased anew"
    finish(cluster, only)


def test_an_epoch_that_is_read_together_with_the_own_transaction_is_promoted_with_it():
    cluster, only = alone(seed=8)
    cluster.settle(only, rounds=10)
    cluster.feed([Event("k1", at=1), Event("k2", at=1), Event("k3", at=1)])
    while not only.loop.counters.transactions:
        only.loop.step()
    assert cluster.coordinator.commit()
    assert not only.index.promoted
    only.loop.step()
    assert only.loop.counters.counted == 1
    assert [epoch for _, _, epoch in only.index.promoted] == [1]
    committed = {key for lane in only.index.lanes.values() for key in lane.committed}
    assert committed == {"k1", "k2", "k3"}
    assert only.work.uncommitted_entries() == 0


def test_an_epoch_behind_the_claim_of_another_is_not_promoted_into_lanes_that_are_lost():
    cluster = AssignCluster(9)
    frozen, second = cluster.add_assigner(0), cluster.add_assigner(1)
    frozen.lease.lanes = ALL_LANES
    cluster.settle(frozen, rounds=10)
    second.lease.lanes = ALL_LANES
    cluster.feed(cluster.random_events(30))
    cluster.settle(second)
    assert cluster.coordinator.commit()
    frozen.lease.lanes = frozenset()
    held_at_promotion: list[set[int]] = []
    promote = frozen.index.promote

    def watched(through: int, completion: str | None, epoch: int, instant: str | None = None) -> None:
        held_at_promotion.append(set(frozen.index.lanes))
        promote(through, completion, epoch, instant)

    frozen.index.promote = watched  # type: ignore[method-assign]
    frozen.loop.step()
    assert held_at_promotion == [set()]
    finish(cluster, second)


def test_an_index_that_cannot_be_opened_yet_is_opened_later():
    cluster, only = alone(seed=10)
    tries = []
    open_lane = only.index.open_lane

    def behind(lane, snapshot, known=None):
        tries.append(lane)
        if len(tries) < 8:
            raise SnapshotBehindError("load a new snapshot")
        open_lane(lane, snapshot, known)

    only.index.open_lane = behind  # type: ignore[method-assign]
    cluster.feed(cluster.random_events(30))
    finish(cluster, only)
    assert len(tries) > 8
    assert only.loop.counters.claims == 1


def test_a_lane_that_the_index_closed_is_opened_again_before_anything_is_lost():
    cluster, only = alone(seed=11)
    cluster.feed(cluster.random_events(30))
    cluster.settle(only)
    lookup = only.index.lookup
    failed: list[int] = []

    def closing(lane, keys, shards):
        if not failed:
            failed.append(lane)
            only.index.close_lane(lane)
            raise LaneNotOpenError("files vanished")
        return lookup(lane, keys, shards)

    only.index.lookup = closing  # type: ignore[method-assign]
    cluster.feed(cluster.random_events(30))
    finish(cluster, only)
    assert len(failed) == 1
    assert only.loop.counters.claims == 1


def test_without_a_coordinator_to_lease_from_tagging_waits_and_goes_on():
    cluster, only = alone(seed=12)
    cluster.leases.down = True
    cluster.feed([Event("k1", at=1)])
    cluster.settle(only, rounds=20)
    assert only.loop.counters.transactions == 0
    cluster.leases.down = False
    finish(cluster, only)


def test_lookups_are_answered_by_the_loop_with_tier_and_location():
    cluster, only = alone(seed=15)
    cluster.feed([Event("k1", "d1", 5), Event("k2", "d2", 6)])
    cluster.settle(only)
    cluster.coordinator.commit()
    cluster.settle(only, rounds=3)
    cluster.feed([Event("k2", "d2", 9), Event("k3", "d3", 7)])
    cluster.settle(only)
    parts, answers = only.work._parts, []
    service = LookupService("orders", only.queue, parts.locations, parts.warming)
    asking = threading.Thread(
        target=lambda: answers.append(
            service.Lookup(pb.LookupRequest(table="orders", keys=["k1", "k2", "k3", "nope", "k1"]), None)
        )
    )
    asking.start()
    while asking.is_alive():
        only.loop.step()
    found = {each.key: each for each in answers[0].found}
    assert [(k, f.tier, f.partition_path, f.ordering) for k, f in found.items()] == [
        ("k1", "rocksdb", "d1", 5),
        ("k2", "uncommitted", "d2", 9),
        ("k3", "uncommitted", "d3", 7),
        ("nope", "none", "", 0),
    ]
    assert found["k1"].file_id == cluster.table.index["k1"][1]
    assert all(f.shard < SHARDS for f in found.values())
    with pytest.raises(BadLookupError, match="other"):
        service.Lookup(pb.LookupRequest(table="other"), None)
    with pytest.raises(LookupBusyError):
        only.queue.ask(pa.array(["k1"]), timeout_s=0.01)


def test_lookups_of_lanes_that_are_not_held_have_no_tier():
    cluster = AssignCluster(16)
    half = cluster.add_assigner(0)
    half.lease.lanes = frozenset({"0"})
    cluster.settle(half, rounds=10)
    keys = pa.array([f"k{i}" for i in range(20)])
    answers = []
    asking = threading.Thread(target=lambda: answers.append(half.queue.ask(keys)))
    asking.start()
    while asking.is_alive():
        half.loop.step()
    assert ((answers[0].tier == NOT_HELD) == (answers[0].shards % LANES != 0)).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_order_of_faults_moves_commits_and_rewinds(seed):
    cluster = AssignCluster(seed, ordered=seed % 4 != 3)
    dice = cluster.random
    running = [cluster.add_assigner(0, records=15), cluster.add_assigner(1, records=15)]
    running[0].lease.lanes = ALL_LANES
    for _ in range(150):
        roll = dice.random()
        if roll < 0.15:
            cluster.feed(cluster.random_events(dice.randrange(1, 25)))
        elif roll < 0.19:
            lanes = frozenset(lane for lane in ALL_LANES if dice.random() < 0.5)
            running[0].lease.lanes, running[1].lease.lanes = lanes, ALL_LANES - lanes
        elif roll < 0.22:
            fault = dice.choice(list(EndFault))
            cluster.broker.faults.on_next_end(f"orders-assign-{dice.randrange(2)}", fault)
        elif roll < 0.24:
            cluster.broker.faults.lose_messages(
                dice.choice([cluster.names.data, cluster.names.index, cluster.names.tombstones])
            )
        elif roll < 0.27:
            number = dice.randrange(2)
            lanes = running[number].lease.lanes
            # The old process is left alone in the middle of whatever it did.
            running[number] = cluster.add_assigner(number, records=15)
            running[number].lease.lanes = lanes
        elif roll < 0.30:
            cluster.broker.deliver_late_ends()
            cluster.coordinator.commit()
        elif roll < 0.315:
            cluster.broker.deliver_late_ends()
            cluster.coordinator.rewind()
        elif roll < 0.33:
            cluster.leases.down = not cluster.leases.down
        else:
            dice.choice(running).loop.step()
        cluster.clock.advance(dice.random() * 0.1)
    cluster.leases.down = False
    cluster.broker.deliver_late_ends()
    running[0].lease.lanes, running[1].lease.lanes = ALL_LANES, frozenset()
    cluster.settle(*running, rounds=150)
    finish(cluster, *running)
