"""Backpressure of a term: by placement's stats, what is seen of the kinds, and who works on actions."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from tidemark.commit_coordinator.calls.placement import CompactedSlice, Placement
from tidemark.commit_coordinator.calls.service_handoff import (
    GrantedSlots,
    OfferedService,
    ServiceHandoff,
    ServiceProgress,
)
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.domain.backpressure import (
    BOUND,
    LEVEL_STEPS,
    STALLED_MS,
    BackpressureLevel,
)
from tidemark.commit_coordinator.domain.service_actions import SeenServices
from tidemark.commit_coordinator.table_services.chosen_groups import GroupChoice
from tidemark.commit_coordinator.table_services.handler import ServiceFacts
from tidemark.commit_coordinator.table_services.pressure import FAILING, ServicePressure
from tidemark.commit_coordinator.table_services.runner import ServiceRules, ServiceRunner
from tidemark.config.table_services_model import DataCompactionConfig, TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.metadata_table.partitions.files import ListedFiles
from tidemark.hudi_format.table_services.triggers import DataCompactionRule
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat

CONFIG = TableServicesConfig(enabled=True, compact_data=DataCompactionConfig(log_files=10))
LOG = WriteStat(file_id="f", path="p/f", partition_path="p", file_size_in_bytes=9, log_files=("f.log",))
PLANNED = ServicePlanned(0, 1, ServiceKind.COMPACT_DATA, "20260101000000000", "p", "s", 0)
RULE = DataCompactionRule(log_files=10)


class World:
    def __init__(self, config: TableServicesConfig = CONFIG) -> None:
        self.placement = Placement(1 << 20, SeededIds(1))
        self.placement.load(ListedFiles(), TableView(Timeline(()), {}, {}, {}, {}), [])
        self.done: dict[int, int] = {}
        self.pressure = ServicePressure(config, self.placement, 1_000, self._progress)
        self.state, self.seen = FoldState(), SeenServices()
        self.now_ms = 1_000_000

    def _progress(self, number: int) -> ServiceProgress:
        return ServiceProgress("worker", self.done.get(number, 0))

    def commits(self, count: int) -> None:
        """So many commits, one a second."""
        for _ in range(count):
            self.placement.committed(Report((LOG,), ()), self.now_ms)
            self.passes(1)

    def passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_ms += 1_000
            self.pressure.look(self.state, self.seen, self.now_ms)

    @property
    def level(self) -> BackpressureLevel:
        return self.pressure.now.level


def test_a_slice_that_nobody_compacts_in_time_raises_the_share_and_then_slows_tagging() -> None:
    world = World()
    world.commits(12)
    assert (world.level, world.pressure.granted) == (BackpressureLevel.NONE, GrantedSlots(CONFIG.share))
    world.commits(8)
    assert world.level is not BackpressureLevel.NONE
    assert world.pressure.granted == GrantedSlots(0.5, is_behind=True)
    assert world.pressure.behind == {ServiceKind.COMPACT_DATA}
    world.commits(7)
    assert world.level is BackpressureLevel.SLOWED
    assert world.pressure.now.interval_ms > 1_000
    assert "compact-data is behind: p/f" in world.pressure.now.words
    assert "tagging rests" in world.pressure.now.words
    world.placement.compacted([CompactedSlice("p", "f", 9, 27, 9)], world.now_ms, is_index=False)
    world.passes(4)
    assert (world.level, world.pressure.granted) == (BackpressureLevel.NONE, GrantedSlots(CONFIG.share))
    assert world.pressure.behind == frozenset()
    assert world.pressure.now.words == ""


@pytest.mark.parametrize(
    ("log_files", "level"), [(2, BackpressureLevel.SLOWED), (3, BackpressureLevel.SHARE)]
)
def test_a_slice_that_is_just_due_slows_no_tagging_unless_two_log_files_make_it_due(
    log_files: int, level: BackpressureLevel
) -> None:
    """So a configuration with less than three is refused: tagging would rest at each compaction."""
    config = replace(CONFIG, compact_data=DataCompactionConfig(log_files=log_files))
    world = World(config)
    world.commits(log_files)
    world.passes(3)
    assert world.level is level


def test_nothing_is_slowed_for_services_that_are_off_paused_failing_or_find_nothing_to_do() -> None:
    """Else nothing would end it: another engine has what is to be compacted, or the stats are old."""
    off = World(TableServicesConfig(enabled=False))
    idle = World()
    idle.seen.kind(ServiceKind.COMPACT_DATA).found_nothing = True
    paused = World()
    paused.state.services_paused = True
    failing = World()
    for _ in range(FAILING):
        failing.seen.kind_failed(ServiceKind.COMPACT_DATA, "the disk is full", 0)
    stuck = World()
    decided = ServiceDecided(0, 1, "m", "d", "p", "s", 0)
    stuck.state.services[ServiceKind.COMPACT_DATA] = OpenService(PLANNED, decided)
    for _ in range(FAILING):
        stuck.seen.step_failed(PLANNED.service, "a file is missing", 0)
    ahead = World()
    ahead.state.services[ServiceKind.COMPACT_DATA] = OpenService(PLANNED)
    ahead.seen.action(PLANNED.service).decide_at_ms = ahead.now_ms + 3_600_000
    for world in (off, idle, ahead, paused, failing, stuck):
        world.commits(40)
        assert world.level is BackpressureLevel.NONE
        assert world.pressure.now.interval_ms == 1_000


def planned(number: int) -> OpenService:
    return OpenService(msgspec.structs.replace(PLANNED, service=number))


def rests(world: World) -> bool:
    world.passes(1)
    return world.pressure.now.rest > 0.0


def test_tagging_waits_for_a_compaction_as_long_as_operations_get_done() -> None:
    world = World()
    world.commits(30)
    world.state.services[ServiceKind.COMPACT_DATA] = OpenService(PLANNED)
    for done in range(3):
        world.done[PLANNED.service] = done
        world.passes(STALLED_MS // 1_000 - 1)
        assert world.pressure.now.rest == 1.0
    world.passes(2)
    assert world.pressure.now.rest == 0.0
    world.done[PLANNED.service] = 3
    assert rests(world)


def test_a_lease_and_operations_that_are_done_again_are_no_progress() -> None:
    """A worker may renew its lease for days and get nowhere, or be killed at the same operation each time."""
    world = World()
    world.commits(30)
    world.state.services[ServiceKind.COMPACT_DATA] = OpenService(PLANNED)
    world.done[PLANNED.service] = 5
    assert rests(world)
    for second in range(STALLED_MS // 1_000):
        world.done[PLANNED.service] = second % 6
        world.passes(1)
    assert world.pressure.now.rest == 0.0


def test_a_report_a_decision_and_a_new_action_are_progress() -> None:
    world = World()
    world.commits(30)
    for number in (PLANNED.service, PLANNED.service + 1):
        world.state.services[ServiceKind.COMPACT_DATA] = planned(number)
        assert rests(world)
        world.passes(STALLED_MS // 1_000)
        assert not rests(world)
        world.seen.action(number).reported = True
        assert rests(world)
        world.passes(STALLED_MS // 1_000)
        assert not rests(world)
        decided = ServiceDecided(0, number, "m", "d", "p", "s", 0)
        world.state.services[ServiceKind.COMPACT_DATA] = OpenService(planned(number).planned, decided)
        assert rests(world)
        world.passes(STALLED_MS // 1_000)
        assert not rests(world)


def test_an_action_that_is_given_up_because_of_file_groups_ends_no_waiting_for_the_others() -> None:
    world = World()
    world.commits(30)
    world.state.services[ServiceKind.COMPACT_DATA] = OpenService(PLANNED)
    for _ in range(FAILING):
        world.seen.step_failed(PLANNED.service, "a log file is damaged", 0)
    world.seen.action(PLANNED.service).of_left_out = True
    world.passes(5)
    assert world.pressure.now.rest == 1.0


def test_figures_that_a_rewind_made_old_change_nothing() -> None:
    world = World()
    world.commits(30)
    before = world.pressure.now
    world.placement.suspend()
    world.placement.compacted([CompactedSlice("p", "f", 9, 30, 9)], world.now_ms, is_index=False)
    world.passes(30)
    assert world.pressure.now == before


class BusyWorld(World):
    """Each commit has a log file for each of so many file groups. Who needs it most is compacted, ``per_s``
    groups a second, or twice as many while they are behind; assigners tag in each second unless they rest.
    """

    def __init__(self, groups: int, per_s: float) -> None:
        super().__init__()
        self.names = [f"f{number}" for number in range(groups)]
        self.per_s = per_s
        base = replace(LOG, num_writes=1, file_size_in_bytes=100 << 20, log_files=None)
        bases = tuple(replace(base, file_id=name, path=f"p/{name}") for name in self.names)
        self.placement.committed(Report(bases, ()), self.now_ms)
        self.epochs, self.committed_ms, self.worst = 0, self.now_ms, 0.0
        self.levels = [self.level]
        self._logs = tuple(replace(LOG, file_id=name, path=f"p/{name}") for name in self.names)
        self._choice, self._is_tagged = GroupChoice(), False
        self._ended_ms: dict[ServiceKind, int] = {}
        self._merging: tuple[int, list[CompactedSlice], int] | None = None

    def second(self) -> None:
        before, now = self.level, self.pressure.now
        self._is_tagged |= not now.rests(self.now_ms)
        if self._is_tagged and self.now_ms - self.committed_ms >= now.interval_ms:
            self.placement.committed(Report(self._logs, ()), self.now_ms)
            self.epochs, self.committed_ms, self._is_tagged = self.epochs + 1, self.now_ms, False
        self._compact()
        longest = max(each.log_count for each in self.placement.snapshot().data)
        self.worst = max(self.worst, longest / RULE.log_files)
        self.passes(1)
        assert self.level in {before, *LEVEL_STEPS[before]}
        self.levels.append(self.level)

    def _compact(self) -> None:
        if self._merging is not None and self.now_ms >= self._merging[0]:
            _, done, at_ms = self._merging
            self.placement.compacted(done, at_ms, is_index=False)
            self._merging, self._ended_ms = None, {PLANNED.kind: self.now_ms}
            self.state.services.clear()
        facts = ServiceFacts(self.state, self._ended_ms, self.pressure.behind)
        since_last_ms = facts.since_last_ms(PLANNED.kind, self.now_ms)
        if since_last_ms is not None and since_last_ms < CONFIG.compact_data.min_interval_ms:
            return
        slices = self.placement.snapshot()
        chosen = self._choice.groups(slices, RULE, self.now_ms, frozenset())
        if self._merging is None and chosen:
            done = [
                CompactedSlice(*each.group, each.base_bytes, each.log_count, each.log_bytes)
                for each in slices.data
                if each.group in chosen
            ]
            took_s = len(done) / (self.per_s * (2 if self.pressure.granted.is_behind else 1))
            self._merging = self.now_ms + round(1_000 * took_s), done, self.now_ms
            self.state.services[ServiceKind.COMPACT_DATA] = OpenService(PLANNED)


@pytest.mark.parametrize("per_s", [20.0, 2.0])
def test_no_slice_of_a_thousand_that_every_epoch_writes_to_goes_beyond_the_bound(per_s: float) -> None:
    world = BusyWorld(1_000, per_s)
    for _ in range(100):
        world.second()
    assert len(world.placement.snapshot().data) == 1_000
    assert 1.0 < world.worst <= BOUND
    assert BackpressureLevel.SLOWED in world.levels
    assert world.epochs > 20


def test_the_round_that_finds_a_kind_behind_plans_it_and_grants_it_more() -> None:
    """Who plans looks at the load of the same round, and not at that of the one before."""
    kind, asked, handoff = (
        ServiceKind.COMPACT_DATA,
        list[frozenset[ServiceKind]](),
        ServiceHandoff(ManualClock()),
    )
    world = World()
    world.commits(12)
    for _ in range(20):
        world.placement.committed(Report((LOG,), ()), world.now_ms)

    def due(facts: ServiceFacts, now_ms: int) -> str | None:
        asked.append(facts.behind)
        return None

    handler = SimpleNamespace(kind=kind, has_tasks=True, sweeps_with_lock=False, due=due)
    context = SimpleNamespace(lock=SimpleNamespace(is_held=False), index_build_ms=0)
    rules = ServiceRules(enabled=True)
    runner = ServiceRunner(cast(Any, context), [cast(Any, handler)], handoff, rules, world.pressure)
    observed = cast(Any, SimpleNamespace(services=SeenServices(), halted=None, given_up=None))
    handoff.offer(OfferedService(PLANNED, "token", GrantedSlots(CONFIG.share)))
    runner.look(FoldState(), observed, world.now_ms + 1_000)
    assert asked == [frozenset({kind})]
    begun = handoff.begin(PLANNED.service, "worker")
    assert begun is not None
    assert begun.granted == GrantedSlots(0.5, is_behind=True)
