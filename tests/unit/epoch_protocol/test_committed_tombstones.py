"""Which messages of the tombstones topic belong to committed transactions."""

from __future__ import annotations

import random

import msgspec
import pytest

from tidemark.epoch_protocol.entries import Counts, Produced, Topic, TransactionTagged
from tidemark.epoch_protocol.tombstones import CommittedTombstones

LANE = "3"


def tagged(nonce: str, term: int, first: int, last: int, batches: int) -> TransactionTagged:
    part = Produced(Topic.TOMBSTONES, int(LANE), first, last, batches, batches, 0)
    other = Produced(Topic.INDEX, int(LANE), 0, 0, 1, 1, 0)
    return TransactionTagged(0, nonce, 0, {LANE: term}, [], [other, part], Counts(), 0, "")


def test_transactions_under_one_claim_share_a_range_across_their_markers() -> None:
    committed = CommittedTombstones(whole=True)
    committed.commit([tagged("a", 7, 0, 1, 2), tagged("b", 7, 3, 3, 1)])
    committed.commit([tagged("c", 7, 5, 5, 1)])
    assert [(each.first, each.next) for each in committed.lanes[LANE]] == [(0, 6)]
    assert committed.of(LANE).end == 6
    assert committed.of("4").end is None


def test_what_lies_between_two_claims_does_not_count() -> None:
    committed = CommittedTombstones(whole=True)
    # At 2 a message that was rewound, 3 its marker; at 5 one whose owner had lost its claim.
    committed.commit([tagged("a", 7, 0, 0, 1), tagged("b", 9, 4, 4, 1), tagged("c", 9, 7, 7, 1)])
    found = [offset for offset in range(9) if committed.of(LANE).holds(offset, "?")]
    assert found == [0, 4, 7]


def test_another_claim_begins_a_range_although_only_a_marker_seems_to_lie_between() -> None:
    """The one offset between them may be a message of a third transaction: markers may come later."""
    committed = CommittedTombstones(whole=True)
    committed.commit([tagged("a", 7, 0, 0, 1), tagged("b", 9, 2, 2, 1)])
    assert not committed.of(LANE).holds(1, "late")


def test_a_transaction_with_others_messages_among_its_own_is_told_by_its_nonce() -> None:
    committed = CommittedTombstones(whole=True)
    committed.commit([tagged("a", 7, 0, 4, 2), tagged("b", 7, 6, 6, 1)])
    lane = committed.of(LANE)
    assert lane.holds(0, "a")
    assert not lane.holds(2, "late")
    assert lane.holds(6, "b")


def test_of_a_former_version_all_counts_that_lies_before_the_first_range() -> None:
    committed = msgspec.json.decode(b"{}", type=CommittedTombstones)
    assert committed.of(LANE).holds(4, "?")
    committed.commit([tagged("b", 9, 6, 6, 1)])
    assert committed.of(LANE).holds(4, "?")
    assert not committed.of(LANE).holds(7, "?")


@pytest.mark.parametrize("whole", [True, False])
def test_ranges_are_forgotten_once_the_partition_begins_behind_them_and_the_last_one_stays(
    whole: bool,
) -> None:
    committed = CommittedTombstones(whole=whole)
    committed.commit([tagged("a", 7, 0, 0, 1), tagged("b", 9, 6, 6, 1), tagged("c", 11, 12, 12, 1)])
    before = {offset: committed.of(LANE).holds(offset, "?") for offset in range(14)}
    for start in range(20):
        committed.forget_below({LANE: start, "4": 9})
        lane = committed.of(LANE)
        assert all(lane.holds(offset, "?") is before[offset] for offset in range(start, 14))
        assert lane.end == 13
    assert len(committed.lanes[LANE]) == 1


@pytest.mark.parametrize("seed", range(200))
def test_any_log_of_owners_and_zombies_is_told_apart(seed: int) -> None:
    """Owners one after the other, some of whose last transactions are rewound; zombies' messages anywhere."""
    dice = random.Random(seed)
    log: list[tuple[str, bool]] = []  # (nonce, whether it is committed and counts); markers: ""
    committed = CommittedTombstones(whole=True)
    for term in range(dice.randint(1, 5)):
        counting, late_marker = dice.randint(0, 4), dice.random() < 0.3
        for number in range(counting + dice.randint(0, 2)):
            nonce, counts = f"{term}-{number}", number < counting
            places = []
            for _ in range(dice.randint(1, 3)):
                if dice.random() < 0.2:
                    log.append((f"zombie-{term}-{len(log)}", False))
                places.append(len(log))
                log.append((nonce, counts))
            if not (late_marker and number == counting - 1):
                log.append(("", False))
            if counts:
                committed.commit([tagged(nonce, term, places[0], places[-1], len(places))])
    lane = committed.of(LANE)
    for offset, (nonce, counts) in enumerate(log):
        if nonce:
            assert lane.holds(offset, nonce) is counts, (seed, offset, log)
