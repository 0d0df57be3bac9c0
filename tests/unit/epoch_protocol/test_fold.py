"""What counts: each rule of the fold, one at a time, and that the order of reading does not matter."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.epoch_protocol.builders import (
    claim,
    committed,
    coordinator,
    decide,
    keyed,
    plan,
    rewound,
    shuffled,
    tagged,
)
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    CoordinatorClaimed,
    Decision,
    LedgerEntry,
    Stage,
    TransactionBegun,
    decode_decision,
    decode_ledger_entry,
    encode_entry,
)
from tidemark.epoch_protocol.errors import FoldGapError, UnknownEntryError
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.service_entries import ServicesPaused


def test_transaction_of_the_newest_claim_counts_and_moves_the_lane() -> None:
    fold = Fold()
    assert fold.apply_ledger(0, claim(["0"])) is Verdict.CLAIMED
    assert fold.apply_ledger(2, tagged({"0": (0, 5)}, {"0": 0})) is Verdict.COUNTS
    assert fold.state.assign_lanes["0"].next == 5
    assert [t.offset for t in fold.state.tagged] == [2]


def test_transaction_of_an_older_claim_does_not_count() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, claim(["0"], slot=1))
    assert fold.apply_ledger(2, tagged({"0": (0, 5)}, {"0": 0})) is Verdict.STALE_TERM
    assert fold.state.assign_lanes["0"].next == 0
    assert fold.apply_ledger(3, tagged({"0": (0, 5)}, {"0": 1})) is Verdict.COUNTS


def test_transaction_counts_as_a_whole_or_not_at_all() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["0", "1"]))
    fold.apply_ledger(1, claim(["1"], slot=1))
    verdict = fold.apply_ledger(2, tagged({"0": (0, 5), "1": (0, 3)}, {"0": 0, "1": 0}))
    assert verdict is Verdict.STALE_TERM
    assert fold.state.assign_lanes["0"].next == 0


@pytest.mark.parametrize("start", [0, 4, 6])
def test_transaction_that_does_not_continue_does_not_count(start: int) -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, tagged({"0": (0, 5)}, {"0": 0}))
    assert fold.apply_ledger(2, tagged({"0": (start, 9)}, {"0": 0})) is Verdict.STALE_POSITION


def test_empty_consumed_range_does_not_count() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    assert fold.apply_ledger(1, tagged({"0": (0, 0)}, {"0": 0})) is Verdict.STALE_POSITION


def test_input_lane_may_begin_anywhere_but_never_jumps_later() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["in:0"], stage=Stage.SHUFFLE))
    assert fold.apply_ledger(1, shuffled("in:0", 500, 510, 0, [keyed(0, 0, 9)])) is Verdict.COUNTS
    assert fold.apply_ledger(2, shuffled("in:0", 520, 530, 0, [])) is Verdict.STALE_POSITION


def test_claims_of_the_two_stages_are_unrelated() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    assert fold.apply_ledger(1, shuffled("0", 0, 5, 0, [])) is Verdict.STALE_TERM


def test_decision_of_a_replaced_coordinator_is_ignored() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, coordinator())
    assert fold.apply_decision(2, plan(0, 1, through=1)) is Verdict.STALE_COORDINATOR
    assert fold.apply_decision(3, plan(1, 1, through=1)) is Verdict.APPLIED


def test_pause_of_table_services_stays_over_a_snapshot_and_counts_only_in_its_term() -> None:
    fold = Fold()
    fold.apply_decision(0, CoordinatorClaimed("a"))
    assert fold.apply_decision(1, ServicesPaused(7, True, "x")) is Verdict.STALE_COORDINATOR
    assert fold.apply_decision(2, ServicesPaused(0, True, "Spark clusters")) is Verdict.APPLIED
    state = Fold.restore(fold.snapshot()).state
    assert (state.services_paused, state.services_pause_reason) == (True, "Spark clusters")
    assert not state.paused, "tagging goes on"
    assert fold.apply_decision(3, ServicesPaused(0, False, "")) is Verdict.APPLIED
    assert not fold.state.services_paused


def test_epoch_commits_only_after_plan_and_decision() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    assert fold.apply_decision(1, committed(0, 1)) is Verdict.OUT_OF_PLACE
    fold.apply_decision(2, plan(0, 1, through=1))
    assert fold.apply_decision(3, committed(0, 1)) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(4, decide(0, 1, attempt=2)) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(5, decide(0, 1)) is Verdict.APPLIED
    assert fold.apply_decision(6, committed(0, 1)) is Verdict.APPLIED
    state = fold.state
    assert (state.committed.epoch, state.committed.through, state.committed.instant) == (1, 1, "i1")
    assert state.tagged == []
    assert state.committed_counts.inserts == 1


def test_second_plan_while_one_is_open_is_out_of_place() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    assert fold.apply_decision(2, plan(0, 1, through=1, attempt=2)) is Verdict.OUT_OF_PLACE


def test_plan_of_a_generation_that_was_rewound_is_out_of_place() -> None:
    """Its manifest was made of tags that the rewind took back."""
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, rewound(0, 1, to=-1))
    fold.apply_ledger(2, claim(["0"], generation=1))
    fold.apply_ledger(3, tagged({"0": (0, 5)}, {"0": 2}, generation=1))
    assert fold.apply_decision(2, plan(0, 1, through=3, generation=0)) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(3, plan(0, 1, through=3, generation=1)) is Verdict.APPLIED


def test_decided_attempt_cannot_be_voided() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    fold.apply_decision(2, decide(0, 1))
    assert fold.apply_decision(3, AttemptVoided(0, 1, 1, "late")) is Verdict.OUT_OF_PLACE


def test_voided_attempt_is_planned_again_with_the_next_number() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    assert fold.apply_decision(2, AttemptVoided(0, 1, 1, "writer failed")) is Verdict.APPLIED
    assert [(v.epoch, v.attempt) for v in fold.state.voided] == [(1, 1)]
    assert fold.apply_decision(3, plan(0, 1, through=1, attempt=1)) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(4, plan(0, 1, through=1, attempt=2)) is Verdict.APPLIED
    assert fold.state.voided == []


def test_rewind_takes_lanes_back_and_voids_old_claims() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, rewound(0, 1, to=-1))
    assert fold.state.tagged == []
    assert fold.apply_ledger(2, tagged({"0": (5, 9)}, {"0": 0})) is Verdict.STALE_GENERATION
    assert fold.apply_ledger(3, claim(["0"])) is Verdict.STALE_GENERATION
    assert fold.apply_ledger(4, claim(["0"], generation=1)) is Verdict.CLAIMED
    assert fold.apply_ledger(5, tagged({"0": (0, 5)}, {"0": 4}, generation=1)) is Verdict.COUNTS


def test_only_the_last_rewind_is_kept_and_judges_all_that_follows() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    fold.apply_decision(2, decide(0, 1))
    fold.apply_decision(3, rewound(0, 1, to=-1))  # out of place: an epoch is planned
    assert (fold.state.rewinds, fold.state.generation) == ([], 0)
    fold.apply_decision(4, committed(0, 1))
    for generation in range(1, 6):
        assert fold.apply_decision(4 + generation, rewound(0, generation, to=1)) is Verdict.APPLIED
    assert len(fold.state.rewinds) == 1
    assert fold.state.generation == 5
    assert {fold.state.generation_at(offset) for offset in range(2, 50)} == {5}
    assert fold.apply_ledger(2, claim(["0"], generation=4)) is Verdict.STALE_GENERATION
    assert fold.apply_ledger(3, claim(["0"], generation=5)) is Verdict.CLAIMED


def test_ledger_entry_of_an_unseen_generation_waits_for_the_decisions() -> None:
    fold = Fold()
    assert fold.apply_ledger(0, claim(["0"], generation=1)) is Verdict.WAIT_FOR_DECISIONS
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, rewound(0, 1, to=-1))
    assert fold.apply_ledger(0, claim(["0"], generation=1)) is Verdict.CLAIMED


def test_decision_about_unseen_ledger_entries_waits_for_the_ledger() -> None:
    fold = Fold()
    fold.apply_decision(0, coordinator())
    assert fold.apply_decision(1, plan(0, 1, through=1)) is Verdict.WAIT_FOR_LEDGER
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, tagged({"0": (0, 5)}, {"0": 0}))
    assert fold.apply_decision(1, plan(0, 1, through=1)) is Verdict.APPLIED


def test_source_positions_stop_at_the_first_batch_that_is_not_tagged() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["in:0"], stage=Stage.SHUFFLE))
    fold.apply_ledger(1, claim(["0", "1"]))
    fold.apply_ledger(2, shuffled("in:0", 0, 10, 0, [keyed(0, 0, 0), keyed(1, 0, 0)]))
    fold.apply_ledger(3, shuffled("in:0", 10, 20, 0, [keyed(0, 2, 2)]))
    fold.apply_ledger(4, tagged({"0": (0, 3)}, {"0": 1}))
    assert fold.source_next(4) == {}
    fold.apply_ledger(5, tagged({"1": (0, 1)}, {"1": 1}))
    assert fold.source_next(4) == {}
    assert fold.source_next(5) == {"in:0": 20}


def test_dead_letters_alone_move_the_source_position() -> None:
    fold = Fold()
    fold.apply_ledger(0, claim(["in:0"], stage=Stage.SHUFFLE))
    fold.apply_ledger(1, shuffled("in:0", 0, 10, 0, [], dead_letters=10))
    assert fold.source_next(1) == {"in:0": 10}
    assert fold.state.dead_letters == 10


def test_applying_an_offset_twice_is_an_error() -> None:
    fold = _one_counted()
    with pytest.raises(FoldGapError, match="offset 1"):
        fold.apply_ledger(1, TransactionBegun(Stage.ASSIGN, 0, "n"))


def test_snapshot_restores_to_the_same_future() -> None:
    fold = _one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    restored = Fold.restore(fold.snapshot())
    for each in (fold, restored):
        each.apply_decision(2, decide(0, 1))
        each.apply_decision(3, committed(0, 1))
        each.apply_ledger(2, tagged({"0": (5, 9)}, {"0": 0}))
    assert fold.snapshot() == restored.snapshot()
    assert restored.state.assign_lanes["0"].next == 9


def test_wire_form_round_trips_and_unknown_types_are_refused() -> None:
    entry = tagged({"0": (0, 5)}, {"0": 0})
    assert decode_ledger_entry(encode_entry(entry)) == entry
    decision = plan(0, 1, through=1)
    assert decode_decision(encode_entry(decision)) == decision
    with pytest.raises(UnknownEntryError, match="newer Tidemark"):
        decode_ledger_entry(b'{"type": "from_the_future"}')


@given(st.integers(0, 10_000))
def test_order_of_reading_the_two_topics_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    ledger, decisions = _history(rng)
    straight = _read(ledger, decisions, lambda: True)
    shuffled_reading = _read(ledger, decisions, lambda: rng.random() < 0.5)
    decisions_first = _read(ledger, decisions, lambda: False)
    assert straight == shuffled_reading == decisions_first


def _one_counted() -> Fold:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, tagged({"0": (0, 5)}, {"0": 0}))
    return fold


def _history(rng: random.Random) -> tuple[list[tuple[int, LedgerEntry]], list[tuple[int, Decision]]]:
    """A history as real services could write it: each writer has read what it builds on."""
    ledger: list[tuple[int, LedgerEntry]] = []
    decisions: list[tuple[int, Decision]] = [(0, coordinator())]
    live = Fold()
    live.apply_decision(0, coordinator())
    stale_terms: list[int] = [0]

    def put(entry: LedgerEntry) -> None:
        offset = (ledger[-1][0] + rng.choice([1, 2])) if ledger else 0
        ledger.append((offset, entry))
        live.apply_ledger(offset, entry)

    def say(decision: Decision) -> None:
        offset = decisions[-1][0] + rng.choice([1, 2])
        decisions.append((offset, decision))
        live.apply_decision(offset, decision)

    for _ in range(rng.randrange(5, 60)):
        state = live.state
        lane = rng.choice(["0", "1"])
        held = state.assign_lanes.get(lane)
        step = rng.random()
        if step < 0.25 or held is None:
            generation = state.generation if rng.random() < 0.8 else max(0, state.generation - 1)
            put(claim([lane], generation=generation, slot=rng.randrange(2)))
        elif step < 0.75:
            term = held.term if held.term is not None and rng.random() < 0.8 else rng.choice(stale_terms)
            start = held.next if rng.random() < 0.9 else held.next + 1
            stale_terms.append(term)
            generation = state.generation if rng.random() < 0.9 else max(0, state.generation - 1)
            put(tagged({lane: (start, start + 3)}, {lane: term}, generation=generation))
        elif state.planned is None and state.tagged and step < 0.95:
            through = rng.choice(state.tagged).offset
            epoch, attempt = state.committed.epoch + 1, state.attempts + 1
            say(plan(0, epoch, through, attempt=attempt, generation=state.generation))
            if rng.random() < 0.7:
                say(decide(0, epoch, attempt=attempt))
                say(committed(0, epoch, attempt=attempt))
            else:
                say(AttemptVoided(0, epoch, attempt, "x"))
        elif state.planned is None:
            say(rewound(0, state.generation + 1, to=state.committed.through))
    return ledger, decisions


def _read(ledger, decisions, ledger_first) -> bytes:
    fold = Fold()
    left, right = list(ledger), list(decisions)
    while left or right:
        moved = False
        order = ["ledger", "decisions"] if ledger_first() else ["decisions", "ledger"]
        for side in order:
            queue = left if side == "ledger" else right
            if not queue:
                continue
            offset, entry = queue[0]
            verdict = (
                fold.apply_ledger(offset, entry) if side == "ledger" else fold.apply_decision(offset, entry)
            )
            if verdict not in (Verdict.WAIT_FOR_DECISIONS, Verdict.WAIT_FOR_LEDGER):
                queue.pop(0)
                moved = True
                break
        assert moved, "the two topics wait for each other"
    return fold.snapshot()


def test_a_lane_without_a_committed_position_keeps_its_first_one_over_rewinds():
    """`input.start: latest` chooses it once; choosing again would lose what lies in between."""
    fold = Fold()
    fold.apply_decision(0, CoordinatorClaimed("c"))
    fold.apply_ledger(0, claim(["0", "1"]))
    fold.apply_ledger(1, tagged({"0": (1_000, 1_010)}, {"0": 0}))
    fold.apply_ledger(2, tagged({"0": (1_010, 1_020)}, {"0": 0}))
    for generation in (1, 2):
        assert fold.rewind_starts() == {"0": 1_000}
        starts = fold.rewind_starts()
        entry = msgspec.structs.replace(rewound(0, generation, to=-1), starts=starts)
        assert fold.apply_decision(generation, entry) is Verdict.APPLIED
        assert fold.state.assign_lanes["0"].next == 1_000
    fold.apply_ledger(3, claim(["0"], generation=2))
    again = tagged({"0": (2_000, 2_010)}, {"0": 3}, generation=2)
    assert fold.apply_ledger(4, again) is Verdict.STALE_POSITION
