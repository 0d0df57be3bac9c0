"""What the fold says was seen of the timeline, and where a lane of an earlier version or a rewind starts."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.epoch_protocol.builders import (
    claim,
    committed,
    coordinator,
    decide,
    plan,
    rewound,
    tagged,
)
from tidemark.epoch_protocol.entries import EpochCommitted, TimelineSeen, decode_decision, encode_entry
from tidemark.epoch_protocol.fold import Fold, Verdict
from tidemark.epoch_protocol.seen import SeenInstants, action_of, completion_of, name_of, requested_of
from tidemark.epoch_protocol.state import FoldState


def t(number: int) -> str:
    return f"2026010100000{number:04d}"


def name(requested: int, completion: int, action: str = "deltacommit") -> str:
    return name_of(t(requested), t(completion), action)


def begun() -> Fold:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, tagged({"0": (0, 5)}, {"0": 0}))
    fold.apply_decision(0, coordinator())
    return fold


def test_an_identity_has_its_three_parts():
    found = name(1, 2, "commit")
    assert (requested_of(found), completion_of(found), action_of(found)) == (t(1), t(2), "commit")


def test_looks_add_and_remove_and_the_start_never_goes_back():
    fold = begun()
    assert fold.apply_decision(1, TimelineSeen(0, t(3), [name(3, 9)])) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(2, TimelineSeen(0, t(3), [name(3, 9)], anew=True)) is Verdict.APPLIED
    assert fold.apply_decision(3, TimelineSeen(0, t(2), [name(2, 5)])) is Verdict.APPLIED
    seen = fold.state.seen
    assert seen is not None
    assert (seen.start, seen.newest, seen.names) == (t(3), t(9), {name(3, 9), name(2, 5)})
    fold.apply_decision(4, TimelineSeen(0, t(4), [], [name(3, 9)]))
    assert (seen.start, seen.newest, seen.names) == (t(4), t(9), {name(2, 5)})
    assert Fold.restore(fold.snapshot()).state == fold.state


def test_a_rollback_is_seen_and_no_stamp_lies_at_it():
    seen = SeenInstants()
    seen.add([name(1, 2), name(5, 9, "rollback")])
    assert seen.newest == t(2)


def commit_of(action: str) -> EpochCommitted:
    return msgspec.structs.replace(committed(0, 1), instant=t(10), completion=t(11), action=action)


@pytest.mark.parametrize(("action", "names"), [("deltacommit", {name(10, 11)}), ("", None)])
def test_a_commit_of_ours_sees_itself_and_one_of_an_earlier_version_ends_the_set(action, names):
    fold = begun()
    fold.apply_decision(1, TimelineSeen(0, "", [], anew=True))
    fold.apply_decision(2, plan(0, 1, through=1))
    fold.apply_decision(3, decide(0, 1))
    assert fold.apply_decision(4, commit_of(action)) is Verdict.APPLIED
    assert fold.state.handled == t(11)
    assert (fold.state.seen.names if fold.state.seen is not None else None) == names
    assert fold.state.known().has_seen(name(10, 11))
    assert fold.state.known().has_seen(name(1, 2)) is (names is None)


def test_entries_and_states_of_an_earlier_version_are_read():
    old = b'{"type":"epoch_committed","term":0,"epoch":1,"attempt":1,"instant":"i","completion":"c",' + (
        b'"committed_ms":0}'
    )
    assert decode_decision(old) == EpochCommitted(0, 1, 1, "i", "c", 0, "")
    old = b'{"type":"rewound","term":0,"generation":1,"to":4,"handled":"9","reason":"x"}'
    assert decode_decision(old) == msgspec.structs.replace(rewound(0, 1, 4), reason="x")
    state = msgspec.json.decode(b'{"handled":"7","assign_lanes":{"0":{"next":5}}}', type=FoldState)
    assert (state.seen, state.known().handled, state.assign_lanes["0"].begun) == (None, "7", False)
    entry = TimelineSeen(3, "s", ["a"], ["b"], True)
    assert decode_decision(encode_entry(entry)) == entry


def test_rewinds_count_until_an_epoch_is_committed_and_name_the_generation_of_stamps():
    fold = begun()
    fold.apply_decision(1, rewound(0, 1, -1))
    assert (fold.state.rewinds_in_row, fold.state.stamps_from) == (1, 0)
    fold.apply_decision(2, msgspec.structs.replace(rewound(0, 2, -1), forget_stamps=True))
    fold.apply_decision(3, rewound(0, 3, -1))
    assert (fold.state.rewinds_in_row, fold.state.stamps_from) == (3, 2)
    fold.apply_ledger(2, claim(["0"], generation=3))
    fold.apply_ledger(3, tagged({"0": (0, 5)}, {"0": 2}, generation=3))
    fold.apply_decision(4, plan(0, 1, through=3, generation=3))
    fold.apply_decision(5, decide(0, 1))
    fold.apply_decision(6, committed(0, 1))
    assert (fold.state.rewinds_in_row, fold.state.stamps_from) == (0, 2)


@pytest.mark.parametrize("first", [0, 7])
def test_a_lane_that_is_rewound_before_its_first_commit_starts_where_it_had_started(first):
    fold = Fold()
    fold.apply_ledger(0, claim(["0", "1"]))
    fold.apply_ledger(1, tagged({"0": (first, 9)}, {"0": 0}))
    fold.apply_decision(0, coordinator())
    starts = fold.rewind_starts()
    assert starts == {"0": first}
    fold.apply_decision(1, msgspec.structs.replace(rewound(0, 1, -1), starts=starts))
    # What the choice was survives a second rewind, too, before anything was tagged again.
    assert fold.rewind_starts() == starts
    fold.apply_ledger(2, claim(["0", "1"], generation=1))
    fold = Fold.restore(fold.snapshot())
    verdict = fold.apply_ledger(3, tagged({"0": (3, 9)}, {"0": 2}, generation=1))
    assert verdict is Verdict.STALE_POSITION
    assert fold.apply_ledger(4, tagged({"0": (first, 9)}, {"0": 2}, generation=1)) is Verdict.COUNTS
    # A lane that never counted may start anywhere.
    assert fold.apply_ledger(5, tagged({"1": (3, 9)}, {"1": 2}, generation=1)) is Verdict.COUNTS
