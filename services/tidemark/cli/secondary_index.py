"""The checks and the printed lines of `tidemark index create NAME`, `repair` and `drop`;
`commit_coordinator.offline` does the work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark.cli.tables import refuse_while_served_elsewhere, refuse_while_serving
from tidemark.commit_coordinator.offline import secondary_index as offline
from tidemark.commit_coordinator.offline.secondary_build import CreatedIndex
from tidemark.config import TableConfigFile
from tidemark.console.errors import CliError
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.ids import SystemIds

Answer = tuple[dict[str, Any], list[str]]
Say = Callable[[str], None]


def create(config: TableConfigFile, name: str, column: str, say: Say) -> Answer:
    """Makes a secondary index of a table whose services do not run; returns the answer as document and lines.

    Raises CliError while services of the table run, and as `offline.create_index`.
    """
    clock = _unserved(config, say)
    return _answer(offline.create_index(config, clock, SystemIds(), name, column, say))


def repair(config: TableConfigFile, name: str, say: Say) -> Answer:
    """Makes a secondary index anew. Raises as `create`, and `offline.rebuild_index`."""
    clock = _unserved(config, say)
    return _answer(offline.rebuild_index(config, clock, SystemIds(), name, say))


def drop(config: TableConfigFile, name: str, say: Say) -> Answer:
    """Drops a secondary index. Raises CliError while services of the table run, and where there is none; and
    as `offline.drop_index`.
    """
    clock = _unserved(config, say)
    if not offline.drop_index(config, clock, SystemIds(), name):
        raise CliError(f"the table has no secondary index {name}")
    return {"name": name}, [f"the secondary index {name} is dropped"]


def _unserved(config: TableConfigFile, say: Say) -> Clock:
    clock = SystemClock()
    refuse_while_serving(config)
    refuse_while_served_elsewhere(config, clock, say)
    return clock


def _answer(made: CreatedIndex) -> Answer:
    document = {
        "partition": made.partition,
        "column": made.column,
        "groups": made.groups,
        "entries": made.entries,
    }
    return document, [
        f"{made.partition} of the column {made.column}: {made.entries} entries in {made.groups} file groups"
    ]
