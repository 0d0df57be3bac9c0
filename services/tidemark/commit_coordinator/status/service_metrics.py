"""Metrics of the table services: what the decisions say of ended actions, and what the newest view shows.

Actions that an earlier coordinator of this table planned count here when this one ends them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.metrics_core import Metric

from tidemark.commit_coordinator.domain.backpressure import BackpressureLevel
from tidemark.commit_coordinator.domain.slice_stats import SliceStats, TableSlices
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServicePlanned,
    ServiceVoided,
)
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.metrics import Metrics
from tidemark.table_status.services import OwnServices, ServiceKindState

_BUCKETS_S: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_800.0, 3_600.0)
_VOIDED: Final = "voided"


class ServiceMetrics:
    """The coordinator's thread calls ``observe``; scrapes call ``of_view`` and ``of_slices``."""

    def __init__(self, metrics: Metrics, term: Callable[[], int]) -> None:
        """``term``: gives this coordinator's term, -1 before it has one."""
        self._metrics = metrics
        self._term = term
        self._planned: dict[int, ServicePlanned] = {}
        self._ended: Counter[tuple[str, str]] = Counter()
        self._seconds = metrics.histogram(
            "service_seconds",
            "Actions of table services that were done, from plan to end",
            ["kind"],
            _BUCKETS_S,
        )

    def observe(self, applied: Applied) -> None:
        """Counts an ended action of this term; ignores all other entries."""
        entry = applied.entry
        if applied.verdict is not Verdict.APPLIED:
            return
        if isinstance(entry, ServicePlanned):
            self._planned[entry.service] = entry
        elif isinstance(entry, ServiceCommitted | ServiceVoided):
            planned = self._planned.pop(entry.service, None)
            if planned is None or entry.term != self._term():
                return
            if isinstance(entry, ServiceVoided):
                self._ended[planned.kind, _VOIDED] += 1
                return
            self._ended[planned.kind, entry.outcome] += 1
            took_ms = max(entry.committed_ms - planned.planned_ms, 0)
            self._seconds.labels(planned.kind).observe(took_ms / 1000)

    def of_view(self, services: OwnServices, now_ms: int) -> Iterable[Metric]:
        """The metrics of a view; those with a kind only when services are enabled."""
        metrics = self._metrics
        ended = metrics.counter_family(
            "service_actions",
            "Actions of table services by how they ended, since this coordinator began",
            ["kind", "outcome"],
        )
        for (kind, outcome), count in list(self._ended.items()):
            ended.add_metric([kind, outcome], count)
        yield ended
        yield self._gauge("services_paused", "1 after `tidemark services pause`", services.paused)
        yield self._gauge("late_services", "Table services that do not keep up", len(services.behind))
        yield self._backpressure(services.backpressure)
        yield self._by_kind(
            "open_service_seconds",
            "Age of the open action; 0: none",
            services,
            lambda kind: _age(kind, now_ms),
        )
        yield self._by_kind("service_failed_actions", "Actions that failed in a row", services, _failed)
        yield self._by_kind(
            "service_held",
            "1 while something, such as a savepoint, keeps the service from a part of its work "
            "(`tidemark services list` names it)",
            services,
            lambda kind: bool(kind.held_back),
        )

    def _backpressure(self, now: str) -> Metric:
        family = self._metrics.gauge_family(
            "backpressure_held", "1 for what is done now because compactions do not keep up", ["level"]
        )
        for level in BackpressureLevel if now else ():
            family.add_metric([level], float(level == now))
        return family

    def of_slices(self, slices: TableSlices) -> Iterable[Metric]:
        """The longest file slices of data and metadata table."""
        files = self._metrics.gauge_family(
            "slice_log_files", "Log files of the newest file slice that has most", ["timeline"]
        )
        size = self._metrics.gauge_family(
            "slice_log_bytes", "Bytes of log files of the newest file slice that has most", ["timeline"]
        )
        tables: tuple[tuple[str, Iterable[SliceStats]], ...] = (
            ("data", slices.data),
            ("metadata", slices.index),
        )
        for timeline, of_table in tables:
            files.add_metric([timeline], max((stats.log_count for stats in of_table), default=0))
            size.add_metric([timeline], max((stats.log_bytes for stats in of_table), default=0))
        return files, size

    def _gauge(self, name: str, help_text: str, value: float) -> Metric:
        family = self._metrics.gauge_family(name, help_text)
        family.add_metric([], float(value))
        return family

    def _by_kind(
        self, name: str, help_text: str, services: OwnServices, value: Callable[[ServiceKindState], float]
    ) -> Metric:
        family = self._metrics.gauge_family(name, help_text, ["kind"])
        for state in services.kinds:
            family.add_metric([state.kind], float(value(state)))
        return family


def _age(state: ServiceKindState, now_ms: int) -> float:
    return max(now_ms - state.open.planned_ms, 0) / 1000 if state.open is not None else 0.0


def _failed(state: ServiceKindState) -> float:
    return state.failures.in_a_row if state.failures is not None else 0
