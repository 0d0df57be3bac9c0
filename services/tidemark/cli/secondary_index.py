"""The checks and the printed lines of `tidemark index create NAME`, `repair` and `drop`;
`commit_coordinator.offline` does the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from tidemark.commit_coordinator.offline import secondary_index as offline
from tidemark.commit_coordinator.offline.secondary_build import CreatedIndex
from tidemark.commit_coordinator.offline.secondary_repair import RepairedIndex
from tidemark.config import TableConfigFile
from tidemark.console.errors import CliError
from tidemark.hudi_format.metadata_table.secondary_creation import Hit, SecondaryFailpoint
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds

Answer = tuple[dict[str, Any], list[str]]
Say = Callable[[str], None]


def create(config: TableConfigFile, name: str, column: str, say: Say) -> Answer:
    """Makes a secondary index; returns the answer as document and lines. Raises as `offline.create_index`."""
    return _answer(offline.create_index(config, SystemClock(), SystemIds(), name, column, say, _hit()))


def repair(config: TableConfigFile, name: str, say: Say) -> Answer:
    """Puts a secondary index right. Raises as `offline.repair_index`."""
    return answer_of(offline.repair_index(config, SystemClock(), SystemIds(), name, say))


def answer_of(repaired: RepairedIndex) -> Answer:
    """What was put right of an index."""
    document, [line] = _answer(repaired.index)
    document |= {"missing": repaired.missing, "extra": repaired.extra, "anew": repaired.is_anew}
    name = repaired.index.partition
    if repaired.is_anew:
        return document, [f"made anew: {line}"]
    if not repaired.was_wrong:
        return document, [f"{name} has exactly the entries of the rows"]
    return document, [
        f"{name}: {repaired.missing} missing entries were put in, {repaired.extra} without a row taken out"
    ]


def drop(config: TableConfigFile, name: str, say: Say) -> Answer:
    """Drops a secondary index. Raises CliError where there is none, and as `offline.drop_index`."""
    if not offline.drop_index(config, SystemClock(), SystemIds(), name, say, _hit()):
        raise CliError(f"the table has no secondary index {name}")
    return {"name": name}, [f"the secondary index {name} is dropped"]


def _hit() -> Hit:
    """The places at which a crash test may kill the command, armed by the environment."""
    return FailpointRegistry.from_environment(SecondaryFailpoint, os.environ).hit


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
