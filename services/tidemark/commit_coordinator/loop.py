"""One round after the other of a coordinator's life: requests, one action, trimming, the picture for others.

What Kafka does not answer, or the table's storage refuses, is tried again in the next round: only the fold's
own order says what was done. What no retry cures stops the loop, not the process: `tidemark status` says why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from tidemark.commit_coordinator.calls.inbox import (
    FlushNow,
    Inbox,
    PauseTagging,
    Request,
    RetryEpoch,
    WantRewind,
)
from tidemark.commit_coordinator.commit.attempt_effects import tick_lock
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.commit.view import ViewBoard, take_view
from tidemark.commit_coordinator.coordinator import Coordinator, is_curable
from tidemark.commit_coordinator.service_parts import free_lock
from tidemark.epoch_protocol.state import FoldState
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import KafkaError
from tidemark.stream_runtime.logging import bound

_VIEW_EVERY_MS: Final = 50
_FOR_GOOD: Final = (ErrorKind.CORRUPT, ErrorKind.INVALID)
_REST_S: Final = 0.2
_log = logging.getLogger("tidemark.coordinator")


class TableLoop:
    """Runs in the thread that took the table over."""

    def __init__(
        self,
        coordinator: Coordinator,
        context: Context,
        trimmer: Trimmer,
        inbox: Inbox,
        board: ViewBoard,
        keep: Callable[[FoldState], None] = lambda _: None,
    ) -> None:
        """``keep``: keeps with the table what is committed; given the fold's state in each round."""
        self._keep = keep
        self._coordinator = coordinator
        self._context = context
        self._trimmer = trimmer
        self._inbox = inbox
        self._board = board
        self._generation = context.fold().state.generation
        self._shown_ms = 0

    def run(self, stop: threading.Event, load_sizes: Callable[[], None]) -> None:
        """Until ``stop``, then frees the lock; ``load_sizes`` after each rewind: another writer may have
        changed files.

        Raises SupersededError, and what only a new process can cure.
        """
        with bound(term=self._context.term):
            while not stop.is_set():
                try:
                    self.round(load_sizes)
                except Exception as error:
                    if kind_of(error) not in _FOR_GOOD:
                        raise
                    self._coordinator.stop_for_good(error)
                    self._rest(stop)
            free_lock(self._context)

    def _rest(self, stop: threading.Event) -> None:
        """Shows what is wrong, and keeps the open attempt's heartbeat: nobody may roll it back meanwhile."""
        self._shown_ms = 0
        while not stop.wait(_REST_S):
            self._inbox.take_all()
            tick_lock(self._context)
            try:
                self._coordinator.keep_alive()
            except OSError as error:
                _log.debug("no heartbeat: %s", error)
            self._show()

    def round(self, load_sizes: Callable[[], None]) -> None:
        """Raises SupersededError, and whatever trying again does not cure."""
        for request in self._inbox.take_all():
            if not self._guarded(partial(self._take, request), "a request"):
                self._inbox.put(request)
        self._coordinator.step()
        generation = self._context.fold().state.generation
        if generation != self._generation and self._guarded(load_sizes, "listing the table's files"):
            self._generation = generation
        self._guarded(lambda: self._keep(self._context.fold().state), "keeping the ledger's record")
        self._guarded(lambda: self._trimmer.run_if_due(self._context), "trimming")
        self._show()

    def _take(self, request: Request) -> None:
        TAKERS[type(request)](self._coordinator, request)

    def _guarded(self, work: Callable[[], None], what: str) -> bool:
        """Whether it was done; what was not may not end a coordinator that can still commit."""
        try:
            work()
        except (KafkaError, DeadlineExceededError, OSError, HudiFormatError) as error:
            if not is_curable(error):
                raise
            if isinstance(error, OSError | HudiFormatError):
                self._coordinator.refused(error)
            _log.warning("%s was not carried out, it is tried again: %s", what, error)
            return False
        return True

    def _show(self) -> None:
        context, fold = self._context, self._context.fold()
        now_ms = context.clock.now_ms()
        if (
            now_ms - self._shown_ms < _VIEW_EVERY_MS
            and fold.state.committed.epoch == self._board.current.epoch
        ):
            return
        self._shown_ms = now_ms
        coordinator = self._coordinator
        self._board.show(
            take_view(fold, coordinator.seen, coordinator.doing, context.term, now_ms, context.table.inputs)
        )


def _pause(coordinator: Coordinator, request: PauseTagging) -> None:
    coordinator.pause(request.paused, request.reason)


def _hurry(coordinator: Coordinator, request: FlushNow) -> None:
    coordinator.hurry()


def _want_rewind(coordinator: Coordinator, request: WantRewind) -> None:
    coordinator.want_rewind(request.reason, request.generation, request.epoch)


def _retry(coordinator: Coordinator, request: RetryEpoch) -> None:
    coordinator.retry(request.epoch)


TAKERS: Final[Mapping[type[Request], Callable[[Coordinator, Any], None]]] = {
    PauseTagging: _pause,
    FlushNow: _hurry,
    WantRewind: _want_rewind,
    RetryEpoch: _retry,
}
"""What each request of another thread makes the coordinator do."""
