"""The pictures in docs/lifecycles.md are the transition tables of the code, and those are what happens."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tidemark.commit_coordinator.domain.attempt import ATTEMPT_TRANSITIONS, AttemptStatus
from tidemark.commit_coordinator.domain.backpressure import LEVEL_STEPS, BackpressureLevel
from tidemark.commit_coordinator.domain.membership import LEASE_TRANSITIONS, LaneLease
from tidemark.commit_coordinator.domain.next_action import AttemptProblem, Observed, attempt_status
from tidemark.epoch_protocol.entries import CommitDecided, EpochPlanned
from tidemark.epoch_protocol.epoch_status import EPOCH_STEPS, EpochStatus
from tidemark.epoch_protocol.owner import LANE_TRANSITIONS, LaneStatus
from tidemark.epoch_protocol.service_status import SERVICE_STEPS, ServiceStatus

PAGE = (Path(__file__).parents[2] / "docs" / "lifecycles.md").read_text("utf-8")
ARROW = re.compile(r"^ +(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.+))?$", re.MULTILINE)
EPOCH, ATTEMPT, LEASE, OWNER = "An epoch", "An attempt", "coordinator leases it", "owner works on it"
SERVICE, PRESSURE = "A service action", "when services do not keep up"
TABLES: dict[str, tuple[type[Enum], set[tuple[Enum, Enum]]]] = {
    EPOCH: (EpochStatus, {(a, b) for (a, _), b in EPOCH_STEPS.items()}),
    ATTEMPT: (AttemptStatus, {(a, b) for a, targets in ATTEMPT_TRANSITIONS.items() for b in targets}),
    SERVICE: (ServiceStatus, {(a, b) for (a, _), b in SERVICE_STEPS.items()}),
    PRESSURE: (BackpressureLevel, {(a, b) for a, targets in LEVEL_STEPS.items() for b in targets}),
    LEASE: (LaneLease, {(a, b) for a, targets in LEASE_TRANSITIONS.items() for b in targets}),
    OWNER: (LaneStatus, {(a, b) for a, targets in LANE_TRANSITIONS.items() for b in targets}),
}
THIS = (1, 1)
PLANNED = EpochPlanned(0, 1, 1, 0, 9, "20260101000000000", "0", "", 0)


def arrows(heading: str) -> list[tuple[str, str, str]]:
    """From, to and the words beside them, of the picture below the heading."""
    section = next(part for part in PAGE.split("\n## ") if part.partition("\n")[0].endswith(heading))
    (picture,) = re.findall(r"```mermaid\nstateDiagram-v2\n(.*?)```", section, re.DOTALL)
    return ARROW.findall(picture)


@pytest.mark.parametrize("heading", TABLES)
def test_each_arrow_is_in_the_table_and_each_step_of_the_table_is_an_arrow(heading: str) -> None:
    statuses, steps = TABLES[heading]
    drawn = [(a, b) for a, b, _ in arrows(heading) if "[*]" not in (a, b)]
    assert len(set(drawn)) == len(drawn)
    assert set(drawn) == {(a.value, b.value) for a, b in steps}
    assert {name for step in drawn for name in step} == {status.value for status in statuses}


@pytest.mark.parametrize("heading", TABLES)
def test_what_nothing_follows_on_is_drawn_as_an_end_and_there_is_one_beginning(heading: str) -> None:
    statuses, steps = TABLES[heading]
    ends = {status.value for status in statuses} - {a.value for a, _ in steps}
    assert {a for a, b, _ in arrows(heading) if b == "[*]"} == ends
    assert len([b for a, b, _ in arrows(heading) if a == "[*]"]) == 1


@pytest.mark.parametrize(("heading", "steps"), [(EPOCH, EPOCH_STEPS), (SERVICE, SERVICE_STEPS)])
def test_arrows_of_an_epoch_and_of_an_action_are_entries(heading: str, steps: Mapping[Any, Enum]) -> None:
    drawn = {(a, b, words) for a, b, words in arrows(heading) if "[*]" not in (a, b)}
    assert drawn == {(a.value, b.value, entry.__name__) for (a, entry), b in steps.items()}


def test_each_step_within_an_attempt_follows_from_one_thing_that_a_coordinator_sees() -> None:
    """All that can be seen one after the other, from the plan on, and no step besides the table's."""
    within = set(AttemptStatus) - {AttemptStatus.VOID, AttemptStatus.COMMITTED, AttemptStatus.ROLLED_BACK}
    found: set[tuple[Enum, Enum]] = set()
    waiting: list[tuple[Observed, CommitDecided | None]] = [(Observed(), None)]
    while waiting:
        seen, decided = waiting.pop()
        before = attempt_status(PLANNED, decided, seen)
        for following, decision in seen_next(before, seen, decided):
            found.add((before, attempt_status(PLANNED, decision, following)))
            waiting.append((following, decision))
    assert found == {(a, b) for a, b in TABLES[ATTEMPT][1] if {a, b} <= within}


def seen_next(
    status: AttemptStatus, seen: Observed, decided: CommitDecided | None
) -> Iterator[tuple[Observed, CommitDecided | None]]:
    """What the effects and calls note where the attempt stands so."""
    if status is AttemptStatus.PLANNED:
        yield replace(seen, opened=THIS), None
    if status is AttemptStatus.OPENED:
        yield replace(seen, reported=THIS), None
    if status is AttemptStatus.REPORTED:
        yield seen, CommitDecided(0, 1, 1, "m", "d", "path", "sha", 0)
    if status in (AttemptStatus.PLANNED, AttemptStatus.OPENED, AttemptStatus.REPORTED):
        yield replace(seen, problem=(THIS, AttemptProblem("", rewind=False))), None
    if status is AttemptStatus.DECIDED:
        yield replace(seen, taken_back=("d", AttemptProblem("", rewind=True))), decided
