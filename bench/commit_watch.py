"""Watches a table's timeline folder: when was which input committed, whatever the pipeline itself reports.

A commit counts as visible when a listing of `.hoodie/timeline` shows its completed file. What it covers is
read from that file: `tidemark.source_offsets` in the extra metadata of the commit.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.hudi_format.timeline.instant import Action, parse_file_name

_POLL_S: Final = 0.002
# The folder's time has the kernel's tick as resolution: list for a while after each change.
_LIST_AFTER_CHANGE_S: Final = 0.05

Positions = Mapping[int, int]
"""Partition of the input topic -> next offset."""


@dataclass(frozen=True)
class SeenCommit:
    """`seen_s`: time.perf_counter when the completed file was first listed, at most about 3 ms late."""

    seen_s: float
    instant: str
    epoch: int
    next: Positions
    records: Mapping[str, int]

    def covers(self, ends: Positions) -> bool:
        """Whether the input up to these offsets (exclusive) is in this or an earlier commit."""
        return all(self.next.get(partition, 0) >= end for partition, end in ends.items())


class CommitWatch:
    """Runs a thread between `__enter__` and `__exit__`; commits are in the order of their appearance."""

    def __init__(self, table: Path, topic: str) -> None:
        self._folder = table / ".hoodie" / "timeline"
        self._topic = topic
        self._known: set[str] = set()
        self._commits: list[SeenCommit] = []
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="commit-watch", daemon=True)

    def __enter__(self) -> CommitWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def commits(self) -> list[SeenCommit]:
        """All that was seen so far."""
        with self._changed:
            return list(self._commits)

    def wait_for(self, ends: Positions, timeout_s: float) -> SeenCommit:
        """The first commit that covers the input up to `ends`. Raises TimeoutError."""

        def found() -> SeenCommit | None:
            if self._failure is not None:
                raise self._failure
            return next((each for each in self._commits if each.covers(ends)), None)

        with self._changed:
            self._changed.wait_for(lambda: found() is not None, timeout_s)
            commit = found()
            last = self._commits[-1].next if self._commits else {}
        if commit is None:
            raise TimeoutError(
                f"input up to {dict(ends)} not committed in {timeout_s} s; now at {dict(last)}"
            )
        return commit

    def _run(self) -> None:
        changed_ns, list_until_s = -1, 0.0
        try:
            while not self._stopped.wait(_POLL_S):
                now_ns = self._folder.stat().st_mtime_ns if self._folder.is_dir() else -1
                now_s = time.perf_counter()
                if now_ns != changed_ns:
                    changed_ns, list_until_s = now_ns, now_s + _LIST_AFTER_CHANGE_S
                if now_ns != -1 and now_s < list_until_s:
                    self._look()
        except BaseException as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _look(self) -> None:
        seen_s = time.perf_counter()
        fresh = [name for name in os.listdir(self._folder) if name not in self._known]
        for name in sorted(fresh):
            instant = parse_file_name(name)
            self._known.add(name)
            if instant is None or not instant.is_completed:
                continue
            if instant.action not in (Action.COMMIT, Action.DELTA_COMMIT):
                continue
            commit = self._read(name, instant.requested, seen_s)
            if commit is not None:
                with self._changed:
                    self._commits.append(commit)
                    self._changed.notify_all()

    def _read(self, name: str, requested: str, seen_s: float) -> SeenCommit | None:
        extra = decode_commit_metadata((self._folder / name).read_bytes(), name).extra_metadata
        if "tidemark.epoch" not in extra:
            return None
        sources = json.loads(extra["tidemark.source_offsets"]).get(self._topic, {})
        return SeenCommit(
            seen_s=seen_s,
            instant=requested,
            epoch=int(extra["tidemark.epoch"]),
            next={int(partition): int(ends[1]) for partition, ends in sources.items()},
            records=json.loads(extra["tidemark.records"]),
        )
