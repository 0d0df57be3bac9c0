"""Resident memory of every process over time, held against a limit for each role.

The limits are those of the configuration that `cluster.py` writes (64 MiB of state memory, 512 MiB of Spark
heap, 256 MiB of Kafka heap), plus what an interpreter or a JVM needs besides.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import psutil

_MIB: Final = 1 << 20
LIMITS_MIB: Final[Mapping[str, int]] = {
    "coordinator": 300,
    "assigner": 500,
    "writer": 250,
    "writer's JVM": 900,
    "writer's Python worker": 300,
    "services": 250,
    "services' merge": 300,
    "kafka": 750,
}
_EVERY_S: Final = 1.0


def kind_of(role: str, process: psutil.Process, first: bool) -> str:
    """The key in LIMITS_MIB. `first`: the service itself, not a child of it.

    By the executable, not by the name: what the JVM forks bears the name of the forking thread, and all of
    the JVM's memory, until it executes something else.
    """
    if first or role not in ("writer", "services"):
        return role
    if role == "services":
        return "services' merge"
    return "writer's JVM" if "java" in Path(process.exe()).name else "writer's Python worker"


class MemoryWatch:
    """A thread that samples. `pids`: by seat name, the service itself first."""

    def __init__(self, pids: Callable[[], Mapping[str, list[int]]]) -> None:
        self._pids = pids
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory watch", daemon=True)
        self.failures: list[str] = []
        self.peak_mib: dict[str, int] = {}
        self.samples = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30.0)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            for name, pids in self._pids().items():
                for number, pid in enumerate(pids):
                    with contextlib.suppress(psutil.Error):
                        self._sample(name.split("-")[0], psutil.Process(pid), number == 0)
            self.samples += 1

    def _sample(self, role: str, process: psutil.Process, first: bool) -> None:
        kind = kind_of(role, process, first)
        resident = process.memory_info().rss // _MIB
        self.peak_mib[kind] = max(self.peak_mib.get(kind, 0), resident)
        if resident > LIMITS_MIB[kind] and not any(kind in each for each in self.failures):
            self.failures.append(f"memory: {kind} (process {process.pid}) takes {resident} MiB")
