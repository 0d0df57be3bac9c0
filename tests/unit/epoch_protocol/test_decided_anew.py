"""When a decision gives way: to a later one of the same statuses, or to the void of its attempt."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.epoch_protocol.builders import claim, committed, coordinator, decide, plan, rewound, tagged
from tidemark.epoch_protocol.entries import AttemptVoided, decode_decision
from tidemark.epoch_protocol.fold import Fold, Verdict


def one_counted() -> Fold:
    fold = Fold()
    fold.apply_ledger(0, claim(["0"]))
    fold.apply_ledger(1, tagged({"0": (0, 5)}, {"0": 0}))
    return fold


def decided() -> Fold:
    fold = one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    assert fold.apply_decision(2, decide(0, 1)) is Verdict.APPLIED
    return fold


ANEW = {"metadata_completion": "4", "data_completion": "5", "supersedes": "3"}


@pytest.mark.parametrize(
    "changed",
    [
        {"supersedes": ""},
        {"supersedes": "2"},
        {"metadata_completion": "3"},
        {"data_completion": "3"},
        {"statuses_path": "other"},
        {"statuses_sha256": "other"},
        {"epoch": 2},
        {"attempt": 2},
    ],
    ids=str,
)
def test_a_decision_gives_way_only_to_a_later_one_of_the_same_statuses_that_names_it(changed):
    fold = decided()
    before = fold.state.decided
    entry = msgspec.structs.replace(decide(0, 1), **{**ANEW, **changed})
    assert fold.apply_decision(3, entry) is Verdict.OUT_OF_PLACE
    assert fold.state.decided == before
    anew = msgspec.structs.replace(decide(0, 1), **ANEW)
    assert fold.apply_decision(4, anew) is Verdict.APPLIED
    assert fold.apply_decision(5, anew) is Verdict.OUT_OF_PLACE
    assert fold.state.decided == anew
    assert fold.apply_decision(6, committed(0, 1)) is Verdict.APPLIED


def test_the_first_decision_of_an_attempt_supersedes_none():
    fold = one_counted()
    fold.apply_decision(0, coordinator())
    fold.apply_decision(1, plan(0, 1, through=1))
    assert fold.apply_decision(2, msgspec.structs.replace(decide(0, 1), **ANEW)) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(3, AttemptVoided(0, 1, 1, "x", undecides="3")) is Verdict.OUT_OF_PLACE
    assert fold.state.planned is not None


def test_a_decided_attempt_is_void_only_with_the_decision_named():
    fold = decided()
    assert fold.apply_decision(3, AttemptVoided(0, 1, 1, "x")) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(4, AttemptVoided(0, 1, 1, "x", undecides="2")) is Verdict.OUT_OF_PLACE
    assert fold.state.decided is not None
    # A decision that was superseded meanwhile is not the one that stands.
    fold.apply_decision(5, msgspec.structs.replace(decide(0, 1), **ANEW))
    assert fold.apply_decision(6, AttemptVoided(0, 1, 1, "x", undecides="3")) is Verdict.OUT_OF_PLACE
    assert fold.apply_decision(7, AttemptVoided(0, 1, 1, "x", undecides="5")) is Verdict.APPLIED
    found = fold.state
    assert (found.planned, found.decided) == (None, None)
    assert [each.attempt for each in fold.state.voided] == [1]
    assert fold.apply_decision(8, rewound(0, 1, to=-1)) is Verdict.APPLIED
    assert fold.apply_decision(9, committed(0, 1)) is Verdict.OUT_OF_PLACE


def test_decisions_of_before_these_fields_are_read_as_first_ones():
    old = b'{"type":"commit_decided","term":0,"epoch":1,"attempt":1,"metadata_completion":"2",' + (
        b'"data_completion":"3","statuses_path":"path","statuses_sha256":"sha","decided_ms":0}'
    )
    assert decode_decision(old) == decide(0, 1)
    voided = decode_decision(b'{"type":"attempt_voided","term":0,"epoch":1,"attempt":1,"reason":"x"}')
    assert voided == AttemptVoided(0, 1, 1, "x")
