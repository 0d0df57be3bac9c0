"""Orders to run a service that are not answered yet (`tidemark services run`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.epoch_protocol.service_status import OpenService

Answer: TypeAlias = Callable[[int, str], None]
"""(number of the action that is open then, why there is none)."""
_REFUSED_MS: Final = 10_000
_GIVEN_UP_MS: Final = 600_000


class AskedRuns:
    """Used by the coordinator's loop alone."""

    def __init__(self) -> None:
        self._answers: dict[ServiceKind, list[Answer]] = {}
        self._not_before_ms = 0
        self._failing_from_ms: dict[ServiceKind, int] = {}

    def __contains__(self, kind: ServiceKind) -> bool:
        return kind in self._answers

    def add(self, kind: ServiceKind, answer: Answer) -> None:
        """An order waits for an action of the kind. ``answer`` is called once."""
        self._answers.setdefault(kind, []).append(answer)

    def answer(self, kind: ServiceKind, number: int, nothing: str) -> None:
        """Answers the orders of the kind: the number of their action, or 0 and why there is none."""
        self._failing_from_ms.pop(kind, None)
        for answer in self._answers.pop(kind, ()):
            answer(number, nothing)

    def answer_all(self, nothing: str) -> None:
        """Answers all orders: there will be no action."""
        for kind in tuple(self._answers):
            self.answer(kind, 0, nothing)

    def kafka_failed(self, kind: ServiceKind, reason: str, now_ms: int) -> None:
        """Kafka did not take the plan of an order, or nobody knows yet whether it did. The order stays for
        ten minutes, and is planned every ten seconds: each plan leaves a document in the table's folder.
        """
        self._not_before_ms = now_ms + _REFUSED_MS
        if now_ms - self._failing_from_ms.setdefault(kind, now_ms) > _GIVEN_UP_MS:
            self.answer(kind, 0, reason)

    def due(
        self, kinds: Collection[ServiceKind], opened: Mapping[ServiceKind, OpenService], now_ms: int
    ) -> list[ServiceKind]:
        """Of ``kinds`` those that are asked for and may be planned now. Where an action is open, its number
        is the answer: a plan whose outcome was not known had been taken.
        """
        for kind, held in opened.items():
            self.answer(kind, held.planned.service, "")
        return [] if now_ms < self._not_before_ms else [kind for kind in kinds if kind in self._answers]
