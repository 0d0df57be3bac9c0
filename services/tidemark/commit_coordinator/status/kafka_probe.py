"""Asks Kafka, within bounded time, for the parts of `tidemark status` that Kafka alone knows.

If the broker is gone, the status has all other parts, and says why these are missing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.view import CoordinatorView
from tidemark.commit_coordinator.status.open_transactions import OpenTransaction
from tidemark.stream_runtime.errors import StreamRuntimeError

ASK_S: Final = 4.0
"""How long a healthy, busy broker may take; callers with shorter deadlines wait less."""
_ASK_AGAIN_S: Final = 1.0
_LATE_MAX: Final = 4


@dataclass(frozen=True)
class KafkaFacts:
    """Kafka's answer. `missing`: why `lag` and `open_transaction` are unknown; empty when they are known."""

    lag: Mapping[str, int] | None = None
    open_transaction: OpenTransaction | None = None
    missing: str = ""


class KafkaProbe:
    """Asks Kafka; thread-safe.

    Each question runs on its own thread, which ends at the latest with the client's own timeout. While one
    question is late, others wait for a shorter time. While `_LATE_MAX` are late, none is asked.
    """

    def __init__(
        self,
        lag: Callable[[CoordinatorView], Mapping[str, int]],
        open_transaction: Callable[[], OpenTransaction | None],
    ) -> None:
        """Both may block, and raise KafkaError."""
        self._lag = lag
        self._open_transaction = open_transaction
        self._lock = threading.Lock()
        self._late = 0

    def ask(self, view: CoordinatorView, limit_s: float = ASK_S) -> KafkaFacts:
        """Kafka's answer, or why there is none; waits for it up to `limit_s`."""
        with self._lock:
            if self._late >= _LATE_MAX:
                return KafkaFacts(missing=f"Kafka has not answered {self._late} earlier questions")
            if self._late:
                limit_s = min(limit_s, _ASK_AGAIN_S)
        question = _Question()
        threading.Thread(target=self._answer, args=(question, view), name="ask kafka", daemon=True).start()
        if question.answered.wait(limit_s):
            return question.facts
        with self._lock:
            if question.answered.is_set():
                return question.facts
            question.is_late = True
            self._late += 1
        return KafkaFacts(missing=f"Kafka did not answer within {limit_s:.1f} s")

    def _answer(self, question: _Question, view: CoordinatorView) -> None:
        try:
            question.facts = KafkaFacts(self._lag(view), self._open_transaction())
        except StreamRuntimeError as error:
            question.facts = KafkaFacts(missing=" ".join(str(error).split()))
        finally:
            with self._lock:
                self._late -= question.is_late
                question.answered.set()


class _Question:
    """One question; `facts` is the answer once `answered` is set."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.facts = KafkaFacts(missing="looking for it failed: the coordinator's log says why")
        self.is_late = False
