"""The loop that works on service actions: it asks the coordinator for one, merges its operations wave by
wave, and reports.

A wave has as many bins as the share of the task slots allows, at least one, and the next one begins when it
has ended: so epochs find the other slots free, whatever the file groups' sizes. Every step may fail and be
repeated: what is merged stays prepared with the action (`merges.py`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from tidemark.errors import ErrorKind
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOutcome
from tidemark.stream_runtime.logging import bound
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer.errors import EngineFailedError
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.merge_tasks import merge_tasks
from tidemark.stream_writer.table_services.bins import (
    Blame,
    MergeBin,
    MergeFailed,
    NumberedOperation,
    decode_report,
    divided,
    encode_bin,
    weight,
)

ASK_WAIT_S: Final = 5.0
# A third of the lease that the coordinator gives.
KEEP_S: Final = 10.0
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
_REASON_CHARS_MAX: Final = 6_000

_log: Final = logging.getLogger("tidemark.services")


class PlannedService(NamedTuple):
    """A service action whose tasks nobody works on."""

    number: int
    kind: str
    instant: str


class BegunService(NamedTuple):
    """What an action is to do. `token` names its prepared files, `share` is the part of the task slots that
    it may take now. `is_behind`: compactions do not keep up (`merge_tasks`).
    """

    plan: CompactionPlan
    token: str
    share: float
    is_behind: bool = False


class ServiceCoordinator(Protocol):
    """The calls of `tidemark.commit.v1` about service actions. Every call raises RpcError: of kind RETRYABLE
    if there was no answer, FENCED if the action is somebody else's, or over.
    """

    def next_service(self, wait_s: float) -> PlannedService | None:
        """An action to work on; leases it. Waits for one up to `wait_s`; None if there is none."""
        ...

    def begin_service(self, number: int) -> BegunService:
        """What the action is to do; renews the lease."""
        ...

    def keep_service(self, number: int, done: int) -> None:
        """Renews the lease, and tells how many operations are done."""
        ...

    def report_service(self, number: int, outcomes: Sequence[MergeOutcome]) -> None:
        """Reports all operations as done."""
        ...

    def report_service_failed(
        self, number: int, reason: str, done: int, failures: Sequence[MergeFailed]
    ) -> None:
        """Reports that the action cannot be done now, how many operations are done, and which failed."""
        ...

    def give_service_back(self, number: int) -> None:
        """Ends the lease: somebody else may go on at once."""
        ...


class MergeEngine(Protocol):
    """What runs bins."""

    @property
    def slots(self) -> int:
        """How many tasks run at once, those of epochs included."""
        ...

    @property
    def merges_max(self) -> int:
        """How many bins may run at once without leaving epochs no slot."""
        ...

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        """Runs these bins at once and returns their reports in the same order. Raises WriterError."""
        ...


@dataclass(frozen=True)
class MergeSettings:
    """`base_uri`: the table's folder. `memory_bytes` of one merge. `scratch`: see `MergeBin`."""

    base_uri: str
    memory_bytes: int
    scratch: str = ""


class ServicesLoop:
    """Works on one action at a time. Runs in one thread."""

    def __init__(
        self,
        coordinator: ServiceCoordinator,
        engine: MergeEngine,
        settings: MergeSettings,
        reached: Callable[[WriterFailpoint], None] = lambda _: None,
        *,
        keep_s: float = KEEP_S,
    ) -> None:
        """`reached` is called after each step, for failpoints."""
        self._coordinator, self._engine, self._settings = coordinator, engine, settings
        self._reached, self._keep_s = reached, keep_s

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set, which is checked between waves. An error ends nothing: the loop asks
        again, later and later.
        """
        pause_s = PAUSE_S
        while not stop.is_set():
            try:
                self.run_once(ASK_WAIT_S, stop)
                pause_s = PAUSE_S
            except Exception as error:
                known = isinstance(error, RpcError)
                _log.warning("%s; asking again in %.0f s", error, pause_s, exc_info=not known)
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def run_once(self, wait_s: float, stop: threading.Event) -> bool:
        """Asks once for an action and works on it. True if the coordinator took its report of files."""
        planned = self._coordinator.next_service(wait_s)
        if planned is None:
            return False
        with bound(action=planned.number, kind=planned.kind, instant=planned.instant):
            try:
                reported = self._work(planned, stop)
                if not reported and stop.is_set():
                    self._coordinator.give_service_back(planned.number)
                    _log.info("stopping: the action is given back")
                return reported
            except RpcError as error:
                if error.kind is not ErrorKind.FENCED:
                    raise
                _log.info("the action is over: %s", error)
                return False

    def _work(self, planned: PlannedService, stop: threading.Event) -> bool:
        begun = self._coordinator.begin_service(planned.number)
        self._reached(WriterFailpoint.MERGES_BEGUN)
        plan = begun.plan
        waiting = divided(plan.operations, self._tasks(begun))
        size = sum(map(weight, plan.operations)) >> 20
        _log.info("%d operations of about %d MiB in %d bins", len(plan.operations), size, len(waiting))
        done: dict[int, MergeOutcome] = {}
        failures: list[MergeFailed] = []
        with self._kept(planned.number, done) as lost:
            while waiting and not stop.is_set() and not lost.is_set():
                tasks = self._tasks(begun)
                wave, waiting = waiting[:tasks], waiting[tasks:]
                failures += self._run_wave(begun, wave, done)
                self._reached(WriterFailpoint.MERGES_WAVE)
                if any(failed.kind is ErrorKind.FENCED for failed in failures):
                    _log.info("the action is over: %s", failures[0].message)
                    return False
                # What a file group may be the cause of keeps no other group from being merged. So one try
                # shows all that fail, and that others are done.
                if any(failed.blame is Blame.NONE for failed in failures):
                    break
                if waiting:
                    begun = self._coordinator.begin_service(planned.number)
        if failures:
            if not stop.is_set():
                self._failed(planned.number, failures, len(done))
            return False
        if waiting or lost.is_set():
            # Somebody else goes on: what is merged stays prepared.
            return False
        missing = sorted(set(range(len(plan.operations))) - done.keys())
        if missing:
            left_out = MergeFailed(missing[0], "NotTried", "its process left it out")
            self._failed(planned.number, [left_out], len(done))
            return False
        return self._report(planned.number, [done[number] for number in sorted(done)])

    def _report(self, number: int, outcomes: Sequence[MergeOutcome]) -> bool:
        """True if the coordinator took the report. One that it can never take (it is too large) fails the
        action: its files are there, so each try would end at the same report.
        """
        try:
            self._coordinator.report_service(number, outcomes)
        except RpcError as error:
            if error.kind not in (ErrorKind.INVALID, ErrorKind.CORRUPT):
                raise
            reason = f"the report of {len(outcomes)} operations cannot be taken: {error}"
            _log.error("%s", reason)
            self._coordinator.report_service_failed(number, reason[:_REASON_CHARS_MAX], len(outcomes), ())
            return False
        self._reached(WriterFailpoint.MERGES_REPORTED)
        _log.info("all operations are done")
        return True

    def _tasks(self, begun: BegunService) -> int:
        engine = self._engine
        return merge_tasks(engine.slots, engine.merges_max, begun.share, begun.is_behind)

    def _run_wave(
        self, begun: BegunService, wave: list[list[NumberedOperation]], done: dict[int, MergeOutcome]
    ) -> list[MergeFailed]:
        """Runs the bins; returns the failures, those of other engines than processes included."""
        settings, plan = self._settings, begun.plan
        bins = [
            MergeBin(
                base_uri=settings.base_uri,
                token=begun.token,
                instant=plan.instant,
                is_index=plan.is_index,
                schema=plan.schema,
                memory_bytes=settings.memory_bytes,
                scratch=settings.scratch,
                is_nice=not begun.is_behind,
                operations=tuple(operations),
                stats_columns=() if plan.stats is None else plan.stats.columns,
            )
            for operations in wave
        ]
        try:
            reports = [
                decode_report(report) for report in self._engine.run_bins([encode_bin(b) for b in bins])
            ]
        except EngineFailedError as error:
            return [MergeFailed(wave[0][0].ordinal, type(error).__name__, str(error), error.kind)]
        for report in reports:
            done.update((outcome.ordinal, outcome) for outcome in report.outcomes)
        peak = max((report.peak_bytes for report in reports), default=0)
        _log.info("%d operations are done, peak memory %d MiB", len(done), peak >> 20)
        return [failed for report in reports for failed in report.failures]

    def _failed(self, number: int, failures: Sequence[MergeFailed], done: int) -> None:
        for failed in failures:
            _log.error("operation %d failed: %s: %s", failed.ordinal, failed.error, failed.message)
        first = failures[0]
        which = f"{len(failures)} operations failed, first number {first.ordinal}"
        reason = f"{which}, {first.error}: {first.message}"
        self._coordinator.report_service_failed(number, reason[:_REASON_CHARS_MAX], done, failures)

    @contextmanager
    def _kept(self, number: int, done: dict[int, MergeOutcome]) -> Iterator[threading.Event]:
        """Keeps the lease on a thread of its own; the event says that it is lost."""
        lost, ended = threading.Event(), threading.Event()

        def keep() -> None:
            while not ended.wait(self._keep_s):
                try:
                    self._coordinator.keep_service(number, len(done))
                except RpcError as error:
                    if error.kind is ErrorKind.FENCED:
                        lost.set()
                        return
                    _log.warning("the lease of the action was not renewed: %s", error)

        keeper = threading.Thread(target=keep, name="service-lease", daemon=True)
        keeper.start()
        try:
            yield lost
        finally:
            ended.set()
            keeper.join()
