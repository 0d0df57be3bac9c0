"""The table's timelines as anybody finds them: listed and decoded here, without the product's code.

Each completed data commit that appears has to come later than all before it, to be the next epoch, to go on
where the last one's positions ended, and to have its metadata commit beside it already, saying the same. It
stays on the timeline until it is in the archive.

A repair of an index names no data file, and has its metadata commit at the end: that comes behind it, and
where the command was killed only with the next one.
"""

from __future__ import annotations

import io
import json
import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fastavro

from tests.chaos.archived import ArchivedInstant, archive_version, archived

_NAME: Final = re.compile(r"(\d{17})_(\d{17})\.(commit|deltacommit)")
DATA_TIMELINE: Final = ".hoodie/timeline"
METADATA_TIMELINE: Final = ".hoodie/metadata/.hoodie/timeline"
_POSITIONS: Final = ("tidemark.keyed_offsets", "tidemark.source_offsets")
_WRITES: Final = ("commit", "deltacommit")
COMPACTION: Final = "COMPACT"
_REPAIR: Final = "tidemark-repair"
"""What the commit of `tidemark index repair` has in its extra metadata: it has no rows, and is no epoch."""
_EVERY_S: Final = 0.25

Positions = dict[str, tuple[int, int]]


class BrokenTimelineError(AssertionError):
    """Commits do not follow from one another."""


@dataclass(frozen=True)
class Commit:
    """A completed commit of ours. `positions`: by kind, lane -> [first, next). `files`: data files named."""

    instant: str
    completion: str
    epoch: int
    positions: Mapping[str, Positions]
    records: int
    extra: Mapping[str, str]
    files: frozenset[str]

    def source_next(self) -> dict[int, int]:
        """By input partition."""
        return {
            int(lane.rpartition(":")[2]): following
            for lane, (_, following) in self.positions[_POSITIONS[1]].items()
        }


def read_commit(file: Path, instant: str, completion: str) -> Commit:
    """Raises KeyError for a commit that is not ours."""
    return commit_of(decoded(file), instant, completion)


def commit_of(document: Any, instant: str, completion: str) -> Commit:
    """As `read_commit`, of what the file holds."""
    extra = dict(document.get("extraMetadata") or {})
    return Commit(
        instant=instant,
        completion=completion,
        epoch=int(extra["tidemark.epoch"]),
        positions={kind: _positions(json.loads(extra[kind])) for kind in _POSITIONS},
        records=int(json.loads(extra["tidemark.records"])["input"]),
        extra={key: text for key, text in extra.items() if key.startswith("tidemark.")},
        files=written_files(document),
    )


def written_files(document: Any) -> frozenset[str]:
    """Paths in the write stats of a completed commit, compaction or replacecommit."""
    stats = document.get("partitionToWriteStats") or {}
    return frozenset(stat["path"] for of_partition in stats.values() for stat in of_partition)


def decoded(file: Path) -> Any:
    """The one record of a completed instant's file."""
    return decoded_bytes(file.read_bytes())


def decoded_bytes(content: bytes) -> Any:
    """The same of the file's bytes, which the archive has as they were."""
    (document,) = fastavro.reader(io.BytesIO(content))
    return document


def completed(table: Path, timeline: str = DATA_TIMELINE) -> dict[str, tuple[str, Path]]:
    """Instant -> (completion, file) of the writes. A compaction completes as a commit, and is none."""
    folder = table / timeline
    there = _names(folder)
    found = {}
    for each in there:
        name = _NAME.fullmatch(each)
        if name and f"{name[1]}.compaction.requested" not in there:
            found[name[1]] = (name[2], folder / each)
    return found


def _names(folder: Path) -> frozenset[str]:
    """Of the files; none while there is no folder. One listing: this is asked several times a second."""
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()


def pending(table: Path, timeline: str = DATA_TIMELINE) -> set[str]:
    """Instants that are requested or inflight and not completed."""
    names = {file.name.split(".")[0] for file in (table / timeline).iterdir() if file.is_file()}
    begun = {name for name in names if re.fullmatch(r"\d{17}", name)}
    return begun - {name.split("_")[0] for name in names if "_" in name}


def _positions(document: Mapping[str, Any]) -> Positions:
    return {
        f"{topic}:{partition}": (int(first), int(following))
        for topic, partitions in document.items()
        for partition, (first, following) in partitions.items()
    }


class _Writes:
    """The completed writes of a timeline, active or archived, as of the last `look`."""

    def __init__(self, table: Path, timeline: str) -> None:
        self._table, self._timeline = table, timeline
        self._active: dict[str, tuple[str, Path]] = {}
        self._archived: dict[str, ArchivedInstant] = {}
        self._version = 0

    def look(self) -> dict[str, str]:
        """Instant -> completion. The archive is read behind the listing, so whatever leaves the timeline
        meanwhile is there.
        """
        self._active = completed(self._table, self._timeline)
        version = archive_version(self._table, self._timeline)
        if version != self._version:
            rows = archived(self._table, self._timeline)
            self._archived = {row.requested: row for row in rows if row.action in _WRITES}
            self._version = version
        found = {instant: row.completion for instant, row in self._archived.items()}
        return found | {instant: completion for instant, (completion, _) in self._active.items()}

    def document(self, instant: str) -> Any:
        """What the instant's file holds."""
        if instant in self._active:
            try:
                return decoded(self._active[instant][1])
            except FileNotFoundError:
                self.look()
        return decoded_bytes(self._archived[instant].content)


class TimelineWatch:
    """A thread that looks all the time. `failures` holds what was found wrong."""

    def __init__(self, table: Path) -> None:
        self._data, self._metadata = _Writes(table, DATA_TIMELINE), _Writes(table, METADATA_TIMELINE)
        self._commits: list[Commit] = []
        self._seen: set[str] = set()
        self._compactions: set[str] = set()
        self._repairs: set[str] = set()
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="timeline watch", daemon=True)
        self.failures: list[str] = []
        self.jumps = 0

    @property
    def commits(self) -> list[Commit]:
        with self._lock:
            return list(self._commits)

    @property
    def epoch(self) -> int:
        with self._lock:
            return self._commits[-1].epoch if self._commits else 0

    def source_next(self) -> dict[int, int]:
        """Up to where each input partition is committed."""
        with self._lock:
            newest: dict[int, int] = {}
            for commit in self._commits[-1:]:
                newest |= commit.source_next()
            return newest

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Looks once more, when no command runs any more."""
        self.end()
        self._guarded(self.look)
        self._guarded(self._check_repairs)

    def end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30.0)

    def look(self) -> None:
        """Takes what is new. Raises BrokenTimelineError."""
        with self._lock:
            now = self._data.look()
            if lost := self._seen - now.keys():
                raise BrokenTimelineError(f"commits vanished from the timeline: {sorted(lost)}")
            new = [each for each in now if each not in self._seen and each not in self._compactions]
            metadata = self._metadata.look() if new else {}
            for instant in sorted(new, key=now.__getitem__):
                document = self._data.document(instant)
                # One whose plan is on the timeline is not among them.
                if document.get("operationType") == COMPACTION:
                    self._compactions.add(instant)
                    continue
                self._seen.add(instant)
                if _REPAIR in (document.get("extraMetadata") or {}):
                    if files := written_files(document):
                        raise BrokenTimelineError(f"{instant} is a repair, and names {sorted(files)}")
                    self._repairs.add(instant)
                    continue
                self._take(commit_of(document, instant, now[instant]), metadata)

    def _check_repairs(self) -> None:
        if alone := self._repairs - self._metadata.look().keys():
            raise BrokenTimelineError(f"repairs without a metadata commit: {sorted(alone)}")

    def _take(self, commit: Commit, metadata: Mapping[str, str]) -> None:
        if commit.instant not in metadata:
            raise BrokenTimelineError(f"{commit.instant} is committed, its metadata commit is not there")
        completion = metadata[commit.instant]
        extra = self._metadata.document(commit.instant)["extraMetadata"]
        theirs = {key: text for key, text in extra.items() if key.startswith("tidemark.")}
        if theirs != commit.extra:
            raise BrokenTimelineError(f"{commit.instant}: {commit.extra}, its metadata commit: {theirs}")
        if completion >= commit.completion:
            raise BrokenTimelineError(f"{commit.instant}: the data was committed before its metadata")
        if self._commits:
            self._follow(self._commits[-1], commit)
        elif commit.epoch != 1:
            self.jumps += commit.epoch - 1
        self._commits.append(commit)

    def _follow(self, before: Commit, after: Commit) -> None:
        if after.completion <= before.completion or after.epoch <= before.epoch:
            raise BrokenTimelineError(
                f"epoch {after.epoch} ({after.instant}, completed {after.completion}) came after epoch "
                f"{before.epoch} ({before.instant}, completed {before.completion})"
            )
        self.jumps += after.epoch - before.epoch - 1
        for kind in _POSITIONS:
            for lane, (first, following) in after.positions[kind].items():
                reached = before.positions[kind].get(lane, (0, 0))[1]
                goes_on = first == reached if after.epoch == before.epoch + 1 else first >= reached
                if not goes_on or following < first:
                    raise BrokenTimelineError(
                        f"epoch {after.epoch}: {kind} {lane} is [{first}, {following}), "
                        f"epoch {before.epoch} ended at {reached}"
                    )
            if gone := before.positions[kind].keys() - after.positions[kind].keys():
                raise BrokenTimelineError(f"epoch {after.epoch} does not name {sorted(gone)} ({kind})")

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            self._guarded(self.look)
            if self.failures:
                return

    def _guarded(self, check: Callable[[], None]) -> None:
        try:
            check()
        except Exception as error:
            self.failures.append(f"timeline: {type(error).__name__}: {error}")
