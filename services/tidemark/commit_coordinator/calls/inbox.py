"""Requests of gRPC threads that the coordinator's loop carries out between two actions."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind

INBOX_MAX: Final = 1_000


@dataclass(frozen=True)
class PauseTagging:
    """Stop tagging, or start it again. It is durable: an entry on the decisions.

    The loop ends the future ``taken`` once a view shows what the decisions say then, or with
    CoordinatorStoppedError.
    """

    paused: bool
    reason: str
    taken: Future[None] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class FlushNow:
    """Plan the next epoch now instead of at the end of its interval."""


@dataclass(frozen=True)
class WantRewind:
    """An owner cannot read back the tagged batches of this generation: tag all that is not committed anew.

    ``epoch``: the last committed epoch that the owner knew, None if it did not say.
    """

    reason: str
    generation: int
    epoch: int | None = None


@dataclass(frozen=True)
class RetryEpoch:
    """Try the epoch again at which the coordinator halted."""

    epoch: int


@dataclass(frozen=True)
class PauseServices:
    """Plan no table service any more, or plan them again. It is durable: an entry on the decisions.

    ``taken``: as in `PauseTagging`.
    """

    paused: bool
    reason: str
    taken: Future[None] = field(default_factory=Future, compare=False)


@dataclass(frozen=True)
class RunAnswer:
    """The action that is open for an order to run a service: its number, or 0 and why there is nothing to
    do.
    """

    number: int
    nothing: str = ""


@dataclass(frozen=True)
class RunService:
    """Run a table service now, whether or not it is due, also while services are paused.

    The loop sets the ``answer`` once the action is planned, or there is nothing to do.
    """

    kind: str
    answer: Future[RunAnswer] = field(default_factory=Future)


Order: TypeAlias = PauseTagging | PauseServices
Request: TypeAlias = Order | FlushNow | WantRewind | RetryEpoch | RunService


class InboxFullError(CoordinatorError):
    """Too many requests wait for the loop: ask again a little later."""

    kind = ErrorKind.RETRYABLE


class Inbox:
    """A queue that takes no request while `INBOX_MAX` wait; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Request] = deque()

    def put(self, request: Request) -> None:
        """Leaves a request for the loop. Raises InboxFullError."""
        with self._lock:
            if len(self._waiting) >= INBOX_MAX:
                raise InboxFullError(f"{INBOX_MAX} requests wait for the coordinator: ask again")
            self._waiting.append(request)

    def take_all(self) -> list[Request]:
        """Takes all waiting requests, the oldest first."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
        return taken

    def put_back(self, requests: Sequence[Request]) -> None:
        """Puts requests that were taken and not carried out before those that came meanwhile."""
        with self._lock:
            self._waiting.extendleft(reversed(requests))
