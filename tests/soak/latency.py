"""How long records waited for their commit, by the minute in which they were sent; from the files alone."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from tests.chaos.timeline_watch import read_commit
from tests.soak.feeder import Sent

_COMPLETED: Final = re.compile(r"(\d{17})_(\d{17})\.(?:commit|deltacommit)")


class Waited(NamedTuple):
    """Percentiles over the sampled records of a minute, in seconds."""

    p50_s: float
    p99_s: float
    records: int


class Latencies:
    """Fed with samples and new commits, by one thread. A record is committed when the first commit whose
    positions lie behind it is on the timeline: the modification time of the completed file.
    """

    def __init__(self, table: Path, started_s: float) -> None:
        """`started_s`: the time.time at which minute 0 begins."""
        self._timeline = table / ".hoodie" / "timeline"
        self._started_s = started_s
        self._known: set[str] = set()
        self._waiting: dict[int, list[Sent]] = defaultdict(list)
        self._waited_s: dict[int, list[float]] = defaultdict(list)
        self.commits = 0

    def add(self, samples: Iterable[Sent]) -> None:
        for sent in samples:
            self._waiting[sent.partition].append(sent)

    def look(self) -> None:
        """Takes what was committed since the last look."""
        names = os.listdir(self._timeline) if self._timeline.is_dir() else []
        fresh = sorted(
            (name[2], name[1], name[0])
            for name in map(_COMPLETED.fullmatch, names)
            if name is not None and name[0] not in self._known
        )
        for completion, instant, name in fresh:
            self._known.add(name)
            file = self._timeline / name
            try:
                commit, at_s = read_commit(file, instant, completion), file.stat().st_mtime
            except KeyError:
                continue  # a compaction: it moves no position
            self.commits += 1
            self.committed(commit.source_next(), at_s)

    def committed(self, reached: dict[int, int], at_s: float) -> None:
        """`reached`: the position of each input partition that a commit of time `at_s` ended at."""
        for partition, position in reached.items():
            rest = []
            for sent in self._waiting.pop(partition, []):
                if sent.offset < position:
                    minute = int((sent.sent_s - self._started_s) // 60)
                    self._waited_s[minute].append(max(at_s - sent.sent_s, 0.0))
                else:
                    rest.append(sent)
            self._waiting[partition] = rest

    @property
    def waiting(self) -> int:
        """Sampled records that are in no commit yet."""
        return sum(map(len, self._waiting.values()))

    def figures(self, minutes: int) -> dict[str, list[float | None]]:
        """`latency: p50 ms` and `latency: p99 ms` by minute; None where nothing was committed."""
        waited = [self.of_minute(minute) for minute in range(minutes)]
        return {
            "latency: p50 ms": [None if each is None else each.p50_s * 1_000 for each in waited],
            "latency: p99 ms": [None if each is None else each.p99_s * 1_000 for each in waited],
        }

    def of_minute(self, minute: int) -> Waited | None:
        """None where no record of that minute was committed so far."""
        found = self._waited_s.get(minute)
        if not found:
            return None
        p50, p99 = np.percentile(found, [50, 99])
        return Waited(round(float(p50), 2), round(float(p99), 2), len(found))
