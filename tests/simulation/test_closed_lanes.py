"""Lanes that the index closed, because it could not bring them to a newer snapshot, are opened again:
whatever needed that, and whether or not input comes.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from tests.simulation.assign_cluster import ALL_LANES, AssignCluster, Assigner
from tests.simulation.test_assign_slots import alone, finish
from tests.unit.index_assigner.assign_rig import LANES, Event
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.index_assigner.assign.lane_opening import LaneOpener
from tidemark.index_assigner.assign.lookups import AnsweredKeys, LookupBusyError
from tidemark.index_assigner.assign.warming import WarmBusyError
from tidemark.index_assigner.index.errors import SnapshotBehindError
from tidemark.index_assigner.index.ports import Tier, WarmProgress

KEYS = pa.array([f"k{number}" for number in range(20)])


def closing_once(only: Assigner, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """From now on the first look-up closes its lane and fails, as where index files vanished and the table
    cannot be listed. Returns the lanes for which that happened.
    """
    closed: list[int] = []
    lookup = only.index.lookup

    def fails_once(lane: int, *asked: Any) -> Any:
        if not closed:
            closed.append(lane)
            only.index.close_lane(lane)
            raise TimelineConflictError("the timeline changed during each listing")
        return lookup(lane, *asked)

    monkeypatch.setattr(only.index, "lookup", fails_once)
    return closed


def answered(ask: Callable[[], Any], go_on: Callable[[], None]) -> Future[Any]:
    """What another thread gets that asks, while this one goes on."""
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask)
        while not asked.done():
            go_on()
    return asked


def look(only: Assigner, go_on: Callable[[], None]) -> AnsweredKeys:
    found = answered(lambda: only.queue.ask(KEYS), go_on).result()
    assert isinstance(found, AnsweredKeys)
    return found


def fed(seed: int) -> tuple[AssignCluster, Assigner]:
    """An assigner that has tagged all its input, of which an epoch has a part."""
    cluster, only = alone(seed)
    cluster.feed([Event(key, "d1", 1) for key in KEYS.to_pylist()])
    cluster.settle(only)
    cluster.coordinator.commit()
    cluster.settle(only, rounds=3)
    return cluster, only


def test_a_transaction_of_a_lane_that_a_look_up_closed_meanwhile_counts(monkeypatch) -> None:
    """Its entry is read when the index does not have its lane. Input for the lane comes meanwhile."""
    cluster, only = fed(20)
    cluster.feed([Event(key, "d2", 2) for key in KEYS.to_pylist()])
    before = only.loop.counters.transactions
    while only.loop.counters.transactions == before:
        only.loop.step()
    closed = closing_once(only, monkeypatch)
    with pytest.raises(TimelineConflictError):
        look(only, lambda: only.work.observe([]))
    cluster.feed(cluster.random_events(30))
    assert only.index.open_lanes() == set(range(LANES)) - set(closed)
    finish(cluster, only)
    assert only.index.open_lanes() == set(range(LANES))
    assert (only.loop.counters.claims, only.loop.counters.not_counted) == (1, 0)


@pytest.mark.parametrize("paused", [False, True])
def test_a_lane_without_input_is_opened_again_and_answers(monkeypatch, paused: bool) -> None:
    """Also while an operator has paused tagging."""
    _, only = fed(21)
    only.lease.paused = paused
    closed = closing_once(only, monkeypatch)
    with pytest.raises(TimelineConflictError):
        look(only, only.loop.step)
    found = look(only, only.loop.step)
    assert len(closed) == 1
    assert set(found.tier.tolist()) == {Tier.ROCKSDB}
    assert only.index.open_lanes() == set(range(LANES))
    assert only.loop.counters.claims == 1


def test_while_a_lane_cannot_be_opened_again_who_asks_is_told_to_try_again(monkeypatch) -> None:
    """`index warm`, too: the other lanes alone are not the whole index."""
    cluster, only = fed(22)
    closed = closing_once(only, monkeypatch)

    def fail(*_: object) -> None:
        # However often the loop goes round until the thread that asks has its answer.
        only.work._failures = 0
        raise SnapshotBehindError("not yet")

    with monkeypatch.context() as behind:
        behind.setattr(LaneOpener, "open", fail)
        with pytest.raises(TimelineConflictError):
            look(only, only.loop.step)
        with pytest.raises(LookupBusyError, match=f"lane {closed[0]} is being opened again"):
            look(only, only.loop.step)
        with pytest.raises(WarmBusyError, match=f"lanes {closed[0]} are being opened"):
            answered(lambda: only.work._parts.warming.ask(False), only.loop.step).result()
    cluster.clock.advance(1.0)
    assert set(look(only, only.loop.step).tier.tolist()) == {Tier.ROCKSDB}
    warmed = answered(lambda: only.work._parts.warming.ask(False), only.loop.step).result()
    assert isinstance(warmed, WarmProgress)
    assert warmed.shards == LANES


def test_a_lane_that_cannot_be_opened_while_tagging_is_paused_does_not_end_the_stage(monkeypatch) -> None:
    """What it waits for may come only after the pause. It is tried once a second, and not counted."""
    cluster, only = fed(25)
    only.lease.paused = True
    closing_once(only, monkeypatch)
    tries: list[float] = []

    def fail(*_: object) -> None:
        tries.append(cluster.clock.monotonic_s())
        raise SnapshotBehindError("not yet")

    with monkeypatch.context() as away:
        away.setattr(LaneOpener, "open", fail)
        with pytest.raises(TimelineConflictError):
            look(only, only.loop.step)
        for _ in range(600):
            only.loop.step()
            cluster.clock.advance(0.5)
    assert len(tries) > 200, "so many failures end a stage whose input is gathered"
    assert all(later - earlier >= 1.0 for earlier, later in pairwise(tries))
    cluster.clock.advance(1.0)
    assert set(look(only, only.loop.step).tier.tolist()) == {Tier.ROCKSDB}


def test_a_lane_that_is_closed_while_its_input_is_tagged_is_opened_again_alone(monkeypatch) -> None:
    cluster, only = fed(23)
    opened: list[int] = []
    open_lane = only.index.open_lane

    def noted(lane: int, *parts: Any) -> None:
        opened.append(lane)
        open_lane(lane, *parts)

    monkeypatch.setattr(only.index, "open_lane", noted)
    closed = closing_once(only, monkeypatch)
    cluster.feed([Event(key, "d2", 2) for key in KEYS.to_pylist()])
    finish(cluster, only)
    assert opened == closed
    assert only.loop.counters.claims == 1


def test_a_lane_that_was_closed_and_goes_to_another_assigner_is_not_opened_again(monkeypatch) -> None:
    cluster, only = fed(24)
    other = cluster.add_assigner(1)
    closed = closing_once(only, monkeypatch)
    with pytest.raises(TimelineConflictError):
        look(only, lambda: only.work.observe([]))
    lost = frozenset({str(closed[0])})
    only.lease.lanes, other.lease.lanes = ALL_LANES - lost, lost
    cluster.feed(cluster.random_events(30))
    cluster.settle(only, other)
    assert only.index.open_lanes() == set(range(LANES)) - set(closed)
    assert other.index.open_lanes() == set(closed)
    finish(cluster, only, other)
