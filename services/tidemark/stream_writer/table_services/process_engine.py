"""Runs bins without Spark: each in a child process of this one. For `tidemark services serve`."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tidemark.stream_writer.table_services.in_child import Child, run_bin


class ProcessEngine:
    """`MergeEngine` over processes of this machine. `slots`: how many run at once; by default one for each
    processor that this process may use.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._slots = slots or len(os.sched_getaffinity(0))
        self._mutex = threading.Lock()
        self._children: list[Child] = []
        self._cancelled = False

    @property
    def slots(self) -> int:
        return self._slots

    @property
    def merges_max(self) -> int:
        return self._slots

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        try:
            with ThreadPoolExecutor(max_workers=max(len(bins), 1)) as pool:
                return list(pool.map(lambda work: run_bin(work, self._started), bins))
        finally:
            with self._mutex:
                self._children.clear()

    def cancel(self) -> None:
        """Ends the processes that run, and each that begins later: their operations fail."""
        with self._mutex:
            self._cancelled = True
            for child in self._children:
                child.kill()

    def _started(self, child: Child) -> None:
        with self._mutex:
            self._children.append(child)
            if self._cancelled:
                child.kill()
