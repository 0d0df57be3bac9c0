"""G7: no service action is void without a cause of its own. What each cause excuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation.world.checkers.needless_services import NeedlessServices


class Actions:
    """The decisions about service actions; ``said``: what is needless of them."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.judge = NeedlessServices(lambda _, text: self.said.append(text))
        self._offset = 0
        self.add("coordinator_claimed")

    def add(self, of: str, **entry: Any) -> None:
        term = self._offset if of == "coordinator_claimed" else 0
        self.judge.decided(self._offset, {"type": of, "term": term, **entry})
        self._offset += 1

    def void(self, kind: str, *meanwhile: Callable[[], None]) -> list[str]:
        """An action is planned, this happens, and it is void; what is said of that."""
        self.said.clear()
        self.add("service_planned", service=1, kind=kind)
        for happens in meanwhile:
            happens()
        self.add("service_voided", service=1, reason="so")
        return self.said


def test_a_void_service_action_needs_a_cause_between_its_plan_and_its_end() -> None:
    actions = Actions()
    needless = ["service action 1 (compact-data) is void without a cause: so"]
    judge = actions.judge
    assert actions.void("compact-data") == needless
    assert actions.void("compact-data", judge.caused) == []
    assert actions.void("compact-data", lambda: actions.add("rewound")) == needless, "it moves no file"
    assert actions.void("compact-data", lambda: actions.add("epoch_planned")) == needless
    assert actions.void("clean-index", lambda: actions.add("epoch_planned")) == []
    assert actions.void("clean-index") != []
    judge.broker(is_down=True)
    assert actions.void("compact-data") == []
    judge.broker(is_down=False)
    assert actions.void("compact-data") == needless
    judge.refused("writer")
    assert actions.void("compact-data") == []
    judge.begins("writer")
    assert actions.void("compact-data") == needless
