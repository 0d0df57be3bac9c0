"""Resident memory of the processes of a run, by role, sampled while they work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import psutil

_EVERY_S: Final = 0.5
_MIB: Final = 1 << 20
# A JVM that starts a program is there twice for a moment, with all its memory in both.
_GROWN_UP_S: Final = 1.0

Roles = Mapping[str, Iterable[int]]
"""Role -> process ids; a child process belongs to its parent's role, under its own kind."""


class MemorySampler:
    """Peaks per role while it is entered. `roles` is asked before each sample: processes come and go."""

    def __init__(self, roles: Callable[[], Roles]) -> None:
        self._roles = roles
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory-sampler", daemon=True)
        self._peaks: dict[str, int] = {}
        self._anonymous: dict[str, int] = {}
        self._cpu_s: dict[int, tuple[str, float]] = {}
        self._peak_total = 0

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def peaks_mib(self) -> dict[str, int]:
        """Peak resident MiB per role. Processes of one role and kind are added up, pages that forked
        workers share counted in each; `all` is the greatest sum at one moment.
        """
        peaks = {role: round(size / _MIB) for role, size in sorted(self._peaks.items())}
        return {**peaks, "all": round(self._peak_total / _MIB)}

    def anonymous_mib(self) -> dict[str, int]:
        """As `peaks_mib`, of anonymous memory alone: pages of mapped files go back to the system."""
        return {role: round(size / _MIB) for role, size in sorted(self._anonymous.items())}

    def cpu_seconds(self) -> dict[str, float]:
        """CPU time per role that its processes have used so far in their lives, also those that ended."""
        used: dict[str, float] = {}
        for role, seconds in self._cpu_s.values():
            used[role] = used.get(role, 0.0) + seconds
        return {role: round(seconds, 2) for role, seconds in sorted(used.items())}

    def _sample(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self.sample_now()

    def sample_now(self) -> None:
        """One sample, at once."""
        sizes: dict[str, int] = {}
        anonymous: dict[str, int] = {}
        role_of = {pid: role for role, pids in self._roles().items() for pid in pids}
        for pid, role in role_of.items():
            for name, size, own in self._tree(role, pid, role_of):
                sizes[name] = sizes.get(name, 0) + size
                anonymous[name] = anonymous.get(name, 0) + own
        for peaks, now in ((self._peaks, sizes), (self._anonymous, anonymous)):
            for name, size in now.items():
                peaks[name] = max(peaks.get(name, 0), size)
        self._peak_total = max(self._peak_total, sum(sizes.values()))

    def _tree(self, role: str, pid: int, known: Mapping[int, str]) -> list[tuple[str, int, int]]:
        """The process and its descendants, but no branch that has a role of its own: role, resident and
        anonymous bytes of each.
        """
        found: list[tuple[str, int, int]] = []
        queue = [(pid, role)]
        while queue:
            each, name = queue.pop()
            try:
                process = psutil.Process(each)
                if time.time() - process.create_time() < _GROWN_UP_S:
                    continue
                memory, cpu = process.memory_info(), process.cpu_times()
                children = [child for child in process.children() if child.pid not in known]
                queue += [(child.pid, f"{role}: {_kind(child.name())}") for child in children]
            except psutil.Error:
                continue
            # Linux has no anonymous page in `shared`, and every other one is in it.
            found.append((name, memory.rss, memory.rss - memory.shared))
            self._cpu_s[each] = (name, float(cpu.user + cpu.system))
        return found


def _kind(program: str) -> str:
    return "JVM" if program.startswith("java") else "Python workers"


def merged_peaks(parts: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The greatest of several samplers' peaks."""
    merged: dict[str, int] = {}
    for part in parts:
        for role, size in part.items():
            merged[role] = max(merged.get(role, 0), size)
    return merged
