"""The kill campaign's schedules: nothing left out, nothing broken twice at once, repeatable by their seed."""

from __future__ import annotations

from itertools import islice
from random import Random

import pytest

from tests.chaos.cluster import MERGER, WRITER
from tests.chaos.cuts import CUTS
from tests.chaos.disks import SIZES_MIB
from tests.chaos.faults import FAULTS
from tests.chaos.schedule import (
    DRAWN,
    NEED_ANOTHER_FAULT,
    OF_A_COMPACTION,
    Order,
    catalogue,
    endless,
    more,
    must,
    once,
)
from tidemark.commit_coordinator.failpoints import SERVICE_FAILPOINTS, CoordinatorFailpoint
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.stream_writer.failpoints import WriterFailpoint

ROLES = ("coordinator", "assigner", "writer")


def shortened_by(seed: int) -> list[Order]:
    """What the short campaign of the seed does."""
    random = Random(seed)
    return [order for step in [*must(random), *more(random, SIZES_MIB)] for order in step]


def places(orders: list[Order], *faults: str) -> set[str]:
    """The failpoints that the faults are done at."""
    named = [each.target.rpartition(":")[2] for each in orders if each.fault in faults]
    return {place for text in named for place in text.split(",")}


def test_every_failpoint_of_every_service_is_died_and_frozen_at():
    orders = catalogue(1, SIZES_MIB)
    driver = {point for point in WriterFailpoint if point.startswith("writer_")}
    every = {*CoordinatorFailpoint, *AssignerFailpoint, *driver} - SERVICE_FAILPOINTS
    assert places(orders, "exit-at") == every
    assert places(orders, "freeze-at", "freeze-coordinator-at") == every
    assert {each.fault for each in orders} == FAULTS.keys() - {"dead-write"}, "nobody rolls it back"
    assert {each.fault for each in catalogue(1, SIZES_MIB, services=True)} == FAULTS.keys()
    shortened = shortened_by(1)
    assert places(shortened, "exit-at") > every
    assert {each.fault for each in shortened} == FAULTS.keys(), "the short campaign has one of each"


def test_each_short_campaign_dies_at_other_steps_of_table_services():
    merges = {point for point in WriterFailpoint if point.startswith("merges_")}
    drawn: set[str] = set()
    for seed in range(60):
        steps = must(Random(seed))
        died = [places([order], "exit-at") for step in steps for order in step]
        of_services = [points & SERVICE_FAILPOINTS for points in died if points & SERVICE_FAILPOINTS]
        of_merges = [points & merges for points in died if points & merges]
        assert [len(points) for points in (*of_services, *of_merges)] == [DRAWN, 1]
        drawn = drawn.union(*of_services, *of_merges)
    assert drawn == {*OF_A_COMPACTION, *merges}
    assert shortened_by(1) != shortened_by(2)


def test_with_services_no_coordinator_has_a_clock_that_is_early():
    campaigns = [catalogue(1, SIZES_MIB, services=True), *(shortened_by(seed) for seed in range(20))]
    skews = {order.target for orders in campaigns for order in orders if order.fault == "skew-clock"}
    assert {target for target in skews if target.startswith("coordinator:")} == {
        "coordinator:-3600000",
        "coordinator:-3600000@8",
    }
    assert "assigner-1:3600000" in skews


def test_with_services_their_failpoints_are_died_and_frozen_at_as_well():
    without, orders = catalogue(1, SIZES_MIB), catalogue(1, SIZES_MIB, services=True)
    added = [order for order in orders if order not in without]
    merges = {point for point in WriterFailpoint if point.startswith("merges_")}
    alone = SERVICE_FAILPOINTS - NEED_ANOTHER_FAULT
    assert CoordinatorFailpoint.BEFORE_SERVICE_VOIDED in alone
    assert places(added, "exit-at") == alone | merges
    assert places(added, "freeze-coordinator-at") == alone


def test_merges_are_broken_where_they_run():
    beside, apart = (catalogue(1, SIZES_MIB, services=True, separate=separate) for separate in (False, True))
    merges = {point for point in WriterFailpoint if point.startswith("merges_")}
    assert not [order for order in beside if order.part == MERGER]
    of_merger = [order for order in apart if order.part == MERGER]
    assert places(of_merger, "exit-at") == places(of_merger, "freeze-at") == merges
    assert {order.fault for order in of_merger} == {"kill", "freeze", "exit-at", "freeze-at", "cut"}
    # Nothing is merged in the writer then: a wait for its failpoint would end the round.
    of_writer = [order for order in apart if order.part == WRITER]
    assert not places(of_writer, "exit-at", "freeze-at") & merges
    assert set(apart) - set(of_merger) == {
        order for order in beside if order.part != WRITER or order.point not in merges
    }


@pytest.mark.parametrize(("nodes", "no_spark"), [(1, False), (1, True), (3, False)])
def test_schedule_comes_from_its_seed_and_breaks_no_part_twice_at_once(nodes: int, no_spark: bool):
    orders = catalogue(nodes, SIZES_MIB, no_spark)
    steps = list(islice(endless(Random(5), orders), 200))
    assert steps == list(islice(endless(Random(5), orders), 200))
    assert steps != list(islice(endless(Random(6), orders), 200))
    for step in [*steps, *must(Random(5)), *more(Random(5), SIZES_MIB), *once(Random(5), orders)]:
        assert len({order.part for order in step}) == len(step)
    assert {order for step in steps for order in step} == set(orders)


def test_one_of_each_kind_is_every_fault_on_every_role_and_every_failpoint_to_die_at():
    orders = catalogue(1, SIZES_MIB)
    steps = list(once(Random(5), orders))
    assert steps == list(once(Random(5), orders))
    found = [order for step in steps for order in step]
    assert len({order.kind for order in found}) == len(found)
    assert {order.kind for order in found} == {order.kind for order in orders}
    assert places(found, "exit-at") == places(orders, "exit-at")
    roles = {(order.fault, order.target.partition(":")[0].partition("-")[0]) for order in found}
    assert {(fault, role) for fault in ("kill", "freeze", "exit-at") for role in ROLES} <= roles
    cuts = {order.target.partition(">")[2] for order in found if order.fault == "cut"}
    assert cuts == {f"{other}:{how}" for other in ("kafka", "coordinator") for how in CUTS}


def test_what_needs_a_small_disk_or_one_broker_is_left_out_without():
    assert not [each for each in catalogue(1, ()) if each.fault == "full-disk"]
    three = catalogue(3, SIZES_MIB)
    assert not [each for each in three if ">kafka" in each.target]
    assert [each.target for each in three if each.fault == "restart-kafka"] == ["1", "2", "3"]


def test_each_order_knows_its_failpoint():
    orders = catalogue(1, SIZES_MIB, services=True)
    voided = [str(order) for order in orders if "service_voided" in order.point]
    assert sorted(voided) == [
        "exit-at coordinator:after_service_voided",
        "exit-at coordinator:before_service_voided",
        "freeze-coordinator-at after_service_voided",
        "freeze-coordinator-at before_service_voided",
    ]
    assert {order.point for order in orders if order.fault == "kill"} == {""}
