"""The states of a transactional producer, the same for every implementation of the port.

    UNINITIALISED ── init ──► READY ── begin ──► OPEN ── commit, abort ──► READY
                                                  │ a delivery or call failed
                                                  ▼
                                              ABORTABLE ── abort ──► READY
    any ── fatal error, unknown outcome ──► SPENT          any ── close ──► CLOSED

READY after a commit or abort does not mean that the producer may be used again: a `doubtful` one must be
replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.kafka.errors import FencedError, KafkaError

SLOW_END_S: Final = 1.0
"""If a commit or abort takes longer, librdkafka may have sent the request twice without logging it."""


class ProducerStateError(KafkaError):
    """A call in a state that does not allow it: a defect of the caller."""

    kind = ErrorKind.INVALID


class ProducerState(Enum):
    UNINITIALISED = "uninitialised"
    READY = "ready"
    OPEN = "open"
    ABORTABLE = "abortable"
    SPENT = "spent"
    """Only `close()` may follow."""
    CLOSED = "closed"


_S = ProducerState
_TRANSITIONS: Final[Mapping[ProducerState, frozenset[ProducerState]]] = {
    _S.UNINITIALISED: frozenset({_S.READY, _S.SPENT, _S.CLOSED}),
    _S.READY: frozenset({_S.OPEN, _S.SPENT, _S.CLOSED}),
    _S.OPEN: frozenset({_S.READY, _S.ABORTABLE, _S.SPENT, _S.CLOSED}),
    _S.ABORTABLE: frozenset({_S.READY, _S.ABORTABLE, _S.SPENT, _S.CLOSED}),
    _S.SPENT: frozenset({_S.SPENT, _S.CLOSED}),
    _S.CLOSED: frozenset({_S.CLOSED}),
}
assert _TRANSITIONS.keys() == set(ProducerState)


class ProducerLifecycle:
    """Holds the state of one producer and refuses calls out of order."""

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self._state = ProducerState.UNINITIALISED
        self._cause: KafkaError | None = None

    @property
    def state(self) -> ProducerState:
        return self._state

    def to(self, target: ProducerState) -> None:
        """Changes to the state `target`. Raises ProducerStateError if the picture above has no such arrow."""
        if target not in _TRANSITIONS[self._state]:
            raise ProducerStateError(
                f"producer {self._transactional_id} cannot go from {self._state.value} to {target.value}"
            )
        self._state = target

    def require(self, call: str, *allowed: ProducerState) -> None:
        """Checks that `call` is made in one of the states `allowed`.

        Raises ProducerStateError, or FencedError again for a producer that was fenced.
        """
        if self._state in allowed:
            return
        if self._state is ProducerState.SPENT and isinstance(self._cause, FencedError):
            raise FencedError(str(self._cause))
        cause = f" after: {self._cause}" if self._cause is not None else ""
        raise ProducerStateError(
            f"producer {self._transactional_id} is {self._state.value}, {call}() must not follow{cause}"
        )

    def fail(self, error: KafkaError, fatal: bool) -> KafkaError:
        """Notes an error, changes the state, and returns the error for the caller to raise.

        A `fatal` error makes the producer SPENT, any other an open transaction ABORTABLE.
        """
        if self._state is ProducerState.CLOSED:
            return error
        if fatal:
            self._cause = error
            self.to(ProducerState.SPENT)
        elif self._state in (ProducerState.OPEN, ProducerState.ABORTABLE):
            self._cause = error
            self.to(ProducerState.ABORTABLE)
        return error
