"""Runs bins without Spark: each in a child process of this one. For `tidemark services serve`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tidemark.stream_writer.table_services.in_child import run_bin


class ProcessEngine:
    """`MergeEngine` over processes of this machine. `slots`: how many run at once; by default one for each
    processor that this process may use.
    """

    def __init__(self, slots: int | None = None) -> None:
        self._slots = slots or len(os.sched_getaffinity(0))

    @property
    def slots(self) -> int:
        return self._slots

    def run_bins(self, bins: Sequence[bytes]) -> list[bytes]:
        with ThreadPoolExecutor(max_workers=max(len(bins), 1)) as pool:
            return list(pool.map(run_bin, bins))
