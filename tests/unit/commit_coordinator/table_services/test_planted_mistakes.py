"""Mistakes that a plausible table service makes, planted into ours: readers by Hudi's rules see each of them.

Base files before the requested file (1), a dead executor's file beside ours (2), a fresh instant for an old
plan (3), an instant below the timeline's start (4), cleaning to the newest slice (5).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from tests.hudi_rules.table import HudiTable
from tests.service_actions import EVERYTHING_NOW, DiedError
from tests.unit.commit_coordinator.table_services.story import Story
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.table_services import cleans, compactions, rules, steps
from tidemark.config.table_services_model import ArchiveConfig
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.table_services.clean_planning import CleanBounds
from tidemark.hudi_format.table_services.operations import CompactionPlan, decode_plan, encode_plan
from tidemark.hudi_format.timeline import DATA_ROOT

COMPACT_DATA, COMPACT_INDEX = ServiceKind.COMPACT_DATA, ServiceKind.COMPACT_INDEX


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return Story(tmp_path_factory.mktemp("made") / "t")


@pytest.fixture
def story(made: Story, tmp_path: Path) -> Story:
    return made.copy(tmp_path / "t")


def test_1_base_files_before_the_requested_file_hide_later_commits(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    def late(step: Any, *_: Any) -> Any:
        (action,) = story.served.state.services.values()
        assert action.decided is not None
        decided = steps.decided_action(step.context, action.planned, action.decided)
        step.context.publishing.publish(list(decided.tickets.values()), step.lease())
        raise DiedError("before the requested file")

    monkeypatch.setattr(compactions, "begin_instant", late)
    with pytest.raises(DiedError):
        story.served.act(COMPACT_DATA)
    story.pass_by(1.0)
    story.commit((1, 2, 60))
    with pytest.raises(AssertionError):
        story.check_readers()


def test_2_a_dead_executors_file_beside_ours_makes_the_index_unreadable(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compactions, "_delete_other_outputs", lambda *_: None)
    served = story.served
    served.dies_at("after_service_inflight")
    with pytest.raises(DiedError):
        served.act(COMPACT_INDEX)
    path = next(path for path in served.decided(COMPACT_INDEX).tickets if "/files/" in path)
    story.storage.create(path.replace("_0-0-0_", "_9-9-9_"), b"cut off")
    served.begin_without_listing()
    served.finish(COMPACT_INDEX)
    with pytest.raises(Exception, match=r"files-0000-0"):
        story.check_readers()


def test_3_a_fresh_instant_for_an_old_plan_loses_what_was_committed_in_between(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    handler: Any = story.served.handlers[COMPACT_DATA]
    with_step = handler.plan
    old: list[CompactionPlan] = []

    def plan(step: Any, instant: str) -> bytes | None:
        if not old:
            old.append(decode_plan(with_step(step, instant), "plan"))
            return None
        return encode_plan(CompactionPlan(instant, False, old[0].schema, old[0].operations))

    monkeypatch.setattr(handler, "plan", plan)
    monkeypatch.setattr(handler, "recheck", lambda _step, _planned, document: document)
    assert not story.served.act(COMPACT_DATA)
    story.pass_by(1.0)
    story.commit((1, 2, 3))
    assert story.served.act(COMPACT_DATA)
    with pytest.raises(AssertionError):
        story.check_readers()


def test_4_an_instant_below_the_timelines_start_hides_what_was_archived(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    served = story.served
    served.config = replace(EVERYTHING_NOW, archive=ArchiveConfig(min=2, max=3, batch=1))
    served.begin()
    assert served.act(COMPACT_DATA)
    story.commit((1, 2))
    served.list_files()
    assert served.plan(COMPACT_DATA)
    report = served.work(COMPACT_DATA)
    held = served.state.services.pop(COMPACT_DATA)
    story.pass_by(1.0)
    for number in range(6):
        story.commit((number, 70 + number))
    assert served.act(COMPACT_INDEX)
    assert served.act(ServiceKind.ARCHIVE)
    served.state.services[COMPACT_DATA] = held
    refused = rules.out_of_timeline(load_timelines(story.storage), held.planned, DATA_ROOT)
    assert "timeline begins at" in str(refused)
    monkeypatch.setattr(steps, "out_of_timeline", lambda *_: None)
    monkeypatch.setattr(served.handlers[COMPACT_DATA], "recheck", lambda _step, _planned, plan: plan)
    assert served.decide(COMPACT_DATA, report), served.dropped
    with pytest.raises((AssertionError, TimelineConflictError)):
        story.check_readers()


def test_5_the_newest_slice_alone_leaves_nothing_to_who_listed_before(
    story: Story, monkeypatch: pytest.MonkeyPatch
):
    def names(folder: str) -> list[str]:
        return [info.name for info in story.storage.list(folder) if not info.is_dir]

    listed = HudiTable(names, story.storage.read, story.listed_folders()).read_slices()
    assert story.served.act(COMPACT_DATA)
    story.pass_by(1.0)
    served = story.served
    hour = replace(EVERYTHING_NOW, clean=replace(EVERYTHING_NOW.clean, retain_ms=3_600_000))
    served.config = hour
    served.begin()
    assert not served.act(ServiceKind.CLEAN_DATA), "a reader who listed a second ago keeps its files"
    bounds = CleanBounds(horizon="99991231235959999")
    monkeypatch.setattr(cleans._Clean, "_bounds", lambda *_: bounds)
    assert served.act(ServiceKind.CLEAN_DATA)
    opened = {f"{group[0]}/{base}" for group, (base, _) in listed.items()}
    assert not any(story.storage.exists(path) for path in opened)


def test_a_bounded_plan_names_the_partitions_that_it_leaves(story: Story):
    one = replace(EVERYTHING_NOW.compact_data, max_groups=1)
    story.served.config = replace(EVERYTHING_NOW, compact_data=one)
    story.served.begin()
    assert story.served.plan(COMPACT_DATA)
    planned = story.served.state.services[COMPACT_DATA].planned
    plan = decode_plan(story.storage.read(planned.plan_path), planned.plan_path)
    taken = {each.partition for each in plan.operations}
    assert set(plan.missing_partitions) == {"eu", "us"} - taken, "Hudi's planner looks nowhere else"


def test_a_plan_names_the_partitions_that_another_engine_wrote_to_since_the_last_look(story: Story):
    """The stats do not show its log files yet."""
    assert story.served.act(COMPACT_DATA)
    story.pass_by(1.0)
    story.served.list_files()
    rows = story.changed((1, 4))
    for region in ("eu", "us"):
        story.writer.commit(rows.filter(pc.equal(rows["region"], region)))
        story.pass_by(1.0)
        if region == "eu":
            story.served.list_files()
    assert story.served.plan(COMPACT_DATA)
    planned = story.served.state.services[COMPACT_DATA].planned
    plan = decode_plan(story.storage.read(planned.plan_path), planned.plan_path)
    assert {each.partition for each in plan.operations} == {"eu"}
    assert set(plan.missing_partitions) == {"us"}
