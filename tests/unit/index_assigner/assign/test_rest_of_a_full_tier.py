"""The memory for uncommitted entries is full: how long tagging rests. The coordinator's planner and pauses
work together here with the limits and entries of all assigners, by a clock that the test moves.

When tagging begins to rest, something is tagged, so an epoch is due within its interval and the time for
which a plan waits for more; what it does not cover is planned at once as long as that has the bytes of an
epoch. So a rest lasts that long, and as long as it takes to write what is held. An epoch asks nobody for
room.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from tests.unit.epoch_protocol.builders import tagged
from tests.unit.index_assigner.index.test_uncommitted import changes
from tidemark.commit_coordinator.calls.pausing import pause_of
from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.domain import next_action as planner
from tidemark.commit_coordinator.domain.actions import Plan
from tidemark.commit_coordinator.domain.membership import Uncommitted
from tidemark.commit_coordinator.domain.next_action import Limits, Observed, next_action
from tidemark.config.model import LimitsConfig
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.state import Committed, CountedTagged, FoldState
from tidemark.index_assigner.assign.uncommitted_limits import UncommittedLimits
from tidemark.index_assigner.index.held_lane import HeldLane, HeldLanes
from tidemark.index_assigner.index.shown_timeline import ShownTimeline
from tidemark.index_assigner.slots.stage_work import Budget

INTERVAL_MS, GATHER_MS, WRITE_MS, STEP_MS = 1_000, 400, 600, 50
BUDGET = Budget(400, 1 << 20)
ASSIGNERS, WIDTH, ROW_BYTES = 3, 40, 100


@dataclass
class Pipeline:
    """Assigners with a lane each. ``left``: rows of their lanes that are not tagged. ``rests``: how long each
    rest of tagging lasted while there was input, in all assigners.
    """

    memory: int
    epoch_bytes: int
    left: dict[int, int]
    state: FoldState = field(default_factory=FoldState)
    seen: Observed = field(default_factory=Observed)
    now_ms: int = 1_000_000
    writes_until_ms: int | None = None
    covers: int = 0
    epochs: list[int] = field(default_factory=list)
    rests: list[int] = field(default_factory=list)
    largest: int = 0

    def __post_init__(self) -> None:
        self.lanes = {lane: HeldLane(lane, cast(ShownTimeline, None)) for lane in self.left}
        # Assigner -> what it holds.
        self.holders = {lane: HeldLanes({lane: held}) for lane, held in self.lanes.items()}
        self.offset, self.resting_ms = 0, 0
        self.transactions: list[tuple[int, int, list[bytes]]] = []

    @property
    def held(self) -> Uncommitted:
        """As the coordinator knows it from all assigners' reports."""
        holders = self.holders.values()
        return Uncommitted(
            sum(held.uncommitted_entries() for held in holders),
            sum(held.uncommitted_memory() for held in holders),
        )

    def is_resting(self) -> bool:
        return self.resting_ms > 0

    def step(self) -> None:
        self.now_ms += STEP_MS
        before, had_input = self.offset, any(self.left.values())
        for held in self.holders.values():
            self.tag(held)
        if self.offset == before and had_input:
            self.resting_ms += STEP_MS
        elif self.resting_ms:
            self.rests.append(self.resting_ms)
            self.resting_ms = 0
        self.largest = max(self.largest, self.held.memory)
        self.coordinate()

    def tag(self, held: HeldLanes) -> None:
        view = CoordinatorView(uncommitted_transactions=len(self.state.tagged))
        if pause_of(Stage.ASSIGN, view, self.held, LimitsConfig(), self.memory).paused:
            return
        limits = UncommittedLimits(self.memory)
        allowed = limits.allowed(BUDGET, held.uncommitted_entries(), held.uncommitted_memory(), [])
        lane = max(held, key=lambda lane: self.left[lane])
        if allowed is None or not self.left[lane]:
            return
        rows = min(max(min(allowed.records, allowed.bytes // WIDTH), 1), self.left[lane])
        keys = [b"%0*d" % (WIDTH, self.left[lane] * 10 + lane + row * 1_000_000) for row in range(rows)]
        self.left[lane] -= rows
        self.offset += 1
        self.load(held.lane(lane), self.offset, keys)
        self.transactions.append((lane, self.offset, keys))
        entry = tagged({str(lane): (self.offset, self.offset + 1)}, {str(lane): 0}, rows=rows)
        entry = msgspec.structs.replace(entry, bytes=rows * ROW_BYTES)
        self.state.tagged.append(CountedTagged(self.offset, entry))

    def load(self, lane: HeldLane, offset: int, keys: list[bytes]) -> None:
        lane.entries.stage(keys, changes([1] * len(keys)))
        lane.entries.counted(offset, None)

    def taken_over(self) -> None:
        """One assigner takes all lanes over, and loads what the others had tagged and no epoch covers."""
        heir = HeldLanes({lane: HeldLane(lane, cast(ShownTimeline, None)) for lane in self.lanes})
        for lane, offset, keys in self.transactions:
            if offset > self.state.committed.through:
                self.load(heir.lane(lane), offset, keys)
        self.holders = {0: heir}

    def coordinate(self) -> None:
        if self.writes_until_ms is None:
            self.seen.noted(self.state, self.now_ms)
            limits = Limits(INTERVAL_MS, self.epoch_bytes, 4, GATHER_MS)
            action = next_action(self.state, self.seen, limits, self.now_ms)
            if isinstance(action, Plan):
                self.covers, self.seen.planned_at_ms = action.through, self.now_ms
                self.writes_until_ms = self.now_ms + WRITE_MS
        elif self.now_ms >= self.writes_until_ms:
            self.commit()

    def commit(self) -> None:
        self.writes_until_ms = None
        self.epochs.append(self.covers)
        self.state.committed = Committed(len(self.epochs), self.covers)
        self.state.tagged = [each for each in self.state.tagged if each.offset > self.covers]
        for held in self.holders.values():
            for lane in held.values():
                lane.entries.discard_through(self.covers)

    def run(self, until: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if until():
                return
            self.step()
        raise AssertionError(f"tagging rests for ever: {self.held}, {self.left}, epochs {self.epochs}")


@pytest.mark.parametrize("waits", [False, True], ids=["plans-at-once", "plans-wait-for-more"])
@pytest.mark.parametrize("epoch_rows", [1_000_000, 1_500], ids=["one-epoch", "many-epochs"])
@pytest.mark.parametrize("takes_over", [False, True], ids=["three-assigners", "one-takes-over"])
def test_a_rest_lasts_an_interval_and_the_writing_of_what_is_held(
    monkeypatch: pytest.MonkeyPatch, waits: bool, epoch_rows: int, takes_over: bool
) -> None:
    # The worst case: what is shuffled always seems worth waiting for, though nobody tags it.
    monkeypatch.setattr(planner, "worth_waiting", lambda state: waits)
    memory = 256 << 10
    line = Pipeline(memory, epoch_rows * ROW_BYTES, dict.fromkeys(range(ASSIGNERS), memory // 20))
    line.run(line.is_resting)
    if takes_over:
        line.taken_over()
    assert line.state.tagged, "it rests, and there is nothing to commit"
    line.run(lambda: not any(line.left.values()) and not line.state.tagged)
    # A write that had begun before counts as well.
    epochs = 2 + line.largest // 80 // epoch_rows
    longest = INTERVAL_MS + GATHER_MS * waits + epochs * (WRITE_MS + 2 * STEP_MS) + STEP_MS
    assert line.rests
    assert max(line.rests) <= longest, (line.rests, longest)
    assert line.held == Uncommitted()


def test_a_planned_epoch_fits_where_one_assigner_takes_over_more_than_its_memory() -> None:
    """Each of them filled its memory before any report came. The heir holds it all, and tags nothing before
    the commit.
    """
    memory = 128 << 10
    line = Pipeline(memory, 1 << 30, dict.fromkeys(range(ASSIGNERS), 20_000))
    for lane, held in line.holders.items():
        alone = Pipeline(memory, 1 << 30, {lane: 20_000})
        alone.offset = line.offset
        alone.run(alone.is_resting)
        line.transactions += alone.transactions
        line.state.tagged += alone.state.tagged
        line.offset, line.left[lane] = alone.offset, alone.left[lane]
        assert held.uncommitted_entries() == 0
    line.taken_over()
    first, offset, tagged_rows = line.held, line.offset, len(line.state.tagged)
    assert first.memory > 2 * memory
    line.run(lambda: bool(line.epochs))
    assert (line.offset, line.epochs) == (offset, [offset]), (
        "the first epoch covers all, and nothing was added"
    )
    assert tagged_rows > 0
    assert line.held == Uncommitted()
    line.run(lambda: not any(line.left.values()) and not line.state.tagged)


@pytest.mark.parametrize("memory", [0, 1_000])
def test_memory_below_that_of_an_empty_lane_lets_transaction_after_transaction_through(memory: int) -> None:
    line = Pipeline(memory, 1 << 30, dict.fromkeys(range(ASSIGNERS), 150))
    line.run(lambda: not any(line.left.values()) and not line.state.tagged)
    assert max(line.rests) <= INTERVAL_MS + 2 * (WRITE_MS + 2 * STEP_MS) + STEP_MS
