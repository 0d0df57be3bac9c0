"""File names of the timeline and the lifecycle of an instant."""

from __future__ import annotations

import itertools

import pytest

from tidemark.hudi_format.errors import InvalidTransitionError, UnsupportedTableError
from tidemark.hudi_format.timeline import Action, Instant, State, parse_file_name
from tidemark.hudi_format.timeline.instant import TRANSITIONS

T, C = "20260102030405678", "20260102030406789"

# (action, state, file name) as Hudi 1.2.0 names them (FORMAT.md, section 3.1).
NAMES = [
    (Action.COMMIT, State.REQUESTED, f"{T}.commit.requested"),
    (Action.COMMIT, State.INFLIGHT, f"{T}.inflight"),
    (Action.COMMIT, State.COMPLETED, f"{T}_{C}.commit"),
    (Action.DELTA_COMMIT, State.REQUESTED, f"{T}.deltacommit.requested"),
    (Action.DELTA_COMMIT, State.INFLIGHT, f"{T}.deltacommit.inflight"),
    (Action.DELTA_COMMIT, State.COMPLETED, f"{T}_{C}.deltacommit"),
    (Action.COMPACTION, State.REQUESTED, f"{T}.compaction.requested"),
    (Action.COMPACTION, State.INFLIGHT, f"{T}.compaction.inflight"),
    (Action.COMPACTION, State.COMPLETED, f"{T}_{C}.commit"),
    (Action.LOG_COMPACTION, State.INFLIGHT, f"{T}.logcompaction.inflight"),
    (Action.LOG_COMPACTION, State.COMPLETED, f"{T}_{C}.deltacommit"),
    (Action.CLEAN, State.REQUESTED, f"{T}.clean.requested"),
    (Action.CLEAN, State.COMPLETED, f"{T}_{C}.clean"),
    (Action.ROLLBACK, State.INFLIGHT, f"{T}.rollback.inflight"),
    (Action.ROLLBACK, State.COMPLETED, f"{T}_{C}.rollback"),
    (Action.REPLACE_COMMIT, State.INFLIGHT, f"{T}.replacecommit.inflight"),
    (Action.REPLACE_COMMIT, State.COMPLETED, f"{T}_{C}.replacecommit"),
    (Action.CLUSTERING, State.REQUESTED, f"{T}.clustering.requested"),
    (Action.CLUSTERING, State.COMPLETED, f"{T}_{C}.replacecommit"),
    (Action.INDEXING, State.REQUESTED, f"{T}.indexing.requested"),
    (Action.SAVEPOINT, State.INFLIGHT, f"{T}.savepoint.inflight"),
    (Action.SAVEPOINT, State.COMPLETED, f"{T}_{C}.savepoint"),
    (Action.RESTORE, State.COMPLETED, f"{T}_{C}.restore"),
]
ENDS_UNDER_ANOTHER_NAME = {Action.COMPACTION, Action.CLUSTERING, Action.LOG_COMPACTION}


@pytest.mark.parametrize(("action", "state", "name"), NAMES)
def test_file_names_print_as_hudi_names_them(action: Action, state: State, name: str) -> None:
    completion = C if state is State.COMPLETED else None
    assert Instant(T, action, state, completion).file_name == name


@pytest.mark.parametrize(("action", "state", "name"), NAMES)
def test_file_names_parse_back(action: Action, state: State, name: str) -> None:
    parsed = parse_file_name(name)
    assert parsed is not None
    assert (parsed.requested, parsed.state) == (T, state)
    if state is State.COMPLETED and action in ENDS_UNDER_ANOTHER_NAME:
        assert parsed.action.value == action.completed_word
    else:
        assert parsed.action is action


@pytest.mark.parametrize(
    "name",
    [
        f".{T}.deltacommit.requested.crc",
        f".{T}_{C}.commit.123-4.tmp",
        "history",
        f"{T}",
        f"{T}_{C}",
        f"{T}.a.b.c",
        f"{T}_{C}.commit.inflight",
        "hoodie.properties",
    ],
)
def test_other_names_are_no_instants(name: str) -> None:
    assert parse_file_name(name) is None


@pytest.mark.parametrize(
    "name", [f"{T}.commit", f"{T}.deltacommit", f"{T}_{C}.novelty", f"{T}.novelty.requested"]
)
def test_completed_files_of_old_tables_and_unknown_actions_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedTableError) as refused:
        parse_file_name(name)
    assert refused.value.remedy


@pytest.mark.parametrize(("source", "target"), list(itertools.product(State, State)))
def test_every_pair_of_states_follows_the_table(source: State, target: State) -> None:
    instant = Instant(T, Action.COMMIT, source, C if source is State.COMPLETED else None)
    completion = C if target is State.COMPLETED else None
    if target in TRANSITIONS[source]:
        assert instant.to(target, completion).state is target
    else:
        with pytest.raises(InvalidTransitionError):
            instant.to(target, completion)


def test_a_completion_time_is_needed_to_complete_and_must_be_later() -> None:
    inflight = Instant(T, Action.COMMIT, State.INFLIGHT)
    for completion in (None, T, "20200101000000000"):
        with pytest.raises(InvalidTransitionError):
            inflight.to(State.COMPLETED, completion)
    with pytest.raises(InvalidTransitionError):
        Instant(T, Action.COMMIT, State.REQUESTED, C)
