"""Log lines name the epoch or the service action that the coordinator takes a step further."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark.commit_coordinator.domain.actions import NextAction, OpenAttempt, Plan, Wait, log_fields
from tidemark.commit_coordinator.domain.service_actions import DecideService, PlanService, VoidService
from tidemark.epoch_protocol.entries import EpochPlanned
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned

EPOCH = EpochPlanned(1, 4, 2, 0, 9, "T4", "0", "", 0)
ACTION = ServicePlanned(1, 7, ServiceKind.ARCHIVE, "T7", "p", "s", 0)


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        (Wait("nothing"), {}),
        (Plan(4, 2, 9, True, False), {"epoch": 4, "attempt": 2}),
        (OpenAttempt(EPOCH), {"epoch": 4, "attempt": 2, "instant": "T4"}),
        (PlanService(ServiceKind.ARCHIVE, 7, "due"), {"action": 7, "kind": "archive"}),
        (DecideService(ACTION), {"action": 7, "kind": "archive", "instant": "T7"}),
        (VoidService(ACTION, "why"), {"action": 7, "kind": "archive", "instant": "T7"}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_fields_of_each_action(action: NextAction, fields: dict[str, Any]) -> None:
    assert log_fields(action) == fields
