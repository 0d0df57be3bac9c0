"""Metrics as they are exposed, with type and names of labels."""

from __future__ import annotations

from pathlib import Path

from tests.unit.observability.exposed_metrics import all_metrics, exposed_name


def metric_names(folder: Path) -> set[str]:
    """`name{labels} type`, of every service."""
    found = set()
    for family in all_metrics(folder):
        labels = sorted({label for sample in family.samples for label in sample.labels} - {"le"})
        found.add(f"{exposed_name(family)}{{{', '.join(labels)}}} {family.type}")
    return found
