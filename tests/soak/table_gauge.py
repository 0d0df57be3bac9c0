"""What a table's own size is, minute by minute: log files of a slice, timelines, files, and how long hudi-rs
needs for a snapshot.

Names of figures: `slices: WHICH` (most log files of one file slice), `timeline: WHICH` (files of the active
timeline), `files: table`, `disk: table` (allocated bytes), `snapshot: hudi-rs ms`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from tests.chaos.table_views import read_rows
from tests.soak.gauges import Disk, allocated_bytes
from tidemark.errors import ErrorKind, kind_of
from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.file_group.slices import FileSlice
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_view import TableView

_EVERY_S: Final = 10.0
_SNAPSHOTS: Final = 3
_TIMELINES: Final = {"data": ".hoodie/timeline", "index": ".hoodie/metadata/.hoodie/timeline"}


def table_figures(table: Path) -> dict[str, float]:
    """Raises errors of kind RETRYABLE, and FileMissingError, where files vanish while they are listed."""
    storage = LocalStorage(table)
    snapshot = MetadataTableSnapshot.load(storage)
    view = TableView.of(storage, snapshot.data_timeline)
    found = {
        "slices: log files of data": most_logs(view.slices(snapshot.files.names())),
        "slices: log files of the index": most_logs(
            [each for slices in snapshot.slices.values() for each in slices]
        ),
        "files: table": float(sum(len(names) for _, _, names in os.walk(table))),
        "disk: table": float(allocated_bytes(Disk(table))),
    }
    for name, folder in _TIMELINES.items():
        found[f"timeline: {name}"] = float(sum(1 for each in os.scandir(table / folder) if each.is_file()))
    return found


def most_logs(slices: Sequence[FileSlice]) -> float:
    """The number of log files of the slice with the most."""
    return float(max((len(each.log_files) for each in slices), default=0))


def snapshot_ms(table: Path) -> float:
    """Of several snapshots the fastest: the slower ones also measure what else the machine does."""
    took: list[float] = []
    for _ in range(_SNAPSHOTS):
        began_s = time.monotonic()
        read_rows(table)
        took.append((time.monotonic() - began_s) * 1_000)
    return min(took)


class TableGauge:
    """A thread that samples every ten seconds, and takes snapshots once a minute. `figures` has the greatest
    value of each minute.
    """

    def __init__(
        self,
        table: Path,
        sample: Callable[[Path], dict[str, float]] = table_figures,
        snapshot: Callable[[Path], float] = snapshot_ms,
        every_s: float = _EVERY_S,
    ) -> None:
        self._table, self._sample, self._snapshot, self._every_s = table, sample, snapshot, every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak table gauge", daemon=True)
        self._figures: dict[str, dict[int, float]] = defaultdict(dict)
        self._started_s = 0.0
        self.failures: list[str] = []

    def start(self) -> None:
        """Minute 0 begins now."""
        self._started_s = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60.0)

    def figures(self, minutes: int) -> dict[str, list[float | None]]:
        """The first whole minutes; None where a figure was not measured."""
        found = dict(self._figures)
        return {name: [values.get(minute) for minute in range(minutes)] for name, values in found.items()}

    def _run(self) -> None:
        taken = -1
        try:
            while not self._stop.wait(self._every_s):
                minute = int((time.monotonic() - self._started_s) // 60)
                try:
                    self._note(minute, self._sample(self._table))
                except Exception as error:
                    if kind_of(error) is not ErrorKind.RETRYABLE and not isinstance(error, FileMissingError):
                        raise
                    continue  # files vanished while they were listed; the next sample has them
                if minute > taken:
                    taken = minute
                    self._note(minute, {"snapshot: hudi-rs ms": self._snapshot(self._table)})
        except Exception as error:
            self.failures.append(f"the table gauge ended: {type(error).__name__}: {error}")

    def _note(self, minute: int, sample: dict[str, float]) -> None:
        for name, value in sample.items():
            self._figures[name][minute] = max(self._figures[name].get(minute, 0.0), value)
