"""What a run uses, sampled while it works: memory and descriptors of each kind of process, disk, topics.

Names of figures: `memory: KIND` (bytes), `heap: KIND` (bytes of a JVM's live objects), `descriptors: KIND`,
`disk: NAME` (bytes that are allocated), `topic: NAME` (messages that are kept). Processes of one kind are
added up.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import psutil
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.memory_watch import kind_of
from tests.soak.heaps import Heaps, Jvm

_EVERY_S: Final = 2.0
# A JVM that starts a program is there twice for a moment, with all its memory in both.
GROWN_UP_S: Final = 2.0
_BLOCK: Final = 512
_KAFKA_S: Final = 30.0

Roles = Mapping[str, list[int]]


def process_figures(roles: Roles) -> dict[str, float]:
    """`roles`: role -> process ids. A child counts with its parent, unless it has a role itself."""
    found: dict[str, float] = defaultdict(float)
    for kind, process in _kinds(roles):
        with contextlib.suppress(psutil.Error, OSError):
            with process.oneshot():
                memory, descriptors = process.memory_info().rss, process.num_fds()
            found[f"memory: {kind}"] += memory
            found[f"descriptors: {kind}"] += descriptors
    return found


def jvms(roles: Roles) -> list[Jvm]:
    """Those among the same processes."""
    found = []
    for kind, process in _kinds(roles):
        with contextlib.suppress(psutil.Error, OSError):
            if Path(process.exe()).name == "java":
                found.append(Jvm(kind, process.pid))
    return found


def _kinds(roles: Roles) -> Iterator[tuple[str, psutil.Process]]:
    known = {pid for pids in roles.values() for pid in pids}
    children = _children()
    for role, pids in roles.items():
        for pid in pids:
            for process, first in _family(pid, known, children):
                with contextlib.suppress(psutil.Error, OSError):
                    yield kind_of(role, process, first), process


def _children() -> Mapping[int, list[psutil.Process]]:
    """By the id of their parent. Asked once for all: each `Process.children` looks through all processes."""
    found: dict[int, list[psutil.Process]] = defaultdict(list)
    for pid in psutil.pids():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            found[process.ppid()].append(process)
    return found


def _family(
    pid: int, known: set[int], children: Mapping[int, list[psutil.Process]]
) -> Iterator[tuple[psutil.Process, bool]]:
    """The process (True), then its descendants (False), but no branch that has a role of its own."""
    with contextlib.suppress(psutil.Error):
        yield psutil.Process(pid), True
        queue = list(children.get(pid, ()))
        while queue:
            child = queue.pop()
            with contextlib.suppress(psutil.Error):
                if child.pid not in known and time.time() - child.create_time() > GROWN_UP_S:
                    queue += children.get(child.pid, ())
                    yield child, False


class Disk(NamedTuple):
    """A folder, but for one in it."""

    folder: Path
    without: Path | None = None


def allocated_bytes(disk: Disk) -> int:
    """What the files below a folder take on disk; what vanishes meanwhile counts nothing."""
    total = 0
    for place, below, names in os.walk(disk.folder):
        below[:] = [name for name in below if Path(place, name) != disk.without]
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * _BLOCK
    return total


def kept_messages(admin: AdminClient, prefix: str) -> dict[str, float]:
    """Topic -> messages between its first and its last offset, of all topics that begin so."""
    topics = admin.list_topics(timeout=_KAFKA_S).topics
    lanes = [
        TopicPartition(name, partition)
        for name, topic in topics.items()
        if name.startswith(prefix)
        for partition in topic.partitions
    ]
    found: dict[str, float] = defaultdict(float)
    if lanes:
        for sign, spec in ((1, OffsetSpec.latest()), (-1, OffsetSpec.earliest())):
            asked = admin.list_offsets(
                dict.fromkeys(lanes, spec),
                isolation_level=IsolationLevel.READ_UNCOMMITTED,
                request_timeout=_KAFKA_S,
            )
            for lane, answer in asked.items():
                found[lane.topic] += sign * answer.result().offset
    return found


class Gauges:
    """A thread that samples every two seconds, heaps at the begin of each minute. `figures` has the greatest
    value of each minute.
    """

    def __init__(
        self,
        roles: Callable[[], Roles],
        disks: Mapping[str, Disk],
        bootstrap: str,
        topics: str,
        heaps: Heaps,
    ) -> None:
        """`topics`: what the names of the watched topics begin with."""
        self._roles, self._disks, self._topics, self._heaps = roles, disks, topics, heaps
        self._collected = -1
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="soak gauges", daemon=True)
        self._lock = threading.Lock()
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

    def of_minute(self, minute: int) -> dict[str, float]:
        with self._lock:
            return {name: values[minute] for name, values in self._figures.items() if minute in values}

    def figures(self, minutes: int) -> dict[str, list[float | None]]:
        """The first whole minutes; None where a figure was not measured."""
        with self._lock:
            return {
                name: [values.get(minute) for minute in range(minutes)]
                for name, values in self._figures.items()
            }

    def _run(self) -> None:
        try:
            while not self._stop.wait(_EVERY_S):
                # Of the minute in which it began: the first of a minute takes long, and has the heaps.
                minute = self._minute()
                self._note(minute, self._sample(minute))
        except Exception as error:
            self.failures.append(f"the gauges ended: {type(error).__name__}: {error}")

    def _sample(self, minute: int) -> dict[str, float]:
        found = process_figures(self._roles())
        if minute > self._collected:
            self._collected = minute
            found |= self._heaps.collected(jvms(self._roles()))
        found |= {f"disk: {name}": float(allocated_bytes(at)) for name, at in self._disks.items()}
        return found | {f"topic: {name}": count for name, count in self._kept().items()}

    def _kept(self) -> dict[str, float]:
        """A broker that does not answer in time is asked again with the next sample. A minute without any
        answer lacks figures, which fails the soak.
        """
        try:
            return kept_messages(self._admin, self._topics)
        except KafkaException:
            return {}

    def _minute(self) -> int:
        return int((time.monotonic() - self._started_s) // 60)

    def _note(self, minute: int, sample: Mapping[str, float]) -> None:
        with self._lock:
            for name, value in sample.items():
                self._figures[name][minute] = max(self._figures[name].get(minute, 0.0), value)
