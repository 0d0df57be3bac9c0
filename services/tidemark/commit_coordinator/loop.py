"""The coordinator's loop. Each round

1. takes the requests of other threads;
2. carries out one action (`Coordinator.step`);
3. lists the table's files anew after a rewind, or when services find other files than they knew of;
4. writes the ledger's record, and trims the topics when that is due;
5. shows a new view to other threads.

If Kafka does not answer, or Kafka or the storage refuses, the next round tries again: the fold says what was
done. An error that no retry cures stops the loop, but not the process, so `tidemark status` can say why.
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
    Order,
    PauseServices,
    PauseTagging,
    Request,
    RetryEpoch,
    RunAnswer,
    RunService,
    WantRewind,
)
from tidemark.commit_coordinator.commit.attempt_effects import free_lock, tick_lock
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.trimming import Trimmer
from tidemark.commit_coordinator.commit.view import ViewBoard, take_view
from tidemark.commit_coordinator.coordinator import Coordinator
from tidemark.commit_coordinator.errors import is_curable
from tidemark.commit_coordinator.refusals import CoordinatorStoppedError
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.epoch_protocol.state import FoldState
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.errors import REFUSED
from tidemark.stream_runtime.kafka.ports import KafkaError
from tidemark.stream_runtime.logging import bound

_VIEW_EVERY_MS: Final = 50
_FOR_GOOD: Final = (ErrorKind.CORRUPT, ErrorKind.INVALID)
_REST_S: Final = 0.2
_REFUSED_MS: Final = 500
_log = logging.getLogger("tidemark.coordinator")


class TableLoop:
    """The loop of one term. It runs on the thread that took the table over."""

    def __init__(
        self,
        coordinator: Coordinator,
        context: Context,
        trimmer: Trimmer,
        inbox: Inbox,
        board: ViewBoard,
        keep: Callable[[FoldState], None] = lambda _: None,
    ) -> None:
        """``keep``: called with the fold's state in each round, to record what is committed."""
        self._keep = keep
        self._coordinator = coordinator
        self._context = context
        self._trimmer = trimmer
        self._inbox = inbox
        self._board = board
        self._generation = context.fold().state.generation
        self._shown_ms = 0

    def run(self, stop: threading.Event, load_sizes: Callable[[], None]) -> None:
        """Runs rounds until ``stop``, then frees the lock. Raises SupersededError, and what needs a new
        process.

        ``load_sizes``: lists the table's files; called after each rewind, because another writer may have
        changed them.
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
        """After a stop for good: shows why, and renews heartbeats, so that nobody rolls the attempts back."""
        self._shown_ms = 0
        while not stop.wait(_REST_S):
            for request in self._inbox.take_all():
                if isinstance(request, Order):
                    request.taken.set_exception(CoordinatorStoppedError(self._coordinator.seen.halted or ""))
            tick_lock(self._context)
            try:
                self._coordinator.keep_alive()
            except OSError as error:
                _log.debug("no heartbeat: %s", error)
            self._show()

    def round(self, load_sizes: Callable[[], None]) -> None:
        """Runs one round. Raises SupersededError, and errors that no retry cures."""
        self._take_requests()
        self._coordinator.step()
        generation = self._context.fold().state.generation
        if generation != self._generation and self._guarded(load_sizes, "listing the table's files"):
            self._generation = generation
        elif self._coordinator.services.wants_listing(self._context.clock.now_ms()):
            self._guarded(load_sizes, "listing the table's files")
        self._guarded(lambda: self._keep(self._context.fold().state), "keeping the ledger's record")
        self._guarded(lambda: self._trimmer.run_if_due(self._context), "trimming")
        self._show()

    def _take_requests(self) -> None:
        """Carries the requests out in their order. One that fails is tried again in the next round. Orders
        behind an order that failed wait for it: the last order of an operator holds. Example: a pause that
        Kafka did not answer, and then a resume. Other requests do not wait, or they would fill the inbox.
        """
        waiting, again = self._inbox.take_all(), list[Request]()
        order_waits = False
        try:
            while waiting:
                is_order = isinstance(waiting[0], Order)
                if is_order and order_waits:
                    again.append(waiting.pop(0))
                    continue
                is_done = self._guarded(partial(self._take, waiting[0]), "a request")
                request = waiting.pop(0)
                if not is_done:
                    again.append(request)
                    order_waits = order_waits or is_order
                elif isinstance(request, Order):
                    self._shown_ms = 0
                    self._show()
                    request.taken.set_result(None)
        finally:
            self._inbox.put_back([*again, *waiting])

    def _take(self, request: Request) -> None:
        TAKERS[type(request)](self._coordinator, request)

    def _guarded(self, work: Callable[[], None], what: str) -> bool:
        """Does the work; False if Kafka or the storage refused: that must not end the coordinator."""
        try:
            work()
        except (KafkaError, DeadlineExceededError, OSError, HudiFormatError) as error:
            if not is_curable(error):
                raise
            if isinstance(error, REFUSED):
                # It is answered at once: without a rest each round would ask again.
                self._coordinator.refusals.note(error)
                self._context.clock.sleep_ms(_REFUSED_MS)
                return False
            if isinstance(error, OSError | HudiFormatError):
                self._coordinator.refusals.note(error)
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
            take_view(
                fold,
                coordinator.seen,
                coordinator.doing,
                context.term,
                now_ms,
                context.table.inputs,
                coordinator.services.show(fold.state, coordinator.seen.services, now_ms),
                coordinator.services.tagging_rests(now_ms),
                context.taken_out,
                context.indexes_taken_out.values(),
                self._trimmer.refused,
            )
        )


def _pause(coordinator: Coordinator, request: PauseTagging) -> None:
    coordinator.pause(request.paused, request.reason)


def _hurry(coordinator: Coordinator, request: FlushNow) -> None:
    coordinator.hurry()


def _want_rewind(coordinator: Coordinator, request: WantRewind) -> None:
    coordinator.want_rewind(request.reason, request.generation, request.epoch)


def _pause_services(coordinator: Coordinator, request: PauseServices) -> None:
    coordinator.pause_services(request.paused, request.reason)


def _run_service(coordinator: Coordinator, request: RunService) -> None:
    services = coordinator.services
    if not services.rules.enabled:
        request.answer.set_result(RunAnswer(0, "table_services.enabled is false"))
        return
    services.want(
        ServiceKind(request.kind),
        lambda number, nothing: request.answer.set_result(RunAnswer(number, nothing)),
    )


def _retry(coordinator: Coordinator, request: RetryEpoch) -> None:
    coordinator.retry(request.epoch)


TAKERS: Final[Mapping[type[Request], Callable[[Coordinator, Any], None]]] = {
    PauseTagging: _pause,
    FlushNow: _hurry,
    WantRewind: _want_rewind,
    RetryEpoch: _retry,
    PauseServices: _pause_services,
    RunService: _run_service,
}
"""The function that carries out each request of another thread."""
