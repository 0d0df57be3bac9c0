"""The checks and the printed lines of `tidemark index create`; `commit_coordinator.offline` does the work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tidemark.cli.tables import refuse_while_served_elsewhere, refuse_while_serving
from tidemark.commit_coordinator.offline.column_stats import create_column_stats
from tidemark.config import TableConfigFile
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds


def create(
    config: TableConfigFile, columns: Sequence[str], say: Callable[[str], None]
) -> tuple[dict[str, Any], list[str]]:
    """Makes column stats of a table whose services do not run; returns the answer as document and lines.

    Raises CliError while services of the table run, and as `create_column_stats`.
    """
    clock = SystemClock()
    refuse_while_serving(config)
    refuse_while_served_elsewhere(config, clock, say)
    created = create_column_stats(config, clock, SystemIds(), columns, say)
    document = {"columns": list(created.columns), "files": created.files, "records": created.records}
    return document, [
        f"column stats of {', '.join(created.columns)}: {created.records} records of {created.files} files",
        "other writers need other options now: `tidemark table describe` prints them",
    ]
