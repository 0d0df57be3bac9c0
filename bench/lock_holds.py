"""How long table services hold the table's lock: the longest hold of each kind and step, on a table with many
file groups, in 8 and in 64 partitions. The lock keeps other writers waiting, and the coordinator's loop does
nothing else meanwhile.

    python -m bench.lock_holds                        64 file groups of 40 log files
    python -m bench.lock_holds --groups 1000          an action takes 64 of them

CPU time is that of the process; wall time has the syncs of the disk, which are counted, and the waiting for a
busy machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from bench.conditions import conditions, load_average
from bench.data_tables import TABLE_SCHEMA, DataShape, DataTable
from tests.service_actions import EVERYTHING_NOW, ServedTable
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.stream_runtime.clock import SystemClock

KINDS: Final = (
    ServiceKind.COMPACT_DATA,
    ServiceKind.COMPACT_INDEX,
    ServiceKind.CLEAN_DATA,
    ServiceKind.CLEAN_INDEX,
    ServiceKind.ARCHIVE,
    ServiceKind.ARCHIVE,
)


@dataclass
class Holds:
    """(wall milliseconds, CPU milliseconds, syncs) of each hold of the lock, by kind and step."""

    found: dict[tuple[str, str], list[tuple[float, float, int]]] = field(default_factory=dict)
    doing: tuple[str, str] = ("", "")
    syncs: int = 0
    steps_ms: dict[str, list[float]] = field(default_factory=dict)
    """What `step` was told of: wall milliseconds since the step before in the same hold, or its beginning."""
    _begun: tuple[float, float, int] | None = None
    _step_s: float = 0.0

    def begin(self) -> None:
        """The lock is taken, or was taken before."""
        if self._begun is None:
            self._begun = time.perf_counter(), time.process_time(), self.syncs
            self._step_s = self._begun[0]

    def step(self, name: str) -> None:
        """A step under the lock has ended. What follows the last one of a hold is called "the rest"."""
        now_s = time.perf_counter()
        self.steps_ms.setdefault(name, []).append((now_s - self._step_s) * 1e3)
        self._step_s = now_s

    def end(self) -> None:
        """The lock is given back; nothing happens where it was not held."""
        if self._begun is not None:
            if self._step_s > self._begun[0]:
                self.step("the rest")
            wall, cpu = time.perf_counter() - self._begun[0], time.process_time() - self._begun[1]
            syncs = self.syncs - self._begun[2]
            self.found.setdefault(self.doing, []).append((wall * 1e3, cpu * 1e3, syncs))
            self._begun = None

    def lines(self) -> Iterator[str]:
        """What the holds of each kind and step took at most."""
        for (kind, step), times in self.found.items():
            wall, cpu, syncs = (max(of_one) for of_one in zip(*times, strict=True))
            yield (
                f"{kind:14} {step:7} {len(times):4} holds, at most {wall:6.1f} ms, {cpu:6.1f} ms of CPU, "
                f"{syncs:3} syncs"
            )


def measure(folder: Path, shape: DataShape) -> Holds:
    """One action of each kind, of archival one of each timeline."""
    with patch.object(os, "fsync", lambda _: None):
        DataTable(folder, shape)
    served = ServedTable(folder, TABLE_SCHEMA, SystemClock(), EVERYTHING_NOW)
    holds = Holds()
    with noted(served.term.lock, holds):
        for kind in KINDS:
            time.sleep(0.01)  # cleans keep what is younger than a millisecond
            holds.doing = str(kind), "plan"
            if not served.plan(kind, asked=True):
                continue
            holds.doing = str(kind), "tasks"
            report = served.work(kind)
            holds.doing = str(kind), "commit"
            if served.decide(kind, report):
                holds.doing = str(kind), "sweep"
                served.sweep(kind)
    return holds


@contextmanager
def noted(lock: Any, holds: Holds) -> Iterator[None]:
    """`holds` gets all holds of the lock. `lock`: one, or its class for all locks of the process."""
    acquire, release, fsync = lock.acquire, lock.release, os.fsync

    def acquired(*args: Any, **named: Any) -> None:
        acquire(*args, **named)
        holds.begin()

    def released(*args: Any, **named: Any) -> None:
        release(*args, **named)
        holds.end()

    def synced(descriptor: Any) -> None:
        holds.syncs += 1
        fsync(descriptor)

    patches = patch.object(lock, "acquire", acquired), patch.object(lock, "release", released)
    with patch.object(os, "fsync", synced), patches[0], patches[1]:
        yield


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.lock_holds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--groups", type=int, default=64)
    parser.add_argument("--logs", type=int, default=40, help="log files of each file group")
    parser.add_argument("--rows", type=int, default=200, help="rows of each file group")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="tidemark-holds-"))
    try:
        print(conditions())
        for partitions in (8, 64):
            shape = DataShape(options.groups, options.rows, options.logs, 0.1, partitions)
            print(f"{options.groups} file groups of {options.logs} log files in {partitions} partitions:")
            print("\n".join(measure(work / str(partitions), shape).lines()), flush=True)
        print(f"load after it {load_average()}")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
