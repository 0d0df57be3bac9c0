"""`tidemark index create NAME --column C` or `index repair NAME` in a process of its own that notes each hold
of the table's lock.

    python -m bench.noted_index_command bench.yaml create by_city --column city

Prints a document: what the command answers, its seconds without the start of Python, from when to when it ran
(time.perf_counter, one clock for all processes of a machine), [wall ms, CPU ms, syncs] of each hold, and the
ms of each step of the hold in which the index is switched on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.lock_holds import Holds, noted
from bench.whole_run import say
from tidemark.cli.secondary_index import answer_of
from tidemark.commit_coordinator.offline.secondary_index import create_index, repair_index
from tidemark.config import TableConfigFile, load_config
from tidemark.hudi_format.metadata_table.secondary_creation import SecondaryFailpoint
from tidemark.hudi_format.publication.table_lock import TableLock
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.ids import SystemIds

LOOKS = "looks"
LOOKS_OR_WRITES = "looks or writes"
SWITCHES = "switches on"


def measure(config: TableConfigFile, command: str, name: str, column: str | None) -> dict[str, Any]:
    """One command; returns the document."""
    holds = Holds(doing=(command, LOOKS if command == "create" else LOOKS_OR_WRITES))

    def hit(place: SecondaryFailpoint) -> None:
        holds.doing = command, SWITCHES
        holds.step(place.removeprefix("after_secondary_"))

    began_s = time.perf_counter()
    with noted(TableLock, holds):
        if column is not None:
            made = create_index(config, SystemClock(), SystemIds(), name, column, say, hit)
            document: dict[str, Any] = {"entries": made.entries, "groups": made.groups}
        else:
            document = answer_of(repair_index(config, SystemClock(), SystemIds(), name, say))[0]
    ended_s = time.perf_counter()
    return {
        "answer": document,
        "seconds": round(ended_s - began_s, 2),
        "at_s": [began_s, ended_s],
        "holds": {step: [_rounded(hold) for hold in found] for (_, step), found in holds.found.items()},
        "steps_ms": {step: round(ms[-1], 1) for step, ms in holds.steps_ms.items()},
    }


def _rounded(hold: tuple[float, float, int]) -> list[float]:
    wall, cpu, syncs = hold
    return [round(wall, 1), round(cpu, 1), syncs]


def longest_ms(holds: Mapping[str, Sequence[Sequence[float]]]) -> float:
    """Wall milliseconds of the longest of all holds."""
    return max((hold[0] for of_step in holds.values() for hold in of_step), default=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.noted_index_command",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("config", type=Path)
    parser.add_argument("command", choices=("create", "repair"))
    parser.add_argument("name")
    parser.add_argument("--column", help="with create")
    options = parser.parse_args()
    if (options.command == "create") != (options.column is not None):
        parser.error("--column goes with create, and create with it")
    print(json.dumps(measure(load_config(options.config), options.command, options.name, options.column)))


if __name__ == "__main__":
    main()
