"""All published names, as the code has them now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.frozen_names.admin_api import admin_api
from tests.unit.frozen_names.figures import figure_names
from tests.unit.frozen_names.json_outputs import admin_documents, command_documents
from tests.unit.frozen_names.log_fields import log_fields
from tests.unit.frozen_names.metric_names import metric_names
from tests.unit.frozen_names.published_values import published_values


def gathered(folder: Path, patched: pytest.MonkeyPatch) -> dict[str, set[str]]:
    """By kind. `folder` is empty; `patched` puts doubles in the place of Kafka and the network."""
    parts = {name: folder / name for name in ("api", "cli", "metrics", "figures")}
    for each in parts.values():
        each.mkdir()
    return {
        "admin_api": admin_api() | admin_documents(parts["api"], patched),
        "json_keys": command_documents(parts["cli"], patched) | figure_names(parts["figures"]),
        "metrics": metric_names(parts["metrics"]),
        "log_fields": log_fields(),
        "values": published_values(),
    }
