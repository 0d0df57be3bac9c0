"""What operators see of file groups that cannot be merged, and of dead writes that cannot be undone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.unit.commit_coordinator.table_services.test_shown_services import NOW_MS, World
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.domain.slice_stats import FailedMerge, SliceStats, TableSlices
from tidemark.commit_coordinator.table_services.kinds import service_runner
from tidemark.commit_coordinator.table_services.rollbacks import RollBackDead
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.timeline import Action


def test_groups_that_could_not_be_merged_are_named_each_with_its_reason_and_are_not_behind() -> None:
    world = World()
    slices = tuple(SliceStats("p", f"f{n}", 9, 80 + n, 9, NOW_MS) for n in range(2))
    failed = {("p", "f1"): FailedMerge(1, NOW_MS - 1_000, "a.log: a block is damaged")}
    world.slices = TableSlices(slices, failed=failed)
    (behind,) = world.now().behind
    assert behind.startswith("file group p f0 has 80 log files")
    (text,) = world.of(ServiceKind.COMPACT_DATA).held_back
    assert text == (
        "1 file group is left out, because it could not be merged: "
        "p/f1 (a.log: a block is damaged; next try in 599 s)"
    )
    reached = "the file group that needs it most has reached 200% of what triggers it"
    assert world.of(ServiceKind.COMPACT_DATA).not_due == reached


def test_of_many_groups_that_could_not_be_merged_three_are_named() -> None:
    world = World()
    slices = tuple(SliceStats("p", f"f{n}", 9, 80 + n, 9, NOW_MS) for n in range(5))
    failed = {("p", f"f{n}"): FailedMerge(5 - n, NOW_MS - 610_000, f"why {n}") for n in range(5)}
    world.slices = TableSlices(slices, failed=failed)
    shown = world.of(ServiceKind.COMPACT_DATA)
    (text,) = shown.held_back
    assert text == (
        "5 file groups are left out, because they could not be merged: p/f4 (why 4; next try in 0 s), "
        "p/f3 (why 3; next try in 590 s), p/f2 (why 2; next try in 1790 s), and 2 more"
    )
    assert shown.not_due == "all file groups with log files are left out"


def test_dead_writes_that_cannot_be_undone_are_named_beside_what_holds_the_kind_back() -> None:
    world = World()
    world.shown._left_out = {ServiceKind.ROLLBACK: lambda now_ms: [f"the dead write T at {now_ms}"]}
    assert world.of(ServiceKind.ROLLBACK).held_back == [f"the dead write T at {NOW_MS}"]
    assert world.of(ServiceKind.ARCHIVE).held_back == []


def test_a_coordinator_shows_what_its_own_rollbacks_leave_out() -> None:
    config = SimpleNamespace(table_services=TableServicesConfig(), epoch=SimpleNamespace(interval_ms=1_000))
    context = SimpleNamespace(table=SimpleNamespace(action=Action.COMMIT), index_build_ms=0)
    handoff, placement = ServiceHandoff(ManualClock()), Placement(1 << 20, SeededIds(1))
    runner = service_runner(cast(Any, config), cast(Any, context), handoff, placement)
    shown: Any = runner.show
    handler = runner.handlers[ServiceKind.ROLLBACK]
    assert isinstance(handler, RollBackDead)
    assert shown.__self__._left_out == {ServiceKind.ROLLBACK: handler.left_out}
