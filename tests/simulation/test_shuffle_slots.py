"""Shufflers under every fault that we know of: each input record ends up keyed or dead-lettered, once."""

from __future__ import annotations

import json
import os
import time

import pytest

from testing.kafka import EndFault
from testing.memory_storage import InMemoryStorage
from tests.simulation.shuffle_cluster import INPUT, PARTITIONS, ShuffleCluster
from tidemark.commit_coordinator.input.ends import input_ends
from tidemark.config import InputStart
from tidemark.epoch_protocol.entries import Skipped
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, StopReason
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.input.positions import (
    INPUT_EARLIEST_RECORD,
    INPUT_STARTS_RECORD,
    start_of,
)
from tidemark.index_assigner.shuffle.stage import ShuffleWork
from tidemark.index_assigner.slots.producer import SlotProducer
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.stream_runtime.kafka.errors import KafkaConfigError, KafkaError, MissingTopicError
from tidemark.stream_runtime.kafka.ledger_transaction import (
    LedgerTransaction,
    TransactionOutcome,
    TransactionResult,
)
from tidemark.stream_runtime.kafka.ports import TopicPartition

SEEDS = [int(os.environ["TIDEMARK_SEED"])] if "TIDEMARK_SEED" in os.environ else list(range(12))


def test_two_shufflers_share_the_lanes():
    cluster = ShuffleCluster(1)
    for slot in range(2):
        cluster.add_shuffler(slot)
    cluster.leases[0].lanes = frozenset(cluster.lanes[:2])
    cluster.leases[1].lanes = frozenset(cluster.lanes[2:])
    cluster.produce(300)
    cluster.settle(0, 1)
    cluster.check()
    assert all(loop.counters.claims == 1 and not loop.counters.not_counted for loop in cluster.loops)
    assert {e.slot for e in cluster.counted()} == {0, 1}
    assert set(cluster.leases[0].reported.lanes_held) == set(cluster.lanes[:2])
    assert cluster.leases[0].reported.stats["shuffled_records"] > 0


def test_transactions_keep_to_their_limit_and_interval():
    cluster = ShuffleCluster(2)
    cluster.add_shuffler(0)
    cluster.share(0)
    cluster.step(0, 5)
    cluster.produce(1)
    cluster.step(0, 3)
    assert len(cluster.counted()) == 1, "a lone record does not wait"
    started = cluster.clock.monotonic_s()
    while len(cluster.counted()) == 1:
        cluster.produce(1)
        cluster.clock.advance(0.01)
        cluster.step(0)
    assert 0.2 <= cluster.clock.monotonic_s() - started < 0.4, "a trickle goes at the interval"
    cluster.produce(400)
    cluster.settle(0)
    cluster.check()
    assert max(e.records for e in cluster.counted()) <= 50 + 1


@pytest.mark.parametrize(
    ("place", "method"),
    [(FoldReader, "poll"), (SlotProducer, "ready"), (LedgerTransaction, "run"), (ShuffleWork, "gather")],
    ids=lambda each: str(getattr(each, "__name__", each)),
)
@pytest.mark.parametrize("error", [KafkaConfigError("no ACL"), MissingTopicError("no topic")], ids=type)
def test_kafka_that_refuses_for_a_while_ends_no_shuffler_and_loses_no_record(
    monkeypatch: pytest.MonkeyPatch, place: type, method: str, error: KafkaError
) -> None:
    cluster = ShuffleCluster(5)
    cluster.add_shuffler(0)
    cluster.share(0)
    cluster.produce(60)
    cluster.settle(0)

    def refuse(*_: object) -> TransactionResult:
        if method == "run":
            return TransactionResult(TransactionOutcome.ABORTED, True, error=error)
        raise error

    with monkeypatch.context() as refusing:
        refusing.setattr(place, method, refuse)
        cluster.produce(40)
        cluster.step(0, 12)
        assert cluster.leases[0].reported.stats["kafka_refuses"] == 1.0
        assert cluster.loops[0].counters.doubts
    cluster.settle(0)
    cluster.clock.advance(10.0)
    cluster.step(0, 2)
    assert cluster.leases[0].reported.stats["kafka_refuses"] == 0.0
    cluster.check()


@pytest.mark.parametrize("place", [(SlotProducer, "ready"), (FoldReader, "poll")], ids=str)
def test_a_process_that_kafka_refuses_from_its_start_ends(
    monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    """It lacks a right: whoever starts it hears which."""
    cluster = ShuffleCluster(5)
    cluster.add_shuffler(0)
    cluster.share(0)

    def refuse(*_: object) -> None:
        raise KafkaConfigError("no ACL")

    monkeypatch.setattr(*place, refuse)
    with pytest.raises(KafkaConfigError):
        cluster.step(0, 10)


@pytest.mark.parametrize("has_lanes", [False, True])
def test_a_slot_without_lanes_or_beside_one_that_has_claimed_waits_for_kafka(
    monkeypatch: pytest.MonkeyPatch, has_lanes: bool
) -> None:
    """A refusal of seconds would end the other slots of its process with it."""
    cluster = ShuffleCluster(5)
    cluster.add_shuffler(0)
    cluster.share(0)
    cluster.settle(0)
    late = cluster.add_shuffler(1, cluster.claimed[0] if has_lanes else None)
    shares = [frozenset(cluster.lanes[:2]), frozenset(cluster.lanes[2:])]
    if has_lanes:
        cluster.leases[0].lanes, cluster.leases[late].lanes = shares

    def refuse(*_: object) -> None:
        raise KafkaConfigError("no ACL")

    with monkeypatch.context() as refusing:
        refusing.setattr(FoldReader, "poll", refuse)
        cluster.step(late, 12)
        assert cluster.leases[late].reported.stats["kafka_refuses"] == 1.0
    cluster.leases[0].lanes, cluster.leases[late].lanes = shares
    cluster.produce(60)
    cluster.settle(0, late)
    cluster.check()
    assert cluster.loops[late].counters.claims


def test_a_shuffler_that_does_not_know_that_it_lost_its_lanes_does_not_count():
    cluster = ShuffleCluster(3)
    first, second = cluster.add_shuffler(0), cluster.add_shuffler(1)
    cluster.leases[first].lanes = frozenset(cluster.lanes)
    cluster.produce(40)
    cluster.settle(first)
    cluster.leases[second].lanes = frozenset(cluster.lanes)
    cluster.settle(second)
    cluster.produce(40)
    cluster.settle(first, second)
    cluster.leases[first].lanes = frozenset()
    cluster.settle(first, second)
    cluster.check()


@pytest.mark.parametrize(
    "place",
    [
        AssignerFailpoint.SHUFFLE_CLAIM,
        AssignerFailpoint.SHUFFLE_BEGUN,
        AssignerFailpoint.SHUFFLE_BATCHES,
        AssignerFailpoint.SHUFFLE_ENTRY,
        AssignerFailpoint.SHUFFLE_COMMIT,
        AssignerFailpoint.SHUFFLE_COMMITTED,
    ],
)
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_shuffler_that_dies_anywhere_is_replaced_in_its_slot(place, nth):
    cluster = ShuffleCluster(4)
    first = cluster.add_shuffler(0)
    cluster.share(first)
    cluster.failpoints[first].arm(place, nth)
    died = False
    for _ in range(30):
        cluster.produce(10)
        try:
            cluster.settle(first) if not died else None
        except FailpointHitError:
            died = True
            break
        if place is AssignerFailpoint.SHUFFLE_CLAIM:
            # Claims come after doubt only.
            cluster.broker.faults.on_next_end("orders-shuffle-0", EndFault.LOST_ANSWER)
    assert died
    second = cluster.add_shuffler(0)
    cluster.share(second)
    cluster.produce(50)
    cluster.settle(second)
    cluster.check()


@pytest.mark.parametrize("fault", list(EndFault))
def test_every_fault_of_a_transaction_end(fault):
    cluster = ShuffleCluster(5)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    for _ in range(6):
        cluster.produce(30)
        cluster.broker.faults.on_next_end("orders-shuffle-0", fault)
        for _ in range(40):
            cluster.step(only)
            cluster.broker.deliver_late_ends()
            cluster.clock.advance(0.02)
    cluster.settle(only)
    cluster.check()


def test_lost_messages_and_acknowledgements_are_shuffled_again():
    cluster = ShuffleCluster(6)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    for topic in (cluster.names.keyed, cluster.names.ledger, cluster.names.dead_letter):
        cluster.produce(40)
        cluster.broker.faults.lose_messages(topic)
        cluster.settle(only)
        cluster.produce(40)
        cluster.broker.faults.lose_acknowledgements(topic)
        cluster.settle(only)
    cluster.check()
    assert cluster.loops[only].counters.doubts


def test_without_an_answer_of_the_coordinator_nobody_claims():
    cluster = ShuffleCluster(7)
    only = cluster.add_shuffler(0)
    cluster.leases[only].answers = False
    cluster.share(only)
    cluster.produce(20)
    cluster.settle(only)
    assert cluster.ledger() == []
    cluster.leases[only].answers = True
    cluster.settle(only)
    cluster.check()


def test_a_broker_that_is_away_for_a_while_costs_nothing():
    cluster = ShuffleCluster(8)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    cluster.produce(60)
    cluster.step(only, 6)
    cluster.broker.stop()
    cluster.step(only, 10)
    cluster.broker.start()
    cluster.settle(only)
    cluster.check()


def test_a_new_slot_starts_over_under_the_new_id():
    cluster = ShuffleCluster(9)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    cluster.produce(60)
    cluster.settle(only)
    cluster.leases[only].slot = 7
    cluster.produce(60)
    cluster.settle(only)
    cluster.check()
    assert [e.slot for e in cluster.counted()][-1] == 7


def test_latest_loses_nothing_that_came_after_the_ledger_began():
    storage = InMemoryStorage()
    cluster = ShuffleCluster(10, start=start_of(InputStart.LATEST, storage))
    cluster.produce(50)
    ends = input_ends(cluster.client.admin(), cluster.lanes)
    storage.create(INPUT_STARTS_RECORD, json.dumps(ends).encode())
    cluster.sent = []
    cluster.produce(40)
    only = cluster.add_shuffler(0)
    cluster.share(only)
    cluster.settle(only)
    assert sorted(cluster.keyed()) == sorted(cluster.sent)


def test_input_that_is_deleted_before_its_lane_ever_counted_stops_the_lane_of_every_owner():
    storage = InMemoryStorage()
    cluster = ShuffleCluster(12, start=start_of(InputStart.EARLIEST, storage))
    storage.create(INPUT_EARLIEST_RECORD, json.dumps(dict.fromkeys(cluster.lanes, 0)).encode())
    cluster.produce(80)
    *kept, lost = cluster.lanes
    cluster.client.admin().delete_records({TopicPartition(INPUT, PARTITIONS - 1): 2})
    for slot in range(2):
        owner = cluster.add_shuffler(slot)
        cluster.share(owner)
        cluster.settle(owner)
        (stopped,) = cluster.leases[owner].reported.stopped
        assert (stopped.lane, stopped.offset, stopped.reason) == (lost, 0, StopReason.DELETED)
        cluster.leases[owner].lanes = frozenset()
        cluster.settle(owner)
    ends = input_ends(cluster.client.admin(), cluster.lanes)
    done = {part.lane: part.next for entry in cluster.counted() for part in entry.consumed}
    assert done == {lane: ends[lane] for lane in kept}


def test_deleted_unread_input_stops_its_lanes_until_they_are_skipped():
    cluster = ShuffleCluster(11)
    first = cluster.add_shuffler(0)
    cluster.share(first)
    cluster.produce(80)
    cluster.settle(first)
    read = {part.lane: part.next for entry in cluster.counted() for part in entry.consumed}
    cluster.leases[first].lanes = frozenset()
    cluster.settle(first)
    cluster.produce(80)
    *kept, lost = cluster.lanes
    start = read[lost] + 2
    cluster.client.admin().delete_records({TopicPartition(INPUT, PARTITIONS - 1): start})
    second = cluster.add_shuffler(1)
    cluster.share(second)
    cluster.settle(second)
    ends = input_ends(cluster.client.admin(), cluster.lanes)
    done = {part.lane: part.next for entry in cluster.counted() for part in entry.consumed}
    assert done == {**{lane: ends[lane] for lane in kept}, lost: read[lost]}
    (stopped,) = cluster.leases[second].reported.stopped
    assert (stopped.lane, stopped.offset, stopped.reason) == (lost, read[lost], StopReason.DELETED)
    cluster.leases[second].skips = (SkipOrder("asked", lost, read[lost]),)
    deadline_s = time.monotonic() + 60.0
    while time.monotonic() < deadline_s and cluster.leases[second].reported.stopped:
        cluster.step(second)
        cluster.clock.advance(0.05)
        time.sleep(0.01)
    cluster.settle(second)
    assert [each for entry in cluster.counted() for each in entry.skipped] == [
        Skipped(lost, read[lost], start - 1)
    ]
    done = {part.lane: part.next for entry in cluster.counted() for part in entry.consumed}
    assert done == ends
    assert not cluster.leases[second].reported.stopped


@pytest.mark.parametrize("seed", SEEDS)
def test_any_mix_of_faults(seed):
    cluster = ShuffleCluster(seed)
    random = cluster.random
    alive = [cluster.add_shuffler(slot) for slot in range(3)]
    cluster.broker.faults.marker_delay_max_s = 0.05
    for _ in range(60):
        dice = random.random()
        if dice < 0.2:
            cluster.share(*random.sample(alive, random.randint(1, 3)))
        elif dice < 0.35:
            fault = random.choice(list(EndFault))
            cluster.broker.faults.on_next_end(f"orders-shuffle-{random.randrange(3)}", fault)
        elif dice < 0.45:
            cluster.broker.deliver_late_ends()
        elif dice < 0.5:
            cluster.broker.faults.lose_acknowledgements(cluster.names.keyed)
        elif dice < 0.55:
            at = random.randrange(3)
            alive[at] = cluster.add_shuffler(at)
        elif dice < 0.6:
            cluster.leases[random.choice(alive)].answers = random.random() < 0.5
        cluster.produce(random.randint(0, 25))
        for _ in range(random.randint(1, 12)):
            cluster.step(random.choice(alive))
            cluster.clock.advance(random.uniform(0.0, 0.05))
    for number in alive:
        cluster.leases[number].answers = True
    cluster.share(*alive)
    cluster.clock.advance(15.0)
    cluster.settle(*alive)
    cluster.check()
