"""Counters, gauges and histograms of one service under one naming scheme.

A name is `tidemark_<part>_<what>_<unit>`. Its last word is one of `UNITS` (times are seconds, sizes bytes),
and a counter's name ends with `_total` after that. Every sample has the label `table`. A label may have a
handful of values: slots, lanes, tiers, steps, reasons; never keys, files or epochs. docs/metrics.md lists the
metrics that users may rely on; a test compares it with what the services expose.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.errors import StreamRuntimeError
from tidemark.stream_runtime.security.refused_calls import RefusedCalls

# All counters begin with the process, so a series with the begin of each counter would add nothing.
disable_created_metrics()  # type: ignore[no-untyped-call]

_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_COUNTED: Final = (
    *("records", "rows", "keys", "entries", "offset", "offsets", "transactions", "epoch", "files"),
    *("instants", "attempts", "rewinds", "claims", "lanes", "members", "starts", "tasks", "blocks", "shards"),
    *("differences", "doubts", "recommits", "groups", "calls", "actions", "services"),
)
_ANSWERED_BY_1_OR_0: Final = ("up", "halted", "paused", "held", "agrees", "waiting")
UNITS: Final = frozenset(("seconds", "bytes", *_COUNTED, *_ANSWERED_BY_1_OR_0))
LATENCY_BUCKETS_S: Final = (
    0.001,
    0.002,
    0.005,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1.0,
    2.0,
    5.0,
    10.0,
    30.0,
    60.0,
)
LABELS_MAX: Final = 4


class MetricsError(StreamRuntimeError):
    """A metric's name or labels break the scheme."""

    kind = ErrorKind.INVALID


class TableRegistry(CollectorRegistry):
    """Adds the label `table` to every sample that it exposes."""

    def __init__(self, table: str) -> None:
        super().__init__()
        self._table = table

    def collect(self) -> Iterable[Metric]:
        """All metrics, with the label."""
        for metric in super().collect():
            labelled = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            labelled.samples = [
                sample._replace(labels={"table": self._table, **sample.labels}) for sample in metric.samples
            ]
            yield labelled


class Metrics:
    """The metrics of one service for one table. A name can be made only once.

    As in prometheus_client, a metric with labels is used through `.labels(...)`. All ports of the process
    count their refusals in `refused`, which is exposed as the metric `refused_calls`. The methods that make a
    metric raise MetricsError for a name or labels that break the scheme.
    """

    def __init__(self, part: str, table: str) -> None:
        self._part = part
        self.registry = TableRegistry(table)
        Info(f"tidemark_{self._checked(part)}", "What this process serves", registry=self.registry)
        ProcessCollector(namespace=f"tidemark_{part}", registry=self.registry)
        self.refused = RefusedCalls()
        self.on_scrape(self._refused_calls)

    def counter(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(self._name(name), help_text, self._labels(labels), registry=self.registry)

    def gauge(self, name: str, help_text: str, labels: Sequence[str] = ()) -> Gauge:
        return Gauge(self._name(name), help_text, self._labels(labels), registry=self.registry)

    def histogram(
        self,
        name: str,
        help_text: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = LATENCY_BUCKETS_S,
    ) -> Histogram:
        return Histogram(
            self._name(name), help_text, self._labels(labels), registry=self.registry, buckets=buckets
        )

    def on_scrape(self, collect: Callable[[], Iterable[Metric]]) -> None:
        """Calls `collect` at each scrape, for values that are kept elsewhere. It makes its metrics with
        `gauge_family` and `counter_family`.
        """
        self.registry.register(_OnScrape(collect))

    def gauge_family(self, name: str, help_text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
        """A gauge for one scrape; `add_metric` gives it its values."""
        return GaugeMetricFamily(self._name(name), help_text, labels=self._labels(labels))

    def counter_family(self, name: str, help_text: str, labels: Sequence[str] = ()) -> CounterMetricFamily:
        """A counter for one scrape, whose value is kept elsewhere; `add_metric` gives it its values."""
        return CounterMetricFamily(self._name(name), help_text, labels=self._labels(labels))

    def _refused_calls(self) -> Iterable[Metric]:
        family = self.counter_family("refused_calls", "Calls turned away, by reason", ["reason"])
        for reason, count in self.refused.counts().items():
            family.add_metric([reason], count)
        yield family

    def _name(self, name: str) -> str:
        if self._checked(name).rsplit("_", 1)[-1] not in UNITS:
            raise MetricsError(f"metric name {name!r} does not end with a unit: {', '.join(sorted(UNITS))}")
        return f"tidemark_{self._part}_{name}"

    @staticmethod
    def _checked(name: str) -> str:
        if not _NAME.fullmatch(name):
            raise MetricsError(f"metric name {name!r}: lower case letters, digits and _ only")
        return name

    def _labels(self, labels: Sequence[str]) -> Sequence[str]:
        # Each combination of label values is a time series of its own.
        if len(labels) > LABELS_MAX:
            raise MetricsError(f"at most {LABELS_MAX} labels, not {', '.join(labels)}")
        return [self._checked(label) for label in labels]


class _OnScrape:
    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def describe(self) -> Iterable[Metric]:
        """Nothing: `collect` may not work yet when it is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        return self._collect()
