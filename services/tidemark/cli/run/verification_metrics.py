"""Prometheus gauges of the coordinator's verifications (`verify.every_commits`).

They exist from the first verdict on: a gauge that was never set reads 0, which would be an alarm for
`verify_agrees`.
"""

from __future__ import annotations

from prometheus_client import Gauge

from tidemark.hudi_format.model import instant_to_ms
from tidemark.stream_runtime.metrics import Metrics
from tidemark.table_status.status import VerificationState


class VerificationMetrics:
    """The gauges, set from the coordinator's status."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._gauges: dict[str, Gauge] = {}

    def show(self, verification: VerificationState | None) -> None:
        """Sets the gauges. `verification` is None while verification is off. A verification that ended
        without a verdict sets its duration only.
        """
        last = verification.last if verification is not None else None
        if verification is None or last is None:
            return
        self._set("verify_duration_seconds", "How long the last verification took", last.seconds)
        if last.agrees is not None:
            differences = sum(kind.count for kind in last.differences.values())
            self._set("verify_agrees", "1 when the last verification found no difference", last.agrees)
            self._set("verify_differences", "Differences that the last verification found", differences)
        if (verified := verification.verified) is not None:
            self._set("verified_epoch", "Newest epoch that was verified", verified.epoch or 0)
            seconds = instant_to_ms(verified.as_of) / 1000 if verified.as_of else 0
            self._set(
                "verified_instant_seconds", "Completion time of the newest commit that was verified", seconds
            )

    def _set(self, name: str, help_text: str, value: float) -> None:
        if name not in self._gauges:
            self._gauges[name] = self._metrics.gauge(name, help_text)
        self._gauges[name].set(value)
