"""Fencing: a slot that nobody holds any more keeps no transaction open."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from testing.terms import begin_term
from tests.unit.ledger_client.memory_cluster import MemoryCluster
from tidemark.commit_coordinator.calls.members import Members, transactional_id
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.state import FoldState, LaneState
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.stream_runtime.kafka.ports import (
    FencedError,
    Isolation,
    TopicPartition,
    TopicSpec,
    TransactionalProducer,
)

LEASE_MS = 3_000
OUT = TopicPartition("out", 0)


@pytest.fixture
def cluster() -> MemoryCluster:
    made = MemoryCluster()
    made.admin.create_topics([TopicSpec("out", 1)])
    return made


@pytest.fixture
def members(cluster: MemoryCluster) -> Iterator[Members]:
    made = Members(
        "t", cluster.client, cluster.clock, LEASE_MS, {Stage.SHUFFLE: ["in:0"], Stage.ASSIGN: ["0", "1"]}
    )
    yield made
    made.stop()


def open_transaction(cluster: MemoryCluster, stage: Stage, slot: int) -> TransactionalProducer:
    producer = cluster.client.producer(transactional_id("t", stage, slot))
    producer.init()
    producer.begin()
    producer.produce(OUT, b"x")
    producer.flush()
    return producer


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "not within 60 s"
        time.sleep(0.01)


def former(shuffle: int, *assign: int) -> FoldState:
    return FoldState(
        shuffle_lanes={"in:0": LaneState(next=5, slot=shuffle)},
        assign_lanes={str(lane): LaneState(next=5, slot=slot) for lane, slot in enumerate(assign)},
    )


def test_slots_of_a_former_term_that_nobody_takes_again_are_fenced(
    cluster: MemoryCluster, members: Members, tmp_path: Path
) -> None:
    dead = [open_transaction(cluster, Stage.SHUFFLE, 4), open_transaction(cluster, Stage.ASSIGN, 2)]
    alive = open_transaction(cluster, Stage.ASSIGN, 0)
    members.took_over(former(4, 0, 2), begin_term(LocalStorage(tmp_path)))
    members.start()
    assert members.join(Stage.ASSIGN, "alive", "at", preferred_slot=0).slot == 0
    time.sleep(0.5)
    assert cluster.admin.end_offset(OUT, Isolation.READ_UNCOMMITTED) == 3, (
        "nobody is fenced before one lease has passed"
    )
    cluster.clock.advance((LEASE_MS - 1) / 1000)
    members.renew(Stage.ASSIGN, "alive", [], 0, {})
    cluster.clock.advance(0.002)
    for producer in dead:
        until(partial(is_fenced, producer))
    alive.commit()
    # Once fenced, they are given out again.
    until(lambda: members.join(Stage.ASSIGN, "new", "at", preferred_slot=2).slot == 2)


def is_fenced(producer: TransactionalProducer) -> bool:
    try:
        producer.produce(OUT, b"y")
        producer.flush()
    except FencedError:
        return True
    return False
