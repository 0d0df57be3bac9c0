"""Backpressure as a model: real decisions of epochs and backpressure, compactions at a simulated rate.

Assigners tag all the time unless they rest, which they learn once a second. Every epoch adds a log file to
each file group. A compaction takes the groups with the highest scores, begins between two epochs, ten seconds
after the one before or at once where compactions are behind, and its time follows from the number of groups
and from the share of the task slots.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import msgspec
import pytest

from tests.unit.epoch_protocol.builders import tagged
from tidemark.commit_coordinator.domain.actions import Plan
from tidemark.commit_coordinator.domain.backpressure import (
    BEHIND,
    BOUND,
    LEVEL_STEPS,
    STALLED_MS,
    STRETCHED_MS,
    Backpressure,
    BackpressureLevel,
    Compactions,
    LoadRule,
    LoadWatch,
    SliceLoad,
    decide_backpressure,
)
from tidemark.commit_coordinator.domain.next_action import Limits, Observed, next_action
from tidemark.commit_coordinator.domain.slice_stats import SliceBook, SliceStats
from tidemark.epoch_protocol.state import CountedTagged, FoldState
from tidemark.hudi_format.table_services.triggers import DataCompactionRule, IndexCompactionRule

MIB = 1 << 20
SHARE, RAISED = 0.25, 0.5
BETWEEN_MS = 10_000
INTERVAL_MS = 1_000
WRITE_MS = 400
STEP_MS = 200
LIMITS = Limits(INTERVAL_MS, bytes_max=1 << 30, attempts_max=4)
NONE, SHARED, STRETCHED, SLOWED = BackpressureLevel


@dataclass
class Stream:
    """A table with so many file groups. ``groups_per_s``: what compactions do with the configured share.

    ``row_bytes``: what one second of tagging adds to each group.
    """

    groups: int
    groups_per_s: float
    rule: DataCompactionRule
    row_bytes: int = 1_000
    base_bytes: int = 100 * MIB
    at_start: dict[int, int] = field(default_factory=dict)
    works: bool = True
    is_worked_on: bool = True

    def __post_init__(self) -> None:
        slices = [
            SliceStats("p", f"f{n}", self.base_bytes, self.at_start.get(n, 0), 0, 1)
            for n in range(self.groups)
        ]
        self.book = SliceBook(slices)
        self.load_rule = LoadRule(self.rule.log_files, self.rule.log_bytes, self.rule.log_ratio)
        self.watch = LoadWatch(self.load_rule)
        self.state, self.seen = FoldState(), Observed()
        self.now_ms = 1_000_000
        self.pressure = Backpressure(interval_ms=INTERVAL_MS)
        self.levels = [self.pressure.level]
        self.intervals: list[int] = []
        self.resting = self.stops = False
        self.tagged_ms = self.committed_ms = self.offset = self.epochs = 0
        self.writing: tuple[int, int, int] | None = None
        self.compacting: tuple[int, dict[tuple[str, str], SliceStats], int] | None = None
        self.compacted_ms, self.is_behind = 0, False
        self.worst = 0.0

    def run(self, seconds: int) -> None:
        for _ in range(seconds * 1_000 // STEP_MS):
            self.now_ms += STEP_MS
            self._tag()
            self._commit()
            self._compact()
            self._plan()
            self._decide()

    def _tag(self) -> None:
        if self.now_ms % 1_000 == 0:
            self.resting = self.pressure.rests(self.now_ms)
        if not self.resting and not self.stops:
            self.tagged_ms += STEP_MS
            self.offset += 1
            self.state.tagged = [CountedTagged(self.offset, tagged({"0": (0, 1)}, {"0": 0}))]

    def _commit(self) -> None:
        if self.writing is not None and self.now_ms >= self.writing[0]:
            _, through, until_ms = self.writing
            size = self.row_bytes * (until_ms - self.committed_ms) // 1_000
            for slice_ in self.book.listed():
                self.book.put(slice_.with_log(size, self.now_ms))
            self.committed_ms, self.writing = until_ms, None
            self.epochs += 1
            committed = msgspec.structs.replace(self.state.committed, epoch=self.epochs, through=through)
            self.state.committed = committed
            self.state.tagged = [each for each in self.state.tagged if each.offset > through]

    def _compact(self) -> None:
        if self.compacting is not None and self.now_ms >= self.compacting[0]:
            _, taken, at_ms = self.compacting
            for group, read in taken.items():
                now = self.book.of(*group)
                size = now.base_bytes
                self.book.put(now.compacted(size, read.log_count, read.log_bytes, at_ms))
            self.compacting, self.compacted_ms = None, self.now_ms
        waits = self.now_ms - self.compacted_ms < BETWEEN_MS and not self.is_behind
        if self.compacting is None and self.works and self.writing is None and not waits:
            due = sorted(
                (each for each in self.book.listed() if self.rule.score(each, self.now_ms) >= 1.0),
                key=lambda each: -self.rule.score(each, self.now_ms),
            )[: self.rule.max_groups]
            if due and self.is_worked_on:
                share = RAISED if self.pressure.raises_share else SHARE
                took_ms = 2_000 + round(len(due) * 1_000 / (self.groups_per_s * share / SHARE))
                self.compacting = (self.now_ms + took_ms, {each.group: each for each in due}, self.now_ms)

    def _plan(self) -> None:
        if self.writing is None:
            limits = replace(LIMITS, interval_ms=self.pressure.interval_ms)
            action = next_action(self.state, self.seen, limits, self.now_ms)
            if isinstance(action, Plan):
                self.seen.planned_at_ms = self.now_ms
                self.writing = (self.now_ms + WRITE_MS, action.through, self.tagged_ms)

    def _decide(self) -> None:
        load = self.watch.look(self.book.listed(), 1)
        loads = [max(self.load_rule.loads(each)) for each in self.book.listed()]
        self.worst = max(self.worst, *(each for n, each in enumerate(loads) if n not in self.at_start))
        self.is_behind = max(load.now, load.left_behind) >= BEHIND
        if self.now_ms % 1_000 == 0:
            progress_ms = self.compacted_ms if self.compacting is None else self.now_ms
            compactions = Compactions("compact-data", load, self.works, progress_ms)
            before = self.pressure.level
            self.pressure = decide_backpressure(self.pressure, [compactions], INTERVAL_MS, self.now_ms)
            assert self.pressure.level in {before, *LEVEL_STEPS[before]}
            self.levels.append(self.pressure.level)
            self.intervals.append(self.pressure.interval_ms)


def highest(stream: Stream) -> BackpressureLevel:
    return max(stream.levels, key=list(BackpressureLevel).index)


@pytest.mark.parametrize(
    ("groups_per_s", "expected"), [(2.0, NONE), (0.2, SHARED), (0.1, STRETCHED), (0.02, SLOWED)]
)
def test_with_8_file_groups_each_measure_comes_in_its_turn_and_the_bound_holds(
    groups_per_s: float, expected: BackpressureLevel
) -> None:
    stream = Stream(8, groups_per_s, DataCompactionRule())
    stream.run(1_200)
    assert stream.worst <= BOUND
    assert highest(stream) is expected
    stretched = max(stream.intervals)
    assert (stretched > INTERVAL_MS) == (expected in (STRETCHED, SLOWED))
    assert stretched <= STRETCHED_MS
    assert (stream.tagged_ms == 1_200_000) == (expected is not SLOWED)


@pytest.mark.parametrize("groups_per_s", [20.0, 2.0])
def test_with_1_000_file_groups_in_every_epoch_the_bound_holds(groups_per_s: float) -> None:
    stream = Stream(1_000, groups_per_s, DataCompactionRule(log_files=10))
    stream.run(100)
    assert stream.worst <= BOUND
    assert highest(stream) in (STRETCHED, SLOWED)
    assert stream.epochs >= 25


@pytest.mark.parametrize("seed", range(8))
def test_at_whatever_rates_the_bound_holds_and_what_is_tagged_is_committed(seed: int) -> None:
    """A commit adds at most two thirds of a trigger."""
    draw = random.Random(seed)
    rule = DataCompactionRule(log_files=draw.choice([8, 20, 40]))
    stream = Stream(draw.choice([1, 3, 8]), 1.0, rule)
    for _ in range(6):
        stream.groups_per_s = draw.choice([0.01, 0.05, 0.3, 1.0, 3.0])
        stream.row_bytes = draw.choice([1_000, 500_000, 3 * MIB])
        stream.run(100)
        assert stream.worst <= BOUND
    stream.stops = True
    stream.run(2 * STRETCHED_MS // 1_000)
    assert stream.committed_ms == stream.tagged_ms


def test_a_table_that_nobody_compacted_is_brought_back_while_epochs_go_on() -> None:
    """What was above the bound at the start raises the share, and slows nothing down."""
    stream = Stream(8, 0.5, DataCompactionRule(), at_start=dict.fromkeys(range(6), 20_000))
    stream.run(30)
    assert highest(stream) is SHARED
    stream.run(170)
    assert highest(stream) is SHARED
    assert stream.levels[-1] is NONE
    assert stream.tagged_ms == 200_000
    assert stream.worst <= BOUND


def test_tagging_does_not_wait_for_compactions_that_fail_or_that_nobody_makes() -> None:
    failing = Stream(2, 1.0, DataCompactionRule(log_files=8), works=False)
    failing.run(120)
    assert highest(failing) is NONE
    alone = Stream(2, 1.0, DataCompactionRule(log_files=8), is_worked_on=False)
    alone.run(STALLED_MS // 1_000)
    before = alone.resting
    alone.run(60)
    assert (before, alone.resting) == (True, False)
    assert alone.pressure.interval_ms == STRETCHED_MS


def test_a_configured_interval_above_ten_seconds_is_not_shortened() -> None:
    load = SliceLoad(reach=2.9, files=2.9, worst=("p", "f"))
    pressure = Backpressure(STRETCHED)
    pressure = decide_backpressure(pressure, [Compactions("compact-data", load, True)], 60_000, 0)
    assert pressure.level is SLOWED
    assert pressure.interval_ms == 60_000
    assert "p/f may soon have 2.9 times" in pressure.reason


def test_a_slice_below_its_trigger_does_not_slow_what_nobody_would_compact() -> None:
    watch = LoadWatch(LoadRule(log_files=40, log_bytes=64 * MIB, log_ratio=0.5))
    slice_ = SliceStats("p", "f", 1 << 30)
    watch.look((slice_,), 1)
    large = slice_.with_log(63 * MIB, 1)
    assert watch.look((large,), 1) == SliceLoad()
    assert watch.look((large.with_log(2 * MIB, 2),), 1).reach > BEHIND


def test_log_files_of_the_index_count_together_as_they_trigger_its_compaction() -> None:
    """A new data partition's file group of the index gets all inserts, beside large groups of others."""
    trigger = IndexCompactionRule()
    watch = LoadWatch(LoadRule(trigger.log_files, None, trigger.log_ratio, trigger.ratio_from_bytes))
    old = tuple(SliceStats("record_index", f"old-{n}", 20 * MIB) for n in range(50))
    new, loads = SliceStats("record_index", "new", 0), list[SliceLoad]()
    watch.look((*old, new), 1)
    while trigger.reason((*old, new), 0, None) is None:
        assert watch.look((*old, new), 1) == SliceLoad(), "nobody compacts it, so nothing waits"
        new = new.with_log(5 * MIB, 1)
    assert new.log_bytes >= 300 * MIB
    for _ in range(200):
        new = replace(new, log_bytes=new.log_bytes + 5 * MIB)
        loads.append(watch.look((*old, new), 1))
    assert loads[-1].now == pytest.approx(new.log_bytes / (50 * 6 * MIB + 8 * MIB))
    assert (loads[-1].worst, loads[-1].left_behind) == (None, 0.0)
    pressure = decide_backpressure(
        Backpressure(STRETCHED), [Compactions("compact-index", loads[-1], True)], INTERVAL_MS, 0
    )
    assert "all file groups together may soon have" in pressure.reason
    ended = decide_backpressure(pressure, [Compactions("compact-index", SliceLoad(), True)], INTERVAL_MS, 1)
    assert "compact-index was behind" in ended.words
    left = LoadWatch(LoadRule(120, None, 0.3)).look((*old, replace(new, log_bytes=2_000 * MIB)), 1)
    assert (left.now, left.worst) == (0.0, None)
    assert left.left_behind > BOUND


def test_what_another_engine_planned_to_rewrite_is_no_load_and_later_only_raises_the_share() -> None:
    watch = LoadWatch(LoadRule(log_files=10, log_bytes=64 * MIB, log_ratio=0.5))
    held, ours = SliceStats("p", "held", 1, 12, 12), SliceStats("p", "ours", 1, 11, 11)
    assert watch.look((held, ours), 1).worst == ("p", "held")
    theirs = frozenset({held.group})
    assert watch.look((held, ours), 1, theirs).worst == ours.group
    grown = replace(held, log_count=45)
    load = watch.look((grown, ours), 1, theirs)
    assert (load.worst, load.left_behind) == (ours.group, 0.0)
    freed = watch.look((grown, ours), 1)
    assert freed.worst == ours.group
    assert freed.left_behind == pytest.approx(4.5)
    near = watch.look((replace(held, log_count=28), ours), 2, theirs)
    assert near.worst == ours.group
    assert watch.look((replace(held, log_count=28), ours), 2).worst == held.group, "below the bound it counts"


def test_a_listing_anew_keeps_what_our_own_commits_brought_near_the_bound() -> None:
    watch = LoadWatch(LoadRule(log_files=10, log_bytes=64 * MIB, log_ratio=0.5))
    near, above = SliceStats("p", "near", 1, 29, 29), SliceStats("p", "above", 1, 31, 31)
    load = watch.look((near, above), 2)
    assert load.worst == ("p", "near")
    assert load.reach == pytest.approx(2.9)
    assert load.left_behind == pytest.approx(3.1)
    compacted = above.compacted(1, 31, 31, 5)
    watch.look((near, compacted), 2)
    again = SliceStats("p", "above", 1, 31, 31)
    assert watch.look((near, again), 2).worst == ("p", "above"), "compacted once, it is like any other"
