"""A file group that cannot be merged keeps no other one from compactions, and is tried again alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import OfferedService, ServiceHandoff, ServiceNews
from tidemark.commit_coordinator.domain.service_actions import TASK_TRIES_MAX, SeenServices
from tidemark.commit_coordinator.domain.slice_stats import FailedMerge
from tidemark.commit_coordinator.table_services.chosen_groups import FailedMerges
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation, encode_plan

KIND = ServiceKind.COMPACT_DATA
PLANNED = ServicePlanned(1, 7, KIND, "20260101000000000", "plan", "sha", 0)
MINUTE_MS = 60_000


def plan_of(*groups: tuple[str, str]) -> bytes:
    operations = (MergeOperation(path, file_id, "1", None, (), 0, 0) for path, file_id in groups)
    return encode_plan(CompactionPlan(PLANNED.instant, False, "", tuple(operations)))


def test_the_others_are_compacted_and_the_group_that_failed_is_tried_again_alone(tmp_path: Path) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    placement = story.served.placement

    def with_logs() -> set[tuple[str, str]]:
        return {stats.group for stats in placement.snapshot().data if stats.log_count}

    bad, *others = sorted(with_logs())
    assert others
    placement.merge_failed([bad], "a block is damaged", story.clock.now_ms())
    assert story.served.act(KIND)
    assert with_logs() == {bad}
    assert not story.served.act(KIND)
    for n in range(5):
        story.commit((n,))
    story.pass_by(601)
    story.served.list_files()
    assert with_logs() > {bad}
    assert story.served.act(KIND)
    assert bad not in with_logs()
    assert with_logs(), "it was alone"
    assert not placement.snapshot().failed
    assert story.served.act(KIND)
    assert not with_logs()
    story.check()


def test_an_operator_who_asks_has_it_tried_again_at_once_behind_all_others(tmp_path: Path) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    placement = story.served.placement
    groups = {stats.group for stats in placement.snapshot().data if stats.log_count}
    bad = min(groups)
    placement.merge_failed([bad], "a block is damaged", story.clock.now_ms())
    for left in ({bad}, set[tuple[str, str]]()):
        assert story.served.act(KIND, asked=True)
        assert {stats.group for stats in placement.snapshot().data if stats.log_count} == left
    story.check()


def test_what_another_engine_has_merged_is_not_left_out_any_more(tmp_path: Path) -> None:
    story = Story(tmp_path / "made").copy(tmp_path / "t")
    placement = story.served.placement
    placement.merge_failed([("p", "gone"), *(s.group for s in placement.snapshot().data)], "why", 0)
    story.served.list_files()
    kept = placement.snapshot().failed.keys()
    assert kept == {stats.group for stats in placement.snapshot().data if stats.log_count}
    assert kept


def test_pauses_double_up_to_six_hours() -> None:
    failed, minutes = None, []
    for _ in range(8):
        failed = FailedMerge.after(failed, "why", 0)
        minutes.append(failed.until_ms // MINUTE_MS)
    assert minutes == [10, 20, 40, 80, 160, 320, 360, 360]


@pytest.mark.parametrize("kind", [KIND, ServiceKind.COMPACT_INDEX])
def test_the_operations_that_a_worker_names_are_noted_as_groups_of_the_data(kind: ServiceKind) -> None:
    placement = Placement(1 << 20, SeededIds(1))
    merges = FailedMerges(placement, lambda _: plan_of(("p", "a"), ("p", "b"), ("q", "c")))
    planned = ServicePlanned(1, 7, kind, PLANNED.instant, "plan", "sha", 0)
    merges.note(planned, ServiceNews(7, "why", (1, 2, 99)), 5)
    noted = {group: failed.reason for group, failed in placement.snapshot().failed.items()}
    assert noted == ({("p", "b"): "why", ("q", "c"): "why"} if kind is KIND else {})


def test_a_plan_that_cannot_be_read_notes_nothing() -> None:
    placement = Placement(1 << 20, SeededIds(1))

    def gone(_: ServicePlanned) -> bytes:
        raise FileMissingError("plan")

    FailedMerges(placement, gone).note(PLANNED, ServiceNews(7, "why", (0,)), 5)
    assert not placement.snapshot().failed


def test_an_action_that_is_given_up_because_of_its_tasks_is_noted_once() -> None:
    handoff, noted = ServiceHandoff(ManualClock()), list[ServiceNews]()
    handler = SimpleNamespace(kind=KIND, has_tasks=True, sweeps_with_lock=False)
    context = SimpleNamespace(lock=SimpleNamespace(is_held=False))
    runner = ServiceRunner(cast(Any, context), [cast(Any, handler)], handoff, ServiceRules())
    runner.note_failed = lambda _, news, now_ms: noted.append(news)
    state = cast(Any, SimpleNamespace(services={KIND: OpenService(PLANNED)}))
    observed = cast(Any, SimpleNamespace(services=SeenServices()))
    for number in range(TASK_TRIES_MAX):
        assert not noted
        handoff.offer(OfferedService(PLANNED, "token", 0.25))
        assert handoff.fail(PLANNED.service, "worker", f"why {number}", (number,))
        runner.look(state, observed, 0)
    assert noted == [ServiceNews(PLANNED.service, "why 2", (2,))]
    assert observed.services.action(PLANNED.service).lost == "why 2"
