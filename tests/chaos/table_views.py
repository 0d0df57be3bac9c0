"""A reader that reads all the time: the whole table is read again whenever a file of it has come, gone or
changed, and each view is judged. Between two such changes a reader sees what it saw before. It rests in
between, by how long it read: views grow with the table's log files, and the services need the processor, too.

Each reader (hudi-rs; Hudi on Spark in the long version) has a thread and a history of the input of its own.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder

from tests.chaos.events import InputReader
from tests.chaos.identities import identified
from tests.chaos.lane_history import InputHistory
from tests.chaos.timeline_watch import TimelineWatch
from tests.input_model import Row

COLUMNS: Final = ("id", "region", "ts", "name", "amount")
_INPUT_S: Final = 120.0
_PAUSE_MIN_S: Final = 0.1


def read_rows(table: Path) -> list[Row]:
    """All live rows as hudi-rs reads them; of a table without a commit it reads no batch."""
    batches = HudiTableBuilder.from_base_uri(str(table)).build().read(HudiReadOptions())
    if not batches:
        return []
    found = pa.Table.from_batches([pa.record_batch(batch) for batch in batches])
    return list(found.select(COLUMNS).to_pylist())


def read_identified(table: Path) -> list[Row]:
    """As `read_rows`, of a table with a partitioned record index."""
    return [identified(row) for row in read_rows(table)]


def files_of(table: Path) -> list[tuple[str, int, int]]:
    """Every file below the table as it is now: path, length, time of change (ns)."""
    found: list[tuple[str, int, int]] = []
    folders = [str(table)]
    while folders:
        with contextlib.suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    seen = entry.stat(follow_symlinks=False)
                    found.append((entry.path, seen.st_size, seen.st_mtime_ns))
    return found


def by_key(rows: Iterable[Row]) -> dict[str, Row]:
    """Raises AssertionError when a key is there twice."""
    found: dict[str, Row] = {}
    for row in rows:
        if row["id"] in found:
            raise AssertionError(f"{row['id']} is there twice: {found[row['id']]} and {row}")
        found[row["id"]] = row
    return found


class TableViews:
    """The reading thread. `failures` holds what was found wrong; `views` counts readings that were judged,
    `exact` those that no commit came into, which are held against the commits' own counts as well.
    """

    def __init__(
        self,
        table: Path,
        timeline: TimelineWatch,
        reader: InputReader,
        history: InputHistory,
        read: Callable[[Path], list[Row]] | None = None,
        rest: float = 1.0,
    ) -> None:
        """`read` answers with all live rows; hudi-rs does where it is left out. `rest`: how many times as
        long as a view took it rests before the next.
        """
        self._table, self._timeline, self._read = table, timeline, read or read_rows
        self._rest = rest
        self._reader, self.history = reader, history
        self._stop = threading.Event()
        self._abandoned = False
        self._judged: list[tuple[str, int, int]] | None = None
        self._thread = threading.Thread(target=self._run, name="table views", daemon=True)
        self.failures: list[str] = []
        self.views = 0
        self.exact = 0
        self.longest_s = 0.0
        self._pause_s = _PAUSE_MIN_S

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Whoever calls may use reader and history from here on."""
        self._stop.set()
        self._thread.join(_INPUT_S + 60.0)
        if self._thread.is_alive():
            self.failures.append("the reader of the table hangs")

    def end(self) -> None:
        """Lets the view that is under way come to its end and closes its reader, or leaves both alone.
        Repeatable.
        """
        self._abandoned = True
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        if not self._thread.is_alive():
            self._reader.close()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._pause_s):
                self._view()
        except TimeoutError as error:
            # Kafka is away; the view that waits for it cannot be judged.
            if not self._stop.is_set():
                self.failures.append(f"reader: {error}")
        except Exception as error:
            if not self._abandoned:
                self.failures.append(f"reader: {type(error).__name__}: {error}")

    def _view(self) -> None:
        files = files_of(self._table)
        if files == self._judged:
            return
        self._timeline.look()
        before = self._timeline.commits
        if not before:
            return
        started_s = time.monotonic()
        rows = by_key({name: row[name] for name in COLUMNS} for row in self._read(self._table))
        took_s = time.monotonic() - started_s
        self.longest_s = max(self.longest_s, took_s)
        self._pause_s = max(_PAUSE_MIN_S, self._rest * took_s)
        self._timeline.look()
        after = self._timeline.commits
        self.history.add(self._reader.read_to_end(_INPUT_S))
        seen = self.history.check(rows)
        self.views += 1
        self._judged = files
        if len(before) == len(after):
            self._count(before, seen)

    def _count(self, commits: list[Any], seen: Any) -> None:
        counted = sum(commit.records for commit in commits)
        # An epoch without rows has no commit: what it covered is counted by nobody on the timeline.
        whole = self._timeline.jumps == 0
        if seen.most < counted or (whole and seen.least > counted):
            raise AssertionError(
                f"epoch {commits[-1].epoch}: the commits count {counted} records, "
                f"the rows show between {seen.least} and {seen.most}"
            )
        self.exact += 1
