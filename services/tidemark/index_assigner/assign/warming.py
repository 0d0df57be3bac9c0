"""Requests to load the whole index into run files (`tidemark index warm`): gRPC threads ask, the thread that
owns the index answers, and takes the loads further once in each of its rounds.
"""

from __future__ import annotations

import queue
from collections.abc import Set
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Final

from tidemark.errors import ErrorKind
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.index_assigner.errors import AssignerError
from tidemark.index_assigner.index.ports import KeyIndex, WarmProgress

_WAITING_MAX: Final = 4
_TIMEOUT_S: Final = 5.0


class WarmBusyError(AssignerError):
    """The assign stage did not answer in time, or has lanes whose index is not open: ask again."""

    kind = ErrorKind.RETRYABLE


class NotWarmedError(AssignerError):
    """The record index is partitioned: what is asked for is loaded, and never all of it."""

    kind = ErrorKind.INVALID


def check_warmed(kind: IndexKind) -> None:
    """Raises NotWarmedError for a partitioned record index."""
    if kind is IndexKind.PARTITIONED:
        raise NotWarmedError(
            "the record index is partitioned, and `tidemark index warm` is for a global one: an assigner "
            "opens the parts of a partitioned one when rows of them come (docs/partitioned-index.md)"
        )


class WarmRequests:
    """A bounded queue of requests."""

    def __init__(self) -> None:
        self._waiting: queue.Queue[tuple[bool, Future[WarmProgress]]] = queue.Queue(_WAITING_MAX)

    def ask(self, start: bool, timeout_s: float = _TIMEOUT_S) -> WarmProgress:
        """How far the loads are; ``start``: begins those that are needed. Raises WarmBusyError."""
        future: Future[WarmProgress] = Future()
        try:
            self._waiting.put_nowait((start, future))
            return future.result(timeout_s)
        except (queue.Full, FutureTimeoutError) as error:
            future.cancel()
            raise WarmBusyError("the assign stage is busy: ask again") from error

    def answer(self, index: KeyIndex, lanes: Set[int]) -> None:
        """Takes the loads a step further, and answers all that wait. ``lanes``: those of the stage. While the
        index of one of them is not open, what it would say of the others is not the whole.
        """
        index.load_on()
        while True:
            try:
                start, future = self._waiting.get_nowait()
            except queue.Empty:
                return
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if closed := lanes - index.open_lanes():
                    numbers = ", ".join(map(str, sorted(closed)))
                    raise WarmBusyError(f"lanes {numbers} are being opened: ask again")
                future.set_result(index.warm(start))
            except Exception as error:  # a failed request of somebody else's must not end the stage
                future.set_exception(error)
