"""Requests of gRPC threads that the coordinator's loop carries out between two actions."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind

INBOX_MAX: Final = 1_000


@dataclass(frozen=True)
class PauseTagging:
    """Stop (or start) tagging; durable, as a decision."""

    paused: bool
    reason: str


@dataclass(frozen=True)
class FlushNow:
    """Plan the next epoch now instead of at the end of its interval."""


@dataclass(frozen=True)
class WantRewind:
    """Tags of this generation cannot be read back: tag anew what is not committed. ``epoch``: the last
    committed one that the asker knew, None if it did not say.
    """

    reason: str
    generation: int
    epoch: int | None = None


@dataclass(frozen=True)
class RetryEpoch:
    """Try the epoch again that was given up."""

    epoch: int


Request: TypeAlias = PauseTagging | FlushNow | WantRewind | RetryEpoch


class InboxFullError(CoordinatorError):
    """More requests wait than the loop carries out: ask again a little later."""

    kind = ErrorKind.RETRYABLE


class Inbox:
    """A bounded queue; a full one refuses (InboxFullError)."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Request] = queue.Queue(INBOX_MAX)

    def put(self, request: Request) -> None:
        """Leaves a request for the loop."""
        try:
            self._queue.put_nowait(request)
        except queue.Full:
            raise InboxFullError(f"{INBOX_MAX} requests wait for the coordinator: ask again") from None

    def take_all(self) -> list[Request]:
        """Everything that is waiting, in order."""
        taken: list[Request] = []
        while True:
            try:
                taken.append(self._queue.get_nowait())
            except queue.Empty:
                return taken
