"""What may be gathered keeps to the memory for uncommitted entries, and something always may be gathered once
everything is committed.
"""

from __future__ import annotations

import pytest

from tests.unit.index_assigner.index.test_uncommitted import changes
from tidemark.index_assigner.assign.uncommitted_limits import UncommittedLimits
from tidemark.index_assigner.index.uncommitted import LaneEntries
from tidemark.index_assigner.slots.stage_work import Budget

BUDGET = Budget(5_000, 1 << 20)


@pytest.mark.parametrize("width", [18, 300, 8_192])
@pytest.mark.parametrize("lanes", [1, 4])
def test_transaction_by_transaction_the_entries_fill_their_memory_and_no_more(lanes: int, width: int) -> None:
    limits = UncommittedLimits(memory=4 << 20)
    held = [LaneEntries() for _ in range(lanes)]
    last = tagged = 0
    for epoch in range(2):
        largest = 0
        while (
            allowed := limits.allowed(
                BUDGET, sum(map(len, held)), sum(lane.nbytes for lane in held if len(lane)), []
            )
        ) is not None:
            rows = max(min(allowed.records, allowed.bytes // width), 1)
            keys = [b"%0*d" % (width, last + row) for row in range(rows)]
            held[tagged % lanes].stage(keys, changes([1] * rows))
            last, tagged = last + rows, tagged + 1
            for lane in held:
                lane.counted(tagged, None)
            largest = max(largest, sum(lane.nbytes for lane in held))
        assert 0.75 * limits.memory < largest <= limits.memory, epoch
        for lane in held:
            lane.discard_through(tagged)


@pytest.mark.parametrize("width", [18, 8_192])
def test_what_one_assigner_takes_over_is_held_above_the_limit_and_its_commit_makes_room(width: int) -> None:
    limits, owners = UncommittedLimits(memory=1 << 20), 3
    heir = LaneEntries()
    for offset in range(owners):
        rows = limits.memory // (width + 96)
        heir.stage([b"%0*d" % (width, offset * rows + row) for row in range(rows)], changes([1] * rows))
        heir.counted(offset, None)
    assert heir.nbytes > 2 * limits.memory
    assert limits.allowed(BUDGET, len(heir), heir.nbytes, []) is None
    heir.discard_through(owners - 1)
    assert limits.allowed(BUDGET, len(heir), 0, []) is not None


def test_memory_that_not_even_one_entry_fits_into_lets_one_transaction_pass() -> None:
    limits = UncommittedLimits(memory=0)
    assert limits.allowed(BUDGET, 0, 0, []) == Budget(64, 64 * 128)
    assert limits.allowed(Budget(3, 9), 0, 0, []) == Budget(3, 9)
    assert limits.allowed(BUDGET, 1, 4_160, []) is None


def test_a_limit_of_entries_holds_as_well() -> None:
    limits = UncommittedLimits(memory=1 << 30, entries=10)
    assert limits.allowed(BUDGET, 9, 100, []) == BUDGET
    assert limits.allowed(BUDGET, 10, 100, []) is None
