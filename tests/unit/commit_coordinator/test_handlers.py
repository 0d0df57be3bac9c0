"""Every action, and every request, has one handler, which takes just that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

import pytest

from tidemark.commit_coordinator.calls.inbox import Request
from tidemark.commit_coordinator.coordinator import HANDLERS
from tidemark.commit_coordinator.domain.actions import EpochAction
from tidemark.commit_coordinator.domain.service_actions import ServiceAction
from tidemark.commit_coordinator.loop import TAKERS
from tidemark.commit_coordinator.table_services.runner import HANDLED_BY


@pytest.mark.parametrize(
    ("union", "handlers", "parameter"),
    [
        (EpochAction, HANDLERS, "action"),
        (ServiceAction, HANDLED_BY, "action"),
        (Request, TAKERS, "request"),
    ],
    ids=["actions", "actions of services", "requests"],
)
def test_each_kind_has_a_handler_of_its_own(
    union: Any, handlers: Mapping[type, Callable[..., None]], parameter: str
) -> None:
    kinds = get_args(union)
    assert set(handlers) == set(kinds)
    assert len(set(handlers.values())) == len(kinds)
    assert {kind: get_type_hints(handler)[parameter] for kind, handler in handlers.items()} == {
        kind: kind for kind in kinds
    }
