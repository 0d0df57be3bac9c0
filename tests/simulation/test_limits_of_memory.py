"""Uncommitted index entries are limited by their memory. Who takes over more than may be held rests, and all
of it is committed when the writer is back.
"""

from __future__ import annotations

import pytest

from tests.simulation.assign_cluster import ALL_LANES, AssignCluster
from tests.simulation.test_assign_slots import alone, finish
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script
from tests.unit.index_assigner.assign_rig import Event

_FED = "".join(f"feed up k{n} d{n % 3} {n}\n" for n in range(90))
_WITHOUT_WRITER = 12 * (
    "wait 1000\nstep coordinator\nstep shuffler-0\nstep assigner-0\nstep shuffler-0\nstep assigner-1\n"
)
# One assigner dies; the other one gets all lanes, and with them more than its memory may hold.
_TAKEOVER = "kill assigner-0\n" + 12 * "wait 1000\nstep coordinator\nstep assigner-1\nstep shuffler-0\n"
_BACK = 30 * "wait 1000\nround\n"


@pytest.mark.parametrize("partitioning", ["any", "shard"])
@pytest.mark.parametrize("cache_bytes", [1, 12_000])
def test_a_single_assigner_takes_over_more_than_it_may_hold_and_all_is_committed(
    cache_bytes: int, partitioning: str
) -> None:
    setup = f"setup inputs=2 lanes=2 assigners=2 records=5 interval_ms=0 cache_bytes={cache_bytes}"
    outcome = run_script(
        parse(f"{setup} partitioning={partitioning}\n{_FED}{_WITHOUT_WRITER}{_TAKEOVER}{_BACK}")
    )
    assert outcome.violations == ()
    assert outcome.reached["takeover of a lane with uncommitted rows"] >= 1


def test_tagging_rests_at_the_limit_of_uncommitted_memory():
    cluster, only = alone(seed=13, records=10, memory=12_000)
    for _ in range(20):
        cluster.feed([Event(f"n{len(cluster.sent) + i}", at=1) for i in range(10)])
    cluster.settle(only)
    assert 6_000 <= only.work.uncommitted_memory() <= 12_000
    assert only.lease.reported.uncommitted_memory == only.work.uncommitted_memory()
    while cluster.coordinator.commit():
        cluster.settle(only, rounds=20)
    finish(cluster, only)


def test_who_takes_over_more_than_its_memory_may_hold_rests_until_the_next_epoch_is_committed():
    cluster = AssignCluster(21)
    first, second = (cluster.add_assigner(slot, records=10, memory=6_000) for slot in range(2))
    first.lease.lanes, second.lease.lanes = frozenset({"0"}), frozenset({"1"})
    for _ in range(20):
        cluster.feed([Event(f"n{len(cluster.sent) + i}", at=1) for i in range(10)])
    cluster.settle(first, second)
    held = first.work.uncommitted_memory() + second.work.uncommitted_memory()
    first.lease.lanes, second.lease.lanes = frozenset(), ALL_LANES
    cluster.settle(second)
    assert second.work.uncommitted_memory() == held > 6_000
    tagged = second.work.counts.input
    cluster.settle(second)
    assert second.work.counts.input == tagged
    while cluster.coordinator.commit():
        cluster.settle(second, rounds=20)
    assert second.work.counts.input > tagged
    finish(cluster, first, second)


def test_memory_for_no_entry_at_all_lets_one_transaction_pass_for_each_epoch():
    cluster, only = alone(seed=22, records=10, memory=0)
    cluster.feed([Event(f"n{i}", at=1) for i in range(4)])
    cluster.settle(only)
    while cluster.coordinator.commit():
        cluster.settle(only, rounds=20)
    finish(cluster, only)
