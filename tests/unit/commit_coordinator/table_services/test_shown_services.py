"""What operators are shown of table services, from what the loop has seen; the runner is a double."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.service_handoff import ServiceProgress
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.domain.backpressure import Backpressure, BackpressureLevel
from tidemark.commit_coordinator.domain.service_actions import SeenServices
from tidemark.commit_coordinator.domain.slice_stats import SliceStats, TableSlices
from tidemark.commit_coordinator.table_services.runner import EndedAction, ServiceRules, ServiceRunner
from tidemark.commit_coordinator.table_services.shown import PlanStats, ShownServices, plan_stats
from tidemark.config.table_services_model import ArchiveConfig, TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.model import instant_from_ms
from tidemark.hudi_format.table_services.operations import (
    CleanPlan,
    CompactionPlan,
    MergeOperation,
    encode_plan,
)
from tidemark.hudi_format.timeline import Action, Instant, State, Timeline
from tidemark.table_status.services import OwnServices, ServiceKindState

NOW_MS = 1_764_000_000_000
COMPACTIONS = (ServiceKind.COMPACT_DATA, ServiceKind.COMPACT_INDEX)
OPERATION = MergeOperation("p", "f", "1", "b", ("l",), 30, 70)
PLAN = encode_plan(CompactionPlan("T7", False, "", (OPERATION, OPERATION, OPERATION), dropped=(1,)))


def timelines(*data: Instant, compacted: bool = True) -> Timelines:
    compaction = Instant(time_of(0), Action.COMPACTION, State.COMPLETED, time_of(1))
    return Timelines(Timeline(data), Timeline((compaction,) if compacted else ()))


def time_of(seconds: int) -> str:
    """An instant so many seconds before the tests' time (below 0: after it)."""
    return instant_from_ms(NOW_MS - seconds * 1_000)


def commits(count: int) -> list[Instant]:
    """One a second, the last one a second ago."""
    ages = range(count, 0, -1)
    return [Instant(time_of(age), Action.DELTA_COMMIT, State.COMPLETED, time_of(age)) for age in ages]


class World:
    """A fold, what was seen, and a runner with handlers of all kinds."""

    def __init__(self, enabled: bool = True, config: TableServicesConfig | None = None) -> None:
        self.state, self.seen = FoldState(), SeenServices()
        self.slices, self.progress = TableSlices(), ServiceProgress()
        self.timelines = timelines()
        self.plans_read = 0
        self.archived_ms: int | None = None
        self.runner = SimpleNamespace(
            rules=ServiceRules(enabled=enabled),
            index_build_ms=3_600_000,
            handlers={kind: SimpleNamespace(has_tasks=kind in COMPACTIONS) for kind in ServiceKind},
            ended={},
            plan_of=self._plan_of,
            progress_of=lambda _: self.progress,
            timelines=lambda: self.timelines,
            archived_ms=lambda: self.archived_ms,
            backpressure=Backpressure(),
        )
        placement = SimpleNamespace(snapshot=lambda: self.slices)
        self.shown = ShownServices(
            cast(ServiceRunner, self.runner), config or TableServicesConfig(), cast(Placement, placement)
        )

    def _plan_of(self, _: ServicePlanned) -> bytes:
        self.plans_read += 1
        return PLAN

    def open(self, decided: bool = False) -> ServicePlanned:
        planned = ServicePlanned(1, 7, ServiceKind.COMPACT_DATA, "T7", "p", "s", NOW_MS - 5_000)
        done = ServiceDecided(1, 7, "m", "d", "p", "s", NOW_MS - 1_000) if decided else None
        self.state.services = {ServiceKind.COMPACT_DATA: OpenService(planned, done)}
        return planned

    def now(self, now_ms: int = NOW_MS) -> OwnServices:
        return self.shown.of(self.state, self.seen, now_ms)

    def of(self, kind: ServiceKind, now_ms: int = NOW_MS) -> ServiceKindState:
        found = self.now(now_ms).of(kind)
        assert found is not None
        return found


def test_services_that_are_not_enabled_show_their_pause_alone() -> None:
    world = World(enabled=False)
    world.state.services_paused, world.state.services_pause_reason = True, "r"
    assert world.now() == OwnServices(paused=True, reason="r")


def test_what_ended_before_this_coordinator_began_is_told_by_the_timelines() -> None:
    world = World()
    instants = (
        Instant(time_of(90), Action.COMPACTION, State.COMPLETED, time_of(60)),
        Instant(time_of(50), Action.COMPACTION, State.REQUESTED),
        Instant(time_of(30), Action.CLEAN, State.COMPLETED, time_of(29)),
        Instant(time_of(20), Action.ROLLBACK, State.COMPLETED, time_of(19)),
    )
    world.timelines, world.archived_ms = timelines(*instants), NOW_MS - 7_000
    last = {state.kind: state.last for state in world.now().kinds}
    assert last.pop(ServiceKind.CLEAN_INDEX) is None
    assert last.pop(ServiceKind.ROLLBACK) is None, "it may be an epoch's"
    assert {kind: each and (each.outcome, each.number) for kind, each in last.items()} == dict.fromkeys(
        last, ("earlier", 0)
    )
    ago = {kind: (NOW_MS - each.ended_ms) // 1_000 for kind, each in last.items() if each}
    assert ago == {"compact-data": 60, "compact-index": 1, "clean-data": 29, "archive": 7}


def test_an_open_action_whose_steps_fail_says_why_and_so_does_one_that_follows_on_failures() -> None:
    world = World()
    planned = world.open()
    assert world.of(planned.kind).failures is None
    world.seen.kind_failed(planned.kind, "full", NOW_MS)
    shown = world.of(planned.kind).failures
    assert shown is not None
    assert (shown.in_a_row, shown.reason) == (1, "full")
    for _ in range(2):
        world.seen.step_failed(planned.service, "read-only", NOW_MS)
    shown = world.of(planned.kind).failures
    assert shown is not None
    assert (shown.in_a_row, shown.reason, shown.next_try_ms) == (2, "read-only", NOW_MS + 4_000)


def test_open_action_goes_from_planned_over_decided_to_sweeping() -> None:
    world = World()
    planned = world.open()
    world.progress = ServiceProgress("writer-1", 1)
    shown = world.of(ServiceKind.COMPACT_DATA).open
    assert shown is not None
    assert (shown.number, shown.step, shown.worker, shown.decided_ms) == (7, "planned", "writer-1", None)
    assert (shown.groups, shown.groups_done, shown.bytes) == (2, 1, 200)
    world.open(decided=True)
    shown = world.of(ServiceKind.COMPACT_DATA).open
    assert shown is not None
    assert (shown.step, shown.groups_done, shown.decided_ms) == ("decided", 2, NOW_MS - 1_000)
    world.seen.action(planned.service).completed = True
    shown = world.of(ServiceKind.COMPACT_DATA).open
    assert shown is not None
    assert shown.step == "sweeping"
    assert world.plans_read == 1, "a plan is read once"


def test_open_action_ahead_of_the_clock_says_for_how_long_it_waits_until_it_is_decided() -> None:
    world = World()
    noted = world.seen.action(world.open().service)
    noted.decide_at_ms = NOW_MS + 5_000
    assert world.of(ServiceKind.COMPACT_DATA).held_back == [], "usual: clocks may differ"
    noted.decide_at_ms = NOW_MS + 90_001
    (text,) = world.of(ServiceKind.COMPACT_DATA).held_back
    assert text.startswith("action 7 waits 91 s for the clock: ")
    assert world.of(ServiceKind.ARCHIVE).held_back == []
    world.open(decided=True)
    assert world.of(ServiceKind.COMPACT_DATA).held_back == []


def test_ended_action_says_how_it_ended_and_keeps_its_figures() -> None:
    world = World()
    planned = world.open()
    assert world.now().enabled
    world.state.services = {}
    for by_other, reason, outcome in ((False, "", "done"), (True, "", "by_other"), (False, "r", "voided")):
        world.runner.ended = {planned.kind: EndedAction(planned, by_other, reason, NOW_MS)}
        last = world.of(planned.kind).last
        assert last is not None
        assert (last.outcome, last.reason, last.groups, last.ended_ms) == (outcome, reason, 2, NOW_MS)
    assert world.plans_read == 1


def test_unreadable_plan_leaves_the_figures_out() -> None:
    world = World()
    world.open()

    def gone(_: ServicePlanned) -> bytes:
        raise OSError("no such file")

    world.runner.plan_of = gone
    shown = world.of(ServiceKind.COMPACT_DATA).open
    assert shown is not None
    assert (shown.groups, shown.bytes) == (0, 0)


def test_tasks_that_nobody_takes_for_a_minute_are_behind() -> None:
    world = World()
    world.open()
    assert world.now(NOW_MS + 55_000).behind == []
    text = "nobody has taken the tasks of compact-data for 61 s: start a writer"
    assert world.now(NOW_MS + 56_000).behind == [text]
    world.progress = ServiceProgress("writer-1", 0)
    assert world.now(NOW_MS + 57_000).behind == []
    world.progress = ServiceProgress()
    world.open(decided=True)
    assert world.now(NOW_MS + 58_000).behind == []


def test_failures_and_what_is_due_are_told_by_kind() -> None:
    world = World()
    world.seen.due = {ServiceKind.COMPACT_DATA: "3 file groups have many log files"}
    world.seen.kind_failed(ServiceKind.ARCHIVE, "no space", NOW_MS)
    world.seen.kind_failed(ServiceKind.ARCHIVE, "still no space", NOW_MS)
    due, failing = world.of(ServiceKind.COMPACT_DATA), world.of(ServiceKind.ARCHIVE)
    assert (due.due, due.not_due, due.failures) == ("3 file groups have many log files", "", None)
    assert failing.failures is not None
    assert (failing.failures.in_a_row, failing.failures.reason) == (2, "still no space")
    assert failing.failures.next_try_ms > NOW_MS


def test_each_kind_says_why_nothing_is_due() -> None:
    world = World()
    world.slices = TableSlices(
        (SliceStats("p", "f", 100 << 20, 20, 1 << 20, NOW_MS),),
        (SliceStats("record_index", "s", 100, 30, 20, NOW_MS),),
    )
    assert "reached 50% of what triggers it" in world.of(ServiceKind.COMPACT_DATA).not_due
    index = world.of(ServiceKind.COMPACT_INDEX).not_due
    assert ("30 of 120" in index, "20% of the base files', of 30%" in index) == (True, True)
    assert index.endswith("from 1MiB on")
    for kind, wait_s in ((ServiceKind.COMPACT_DATA, 9), (ServiceKind.COMPACT_INDEX, 59)):
        world.seen.kind(kind).ended_ms = NOW_MS - 1_000
        assert f"not before {wait_s} s are over" in world.of(kind).not_due
    assert "more than 600 write instants" in world.of(ServiceKind.ARCHIVE).not_due
    world.seen.kind(ServiceKind.CLEAN_DATA).ended_ms = NOW_MS - 60_000
    assert world.of(ServiceKind.CLEAN_DATA).not_due == "the next look is in 240 s"
    looked = world.seen.kind(ServiceKind.CLEAN_INDEX)
    looked.found_nothing, looked.not_before_ms = True, NOW_MS + 5_000
    assert world.of(ServiceKind.CLEAN_INDEX).not_due == "nothing was found to do; the next look is in 5 s"
    assert world.of(ServiceKind.ROLLBACK).not_due == "nothing was found to do"
    world.state.services_paused = True
    assert world.of(ServiceKind.ARCHIVE).not_due == "services are paused"


def test_a_kind_that_is_switched_off_says_so_and_how_it_runs_all_the_same() -> None:
    world = World(config=TableServicesConfig(archive=ArchiveConfig(enabled=False)))
    text = "table_services.archive.enabled is false; `tidemark services run archive` runs it once"
    assert world.of(ServiceKind.ARCHIVE).not_due == text
    assert "write instants" in World().of(ServiceKind.ARCHIVE).not_due


def test_groups_with_twice_the_log_files_are_behind_and_looked_for_every_two_seconds() -> None:
    world = World()
    world.slices = TableSlices(tuple(SliceStats("p", f"f{n}", 9, 80 + n, 9, NOW_MS) for n in range(5)))
    behind = world.now().behind
    assert behind[0] == "file group p f4 has 84 log files, its compaction is due at 40"
    assert behind[-1] == "2 more file groups have at least 80 log files"
    world.slices = TableSlices()
    assert world.now(NOW_MS + 1_999).behind == behind
    assert world.now(NOW_MS + 2_000).behind == []


def test_groups_that_another_engine_planned_to_rewrite_are_left_to_it_and_not_behind() -> None:
    world = World()
    slices = tuple(SliceStats("p", f"f{n}", 9, 80 + n, 9, NOW_MS) for n in range(2))
    world.slices = TableSlices(slices, held=frozenset({("p", "f1"), ("q", "f7")}))
    plan = Instant(time_of(200), Action.COMPACTION, State.REQUESTED, None)
    ours = Instant(time_of(300), Action.COMPACTION, State.INFLIGHT, None)
    planned = ServicePlanned(1, 7, ServiceKind.CLEAN_DATA, ours.requested, "p", "s", NOW_MS)
    world.state.services = {ServiceKind.CLEAN_DATA: OpenService(planned, None)}
    world.timelines = timelines(ours, plan)
    (behind,) = world.now().behind
    assert behind.startswith("file group p f0 has 80 log files")
    (text,) = world.of(ServiceKind.COMPACT_DATA).held_back
    assert text == (
        f"2 file groups are left to other writers' plans, of which {plan.file_name} is pending since 3 min"
    )
    world.timelines = timelines(ours)
    assert world.of(ServiceKind.COMPACT_DATA, NOW_MS + 10_000).held_back == [], "it was carried out"


def test_archival_says_what_holds_it_back_once_there_is_more_than_it_leaves() -> None:
    world = World()
    savepoint = Instant(time_of(650), Action.SAVEPOINT, State.COMPLETED, time_of(640))
    restore = Instant(time_of(648), Action.RESTORE, State.COMPLETED, time_of(640))
    pending = Instant(time_of(645), Action.COMPACTION, State.REQUESTED, None)
    ours = Instant(time_of(644), Action.COMPACTION, State.REQUESTED, None)
    young = Instant(time_of(30), Action.DELTA_COMMIT, State.INFLIGHT, None)
    held = [savepoint, restore, pending, ours, young]
    planned = ServicePlanned(1, 7, ServiceKind.COMPACT_DATA, ours.requested, "p", "s", NOW_MS)
    world.state.services = {ServiceKind.COMPACT_DATA: OpenService(planned, None)}

    def reasons(count: int, compacted: bool = True) -> list[str]:
        every = sorted([*commits(count), *held], key=lambda each: each.requested)
        world.timelines = timelines(*every, compacted=compacted)
        world.shown._held_at_ms = -1 << 40
        return world.of(ServiceKind.ARCHIVE).held_back

    assert reasons(650) == [], "600 and 100 are left"
    savepoint_text, restore_text, pending_text = reasons(701)
    assert f"savepoint {savepoint.requested}" in savepoint_text
    assert f"the restore {restore.requested}" in restore_text
    assert pending_text == f"{pending.file_name} of another writer is pending since 10 min"
    assert "compact-index comes first" in reasons(701, compacted=False)[0]


def test_archival_names_an_indexing_which_stays_for_good_as_a_restore_does() -> None:
    """Spark's CREATE INDEX leaves one. What is newer goes once no log file of it is left."""
    world = World()
    indexing = Instant(time_of(650), Action.INDEXING, State.COMPLETED, time_of(640))
    every = sorted([*commits(701), indexing], key=lambda each: each.requested)
    world.timelines = timelines(*every)
    text = f"the indexing {indexing.requested}: what is newer stays while it has log files"
    assert world.of(ServiceKind.ARCHIVE).held_back == [text]


@pytest.mark.parametrize("requested_s", [800, 720, 700])
def test_archival_names_a_first_write_that_was_open_beside_a_compaction(requested_s: int) -> None:
    """The first write was requested 750 s ago and completed 710 s ago."""
    world = World()
    first = Instant(time_of(750), Action.DELTA_COMMIT, State.COMPLETED, time_of(710))
    compaction = Instant(time_of(requested_s), Action.COMPACTION, State.COMPLETED, time_of(699))
    world.timelines = timelines(*sorted([*commits(701), first, compaction], key=lambda each: each.requested))
    text = (
        f"{first.file_name} was open when the compaction {compaction.requested} was planned: it stays on the "
        "timeline until its file groups are compacted again"
    )
    assert world.of(ServiceKind.ARCHIVE).held_back == ([text] if requested_s == 720 else [])


@pytest.mark.parametrize(("age_s", "named"), [(950, False), (970, True)])
def test_archival_names_a_compaction_of_the_metadata_table_that_is_older_than_they_get(
    age_s: int, named: bool
) -> None:
    """The next one comes within a quarter of an hour, unless it fails, is switched off or paused."""
    world = World()
    compaction = Instant(time_of(age_s), Action.COMPACTION, State.COMPLETED, time_of(age_s - 1))
    world.timelines = Timelines(Timeline(tuple(commits(1_100))), Timeline((compaction,)))
    text = (
        f"the metadata table's newest compaction is that of {compaction.requested}: what completed since "
        "stays on the timeline until the next compact-index"
    )
    assert world.of(ServiceKind.ARCHIVE).held_back == ([text] if named else [])


@pytest.mark.parametrize(("age_s", "named"), [(4_010, False), (4_030, True)])
def test_archival_names_a_replacecommit_whose_groups_should_be_cleaned_by_now(
    age_s: int, named: bool
) -> None:
    """An hour is the readers'; the next clean comes within five minutes, archival's next look within one."""
    world = World()
    replacing = Instant(time_of(4_500), Action.REPLACE_COMMIT, State.COMPLETED, time_of(age_s))
    world.timelines = timelines(replacing, *commits(701))
    reasons = world.of(ServiceKind.ARCHIVE).held_back
    text = f"{replacing.file_name}: the file groups that it replaced are not all cleaned"
    assert reasons == ([text] if named else [])


def test_cleaning_names_a_write_that_is_pending_for_longer_than_the_window() -> None:
    world = World()
    for age_s, named in ((3_650, False), (3_670, True)):
        world.timelines = timelines(Instant(time_of(age_s), Action.DELTA_COMMIT, State.INFLIGHT, None))
        world.shown._held_at_ms = -1 << 40
        assert bool(world.of(ServiceKind.CLEAN_DATA).held_back) is named


def test_what_holds_back_stays_known_while_the_timelines_cannot_be_listed() -> None:
    world = World()
    world.timelines = timelines(Instant(time_of(9_999), Action.DELTA_COMMIT, State.INFLIGHT, None))
    before = world.of(ServiceKind.CLEAN_DATA).held_back
    assert before

    def refuses() -> Timelines:
        raise OSError("no permission")

    world.runner.timelines = refuses
    assert world.of(ServiceKind.CLEAN_DATA, NOW_MS + 20_000).held_back == before


@pytest.mark.parametrize(
    ("document", "stats"),
    [
        (PLAN, PlanStats(2, 200)),
        (encode_plan(CleanPlan("T", False, {"p": ("a", "b"), "q": ("c",)}, "1")), PlanStats(3)),
        (b'{"instants":["1","2"]}', PlanStats(2)),
        (b"[1]", PlanStats()),
    ],
)
def test_figures_of_a_plan_of_each_kind(document: bytes, stats: Any) -> None:
    assert plan_stats(document) == stats


def test_what_is_done_because_compactions_do_not_keep_up_is_shown_first() -> None:
    world = World()
    level = BackpressureLevel.STRETCHED
    world.runner.backpressure = Backpressure(level, 4_000, reason="compact-data is behind")
    shown = world.shown.of(world.state, world.seen, NOW_MS)
    assert shown.backpressure == "stretched"
    assert shown.behind[0].startswith("compact-data is behind: ")
    assert "every 4.0 s" in shown.behind[0]
