"""Which stage rests when: what drains a full queue may never rest because of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.epoch_protocol.builders import shuffled
from tidemark.commit_coordinator.calls.pausing import Pause, pause_of
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.view import CoordinatorView, take_view
from tidemark.commit_coordinator.domain.actions import Wait
from tidemark.commit_coordinator.domain.membership import Uncommitted
from tidemark.commit_coordinator.domain.next_action import Observed
from tidemark.config.model import LimitsConfig
from tidemark.epoch_protocol.entries import Counts, Stage, TransactionTagged
from tidemark.epoch_protocol.fold import Fold
from tidemark.epoch_protocol.state import CountedShuffle, CountedTagged, FoldState

LIMITS = LimitsConfig(
    uncommitted_entries=10, shuffled_transactions=3, uncommitted_transactions=4, uncommitted_bytes=1_000
)

NONE, MEMORY = Uncommitted(), 500


def view_of(shuffles: int) -> CoordinatorView:
    entry = shuffled("in:0", 0, 5, 0, [])
    state = FoldState(shuffled=[CountedShuffle(offset, entry) for offset in range(shuffles)])
    return take_view(Fold(state), Observed(), Wait("nothing"), term=1, now_ms=5, inputs=InputPositions())


def test_shuffling_alone_rests_while_its_transactions_pile_up() -> None:
    assert pause_of(Stage.SHUFFLE, view_of(2), NONE, LIMITS, MEMORY) == Pause(False, "")
    resting = pause_of(Stage.SHUFFLE, view_of(3), NONE, LIMITS, MEMORY)
    assert resting.paused
    assert "limits.shuffled_transactions is 3" in resting.reason
    assert pause_of(Stage.ASSIGN, view_of(3), NONE, LIMITS, MEMORY) == Pause(False, "")


@pytest.mark.parametrize(
    ("transactions", "size", "limit"),
    [(4, 0, "limits.uncommitted_transactions is 4"), (1, 1_000, "limits.uncommitted_bytes is 1000")],
)
def test_tagging_alone_rests_while_much_of_it_is_not_committed(
    transactions: int, size: int, limit: str
) -> None:
    """Also where updates make no index entries: what is tagged is bounded by itself."""
    entry = TransactionTagged(0, "n", 0, {}, [], [], Counts(), size, "s")
    state = FoldState(tagged=[CountedTagged(offset, entry) for offset in range(transactions)])
    view = take_view(Fold(state), Observed(), Wait("nothing"), term=1, now_ms=5, inputs=InputPositions())
    resting = pause_of(Stage.ASSIGN, view, NONE, LIMITS, MEMORY)
    assert resting.paused
    assert limit in resting.reason
    assert pause_of(Stage.SHUFFLE, view, NONE, LIMITS, MEMORY) == Pause(False, "")
    state.tagged.pop()
    below = take_view(Fold(state), Observed(), Wait("nothing"), term=1, now_ms=5, inputs=InputPositions())
    assert pause_of(Stage.ASSIGN, below, NONE, LIMITS, MEMORY) == Pause(False, "")


def test_nobody_rests_for_memory_that_no_commit_gives_back() -> None:
    """A limit below what an empty lane takes must not keep the table at rest for ever."""
    for stage in Stage:
        assert pause_of(stage, view_of(0), Uncommitted(0, MEMORY), LIMITS, MEMORY) == Pause(False, "")


def test_entries_are_not_counted_without_a_limit_of_them() -> None:
    many = Uncommitted(1_000_000_000, MEMORY - 1)
    assert pause_of(Stage.ASSIGN, view_of(0), many, LimitsConfig(), MEMORY) == Pause(False, "")


@pytest.mark.parametrize("stage", list(Stage))
def test_both_stages_rest_for_an_operator_a_halt_and_what_the_index_holds(stage: Stage) -> None:
    assert (
        pause_of(stage, CoordinatorView(paused=True, pause_reason="why"), NONE, LIMITS, MEMORY).reason
        == "why"
    )
    assert pause_of(stage, CoordinatorView(halted="broken"), NONE, LIMITS, MEMORY).reason == "broken"
    assert (
        "limits.uncommitted_entries is 10"
        in pause_of(stage, view_of(0), Uncommitted(10, 0), LIMITS, MEMORY).reason
    )
    full = pause_of(stage, view_of(0), Uncommitted(1, MEMORY), LIMITS, MEMORY)
    assert full.paused
    assert "three eighths of state.memory are 500" in full.reason
    assert not pause_of(stage, view_of(0), Uncommitted(9, MEMORY - 1), LIMITS, MEMORY).paused


@pytest.mark.parametrize("stage", list(Stage))
def test_nobody_rests_while_an_epoch_that_was_given_up_is_tried_again(stage: Stage) -> None:
    """A rewind may come first: its lanes are to be tagged anew."""
    view = CoordinatorView(halted="ten attempts", given_up=True)
    assert pause_of(stage, view, NONE, LIMITS, MEMORY).paused
    assert not pause_of(stage, replace(view, tries_again=True), NONE, LIMITS, MEMORY).paused
    by_hand = replace(view, tries_again=True, paused=True, pause_reason="why")
    assert pause_of(stage, by_hand, NONE, LIMITS, MEMORY) == Pause(True, "why")


def test_tagging_alone_rests_while_services_do_not_keep_up() -> None:
    view = CoordinatorView(tagging_rests="compact-data is behind")
    assert pause_of(Stage.ASSIGN, view, NONE, LIMITS, MEMORY) == Pause(True, "compact-data is behind")
    assert pause_of(Stage.SHUFFLE, view, NONE, LIMITS, MEMORY) == Pause(False, "")
