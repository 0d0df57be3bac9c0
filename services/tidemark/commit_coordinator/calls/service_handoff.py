"""Hands open service actions from the coordinator's loop to workers, and what they report back.

1. The loop offers actions: `offer`, `withdraw`.
2. A worker waits for one in `NextService`: `wait_for_work`; then takes it in `BeginService`: `begin`.
3. It tells progress, success or failure, or that it stops: `progress`, `report`, `fail`, `give_back`.
4. The loop takes that between two actions: `take_news`, `report_of`.

A lease keeps two askers apart, for speed only: tasks of both prepare the same files, and the first counts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from tidemark.epoch_protocol.service_entries import ServicePlanned
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.stream_runtime.clock import Clock

LEASE_MS: Final = 30_000


@dataclass(frozen=True)
class ServiceReport:
    """What the tasks of an action report: their outcomes, as a document of the kind, and the tickets of the
    files that they prepared.
    """

    outcomes: bytes
    tickets: tuple[Ticket, ...]


@dataclass(frozen=True)
class GrantedSlots:
    """``share``: the part of a worker's task slots. ``is_behind``: compactions do not keep up."""

    share: float
    is_behind: bool = False


@dataclass(frozen=True)
class OfferedService:
    """An action whose tasks wait for somebody; with ``token`` they prepare files. ``granted``: what of its
    task slots the worker may use.
    """

    planned: ServicePlanned
    token: str
    granted: GrantedSlots


@dataclass(frozen=True)
class ServiceProgress:
    """How many operations of an action are done, by which worker ("" while nobody has taken it)."""

    worker: str = ""
    done: int = 0


@dataclass(frozen=True)
class FailedOperation:
    """An operation of a plan, by its number, of which the file group is the cause that it failed
    (``is_damaged``), or may be.
    """

    number: int
    reason: str
    is_damaged: bool


@dataclass(frozen=True)
class ServiceNews:
    """What the loop has not seen yet: ``failure`` None for a report. Of a failure: how many operations were
    ``done`` in this try, and which ``failed`` because of their file groups, or perhaps because of them.
    """

    number: int
    failure: str | None
    failed: tuple[FailedOperation, ...] = ()
    done: int = 0


@dataclass
class _Open:
    offered: OfferedService
    worker: str = ""
    leased_until_ms: int = 0
    done: int = 0
    report: ServiceReport | None = None


class ServiceHandoff:
    """The open actions and their reports, shared by the loop and gRPC threads; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._open: dict[int, _Open] = {}
        self._news: list[ServiceNews] = []

    def offer(self, service: OfferedService) -> None:
        """The loop offers an action; offered again, it is free at once."""
        with self._changed:
            self._open[service.planned.service] = _Open(service)
            self._changed.notify_all()

    def grant(self, granted: GrantedSlots) -> None:
        """Workers get these slots from now on, each when it begins or goes on with an action."""
        with self._changed:
            for found in self._open.values():
                if found.offered.granted != granted:
                    found.offered = replace(found.offered, granted=granted)

    def withdraw(self, number: int) -> None:
        """The action is decided or void: nobody gets it any more."""
        with self._changed:
            self._open.pop(number, None)

    def wait_for_work(self, worker: str, timeout_s: float) -> OfferedService | None:
        """Leases an action to the worker; waits up to ``timeout_s`` for one without a report that nobody else
        has leased, and returns None if there is none. Who asks works on nothing: a call of it has failed, or
        an answer to it was lost, so it gets at once what it had.
        """
        with self._changed:
            self._changed.wait_for(lambda: next(self._free(worker), None) is not None, timeout_s)
            found = next(self._free(worker), None)
            if found is None:
                return None
            self._lease(found, worker)
            return found.offered

    def begin(self, number: int, worker: str) -> OfferedService | None:
        """The action, if the worker may work on it: nobody else has leased it. Renews the lease."""
        with self._changed:
            found = self._held_by(number, worker)
            if found is None:
                return None
            self._lease(found, worker)
            return found.offered

    def progress(self, number: int, worker: str, done: int) -> bool:
        """Renews the lease, and notes how many operations are done. False: stop working on it."""
        with self._changed:
            found = self._held_by(number, worker)
            if found is None:
                return False
            self._lease(found, worker)
            found.done = done
            return True

    def report(self, number: int, worker: str, report: ServiceReport) -> bool:
        """Takes the report, whoever has the lease; False if the action is not open. A second report changes
        nothing.
        """
        with self._changed:
            found = self._open.get(number)
            if found is None:
                return False
            if found.report is None:
                found.report, found.worker = report, worker
                self._news.append(ServiceNews(number, None))
            return True

    def fail(
        self, number: int, worker: str, reason: str, failed: tuple[FailedOperation, ...] = (), done: int = 0
    ) -> bool:
        """Takes the reason why the tasks failed; False if somebody else has the action, or it is not open.
        Nobody gets it before the loop offers it again.
        """
        with self._changed:
            if self._held_by(number, worker) is None:
                return False
            del self._open[number]
            self._news.append(ServiceNews(number, reason, failed, done))
            return True

    def give_back(self, number: int, worker: str) -> bool:
        """The worker stops: anybody gets the action at once. False if somebody else has it, or it is not
        open.
        """
        with self._changed:
            found = self._held_by(number, worker)
            if found is None:
                return False
            self._open[number] = _Open(found.offered)
            self._changed.notify_all()
            return True

    def take_news(self) -> list[ServiceNews]:
        """What came since the last call, the oldest first."""
        with self._changed:
            news, self._news = self._news, []
            return news

    def report_of(self, number: int) -> ServiceReport:
        """The report of an action, which `take_news` has announced before."""
        with self._changed:
            report = self._open[number].report
            assert report is not None
            return report

    def progress_of(self, number: int) -> ServiceProgress:
        """How far the tasks of an action are."""
        with self._changed:
            found = self._open.get(number)
            return ServiceProgress() if found is None else ServiceProgress(found.worker, found.done)

    def _free(self, worker: str) -> Iterator[_Open]:
        for number in sorted(self._open):
            if (found := self._held_by(number, worker)) is not None:
                yield found

    def _held_by(self, number: int, worker: str) -> _Open | None:
        """The action without a report, unless another worker has a lease that has not ended."""
        found = self._open.get(number)
        if found is None or found.report is not None:
            return None
        return found if found.worker == worker or not self._is_leased(found) else None

    def _is_leased(self, found: _Open) -> bool:
        return 0 < found.leased_until_ms - self._clock.now_ms() <= LEASE_MS

    def _lease(self, found: _Open, worker: str) -> None:
        found.worker = worker
        found.leased_until_ms = self._clock.now_ms() + LEASE_MS
