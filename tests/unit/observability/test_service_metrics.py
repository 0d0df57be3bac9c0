"""Metrics and warnings of table services: what ended counts once and by outcome; what is wrong is named."""

from __future__ import annotations

from typing import Any

from prometheus_client import generate_latest

from tidemark.commit_coordinator.domain.slice_stats import SliceStats, TableSlices
from tidemark.commit_coordinator.status.service_metrics import ServiceMetrics
from tidemark.commit_coordinator.status.table_services import service_warnings
from tidemark.epoch_protocol.entries import Decision
from tidemark.epoch_protocol.fold import Verdict
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceKind,
    ServiceOutcome,
    ServicePlanned,
    ServiceVoided,
)
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.metrics import Metrics
from tidemark.table_status.services import (
    OpenServiceAction,
    OwnServices,
    ServiceFailures,
    ServiceKindState,
)
from tidemark.table_status.warnings import WarningKind

TERM = 5


class Shown:
    """The metrics of a coordinator of term 5, after entries that its reader applied."""

    def __init__(self, *entries: Decision) -> None:
        self._metrics = Metrics("coordinator", "t")
        self._services = ServiceMetrics(self._metrics, lambda: TERM)
        self.own = OwnServices()
        self.slices = TableSlices()
        self._metrics.on_scrape(
            lambda: [*self._services.of_view(self.own, 90_000), *self._services.of_slices(self.slices)]
        )
        for entry in entries:
            self._services.observe(Applied(0, entry, Verdict.APPLIED))

    def values(self, what: str) -> dict[str, float]:
        """Labels -> value."""
        found = {}
        for line in generate_latest(self._metrics.registry).decode().splitlines():
            name, _, rest = line.partition("{")
            if name == f"tidemark_coordinator_{what}":
                labels, _, value = rest.rpartition("} ")
                found[labels.replace('table="t"', "").strip(",").replace('"', "")] = float(value)
        return found


def planned(service: int, kind: ServiceKind, term: int = TERM) -> ServicePlanned:
    return ServicePlanned(term, service, kind, f"T{service}", "p", "s", 1_000)


def committed(service: int, outcome: ServiceOutcome = ServiceOutcome.DONE, term: int = TERM) -> Any:
    return ServiceCommitted(term, service, f"T{service}", "C", outcome, 4_000)


def test_ended_actions_count_once_by_outcome_and_only_in_this_term() -> None:
    shown = Shown(
        planned(1, ServiceKind.ARCHIVE, term=2),
        committed(1, term=2),
        planned(2, ServiceKind.COMPACT_DATA, term=2),
        committed(2, ServiceOutcome.BY_OTHER),
        planned(3, ServiceKind.ARCHIVE),
        ServiceVoided(TERM, 3, "r"),
        planned(4, ServiceKind.ARCHIVE),
        committed(4),
    )
    assert shown.values("service_actions_total") == {
        "kind=archive,outcome=done": 1,
        "kind=archive,outcome=voided": 1,
        "kind=compact-data,outcome=by_other": 1,
    }
    assert shown.values("service_seconds_sum") == {"kind=compact-data": 3, "kind=archive": 3}


def test_gauges_follow_the_newest_view() -> None:
    shown = Shown()
    assert shown.values("services_paused") == {"": 0}
    assert shown.values("open_service_seconds") == shown.values("backpressure_held") == {}
    action = OpenServiceAction(number=1, instant="T", step="planned", planned_ms=30_000)
    shown.own = OwnServices(
        enabled=True,
        paused=True,
        behind=["a slice"],
        backpressure="stretched",
        kinds=[
            ServiceKindState(kind="archive", held_back=["savepoint"], failures=ServiceFailures(3, "r", 0)),
            ServiceKindState(kind="compact-data", open=action),
        ],
    )
    assert (shown.values("services_paused"), shown.values("late_services")) == ({"": 1}, {"": 1})
    assert shown.values("open_service_seconds") == {"kind=archive": 0, "kind=compact-data": 60}
    levels = {f"level={level}": level == "stretched" for level in ("none", "share", "stretched", "slowed")}
    assert shown.values("backpressure_held") == levels
    assert shown.values("service_failed_actions") == {"kind=archive": 3, "kind=compact-data": 0}
    assert shown.values("service_held") == {"kind=archive": 1, "kind=compact-data": 0}


def test_the_longest_slices_are_told_whoever_compacts() -> None:
    shown = Shown()
    assert shown.values("slice_log_files") == {"timeline=data": 0, "timeline=metadata": 0}
    shown.slices = TableSlices(
        (SliceStats("p", "f", 9, 2, 70, 0), SliceStats("p", "g", 9, 4, 60, 0)),
        (SliceStats("record_index", "s", 9, 7, 8, 0),),
    )
    assert shown.values("slice_log_files") == {"timeline=data": 4, "timeline=metadata": 7}
    assert shown.values("slice_log_bytes") == {"timeline=data": 70, "timeline=metadata": 8}


def test_warnings_name_what_fails_what_holds_back_and_what_is_behind() -> None:
    own = OwnServices(
        enabled=True,
        behind=["slice p f has 99 log files"],
        kinds=[
            ServiceKindState(kind="archive", held_back=["savepoint 2026"]),
            ServiceKindState(kind="clean-data", failures=ServiceFailures(2, "no space", 0)),
            ServiceKindState(kind="clean-index", failures=ServiceFailures(1, "by chance", 0)),
        ],
    )
    found = {warning.kind: warning.text for warning in service_warnings(own)}
    assert found.keys() == {
        WarningKind.SERVICE_HELD_BACK,
        WarningKind.SERVICE_FAILS,
        WarningKind.SERVICES_BEHIND,
    }
    assert found[WarningKind.SERVICE_HELD_BACK] == "archive is held back: savepoint 2026"
    assert "clean-data has failed 2 times in a row: no space" in found[WarningKind.SERVICE_FAILS]
    assert found[WarningKind.SERVICES_BEHIND].endswith("slice p f has 99 log files")
    assert list(service_warnings(OwnServices())) == []
