"""Rolls back a pending write of the table: the data commit of an epoch's attempt that became void, or what
another engine's dead writer left.

T is the instant that is rolled back, R the rollback. Before the first step the caller closes the attempt
(`Term.close_attempt`), so that none of its writers publishes anything afterwards, and takes the table's lock.
The steps are those of FORMAT.md, section 9.4:

1. On the data timeline make R's requested file, whose plan names T's data files by absolute paths; then R's
   inflight file.
2. If T is on the metadata table's timeline: make R's requested and inflight file there, delete T's log files
   there, delete T's completed, inflight and requested file there, complete R there. If it is not: only delete
   T's log files there, which may be there without the instant.
3. Delete T's data files, which T's markers name.
4. Delete T's inflight file on the data timeline, then its requested file.
5. Complete R on the data timeline.
6. Delete T's markers, then T's heartbeat.

Each step is repeatable. After a crash in steps 1 to 5 R is pending, and the next call, or Hudi, takes it up.
After a crash in step 6 the next call finds neither T nor a pending R, and deletes what is left.

R completes only after every deletion is durable. Otherwise a file of T could be back after a crash of the
machine, and its rows would become visible once archival moves the timeline's start past T (FORMAT.md,
section 3.7).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidemark.hudi_format.commit import heartbeat, markers
from tidemark.hudi_format.commit.instants import (
    complete,
    create_inflight,
    create_requested,
    delete_pending,
    instant_path,
)
from tidemark.hudi_format.errors import CorruptFileError, TimelineConflictError
from tidemark.hudi_format.model import InstantGenerator, instant_to_ms, is_instant_time
from tidemark.hudi_format.publication.port import Publisher
from tidemark.hudi_format.storage.base import Storage, join_path, name_of, parent_of
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    WRITTEN,
    Action,
    Instant,
    State,
    Timeline,
    load_timeline,
)
from tidemark.hudi_format.timeline.service_records import (
    RollbackMetadata,
    RollbackPartition,
    RollbackPlan,
    RollbackRequest,
    decode_rollback_plan,
    encode_rollback_metadata,
    encode_rollback_plan,
)

METADATA_TABLE: Final = ".hoodie/metadata"
# The lock is held meanwhile, and each deletion waits for the disk: 10 000 took 24 s one after the other, and
# 2.6 s eight at a time. Few are not worth the threads.
_AT_ONCE: Final = 8
_WORTH_THREADS: Final = 64


class RollbackStep(StrEnum):
    """What a rollback of an instant that is on the timeline has done: its steps 1 to 5, in this order."""

    PLANNED = "planned"
    METADATA = "metadata"
    FILES = "files"
    INSTANT = "instant"
    COMPLETED = "completed"


def _nobody_dies(_: RollbackStep) -> None:
    pass


@dataclass(frozen=True, slots=True)
class RollbackOutcome:
    """What a rollback did. `rollback_instant` is the time of R, None when neither T nor a rollback of T was
    on the data timeline: then only leftover files were deleted. `deleted_files` are relative to the table's
    base.
    """

    rollback_instant: str | None
    deleted_files: tuple[str, ...]


def rollback_pending(
    by: Publisher,
    requested: str,
    generator: InstantGenerator,
    *,
    search: bool = False,
    passed: Callable[[RollbackStep], None] = _nobody_dies,
) -> RollbackOutcome:
    """Rolls back the pending write T = `requested` (`WRITTEN`); the table may be without metadata table.

    If neither T nor a rollback of T is on the data timeline, no R is made: T's files are deleted, then its
    markers and its heartbeat.

    `search` is for a T that another writer rolled back while T's writers still worked: that rollback deleted
    the markers, and files that T's writers made afterwards have none. When T is no longer on the timeline
    such files are looked for by name in every partition. `passed` is called behind each step: a crash test
    may die there.

    Hold the table's lock. Raises `TimelineConflictError` when T is completed or is no write,
    `CorruptFileError` when a marker names a file that is not T's, `FencedOutError` after the end of the
    coordinator's term.
    """
    if not is_instant_time(requested):
        raise TimelineConflictError(f"{requested!r} is no instant time")
    storage = by.storage
    data = load_timeline(storage)
    metadata = load_timeline(storage, METADATA_TABLE_ROOT)
    target = data.find(requested)
    if target is not None and (target.is_completed or target.action not in WRITTEN):
        raise TimelineConflictError(f"{target.file_name} is no pending write: it cannot be rolled back")
    work = _Work(by, requested, search and target is None)
    rollback = _pending_rollback(storage, data, requested)
    if target is None and rollback is None:
        leftovers = work.delete_metadata_files() + work.delete_data_files()
        work.remove_traces()
        return RollbackOutcome(None, tuple(leftovers))
    generator.observe(data.times() + metadata.times())
    action = target.action if target is not None else _planned_action(storage, rollback)
    instant = rollback.requested if rollback is not None else generator.next()
    inflight = work.plan(instant, action, work.data_files(), DATA_ROOT)
    passed(RollbackStep.PLANNED)
    metadata_files = work.rollback_metadata_table(metadata, instant, generator)
    passed(RollbackStep.METADATA)
    data_files = work.delete_data_files()
    passed(RollbackStep.FILES)
    delete_pending(storage, requested, action)
    passed(RollbackStep.INSTANT)
    work.complete(inflight, action, data_files, generator, DATA_ROOT)
    passed(RollbackStep.COMPLETED)
    work.remove_traces()
    return RollbackOutcome(instant, tuple(metadata_files + data_files))


@dataclass(frozen=True, slots=True)
class _Work:
    """The steps of one rollback of the instant T = `requested`. They return paths below the table's base."""

    by: Publisher
    requested: str
    search: bool

    @property
    def storage(self) -> Storage:
        """The table's folder."""
        return self.by.storage

    def data_files(self) -> list[str]:
        """The data files that T's markers name, whether or not they were made; with `search` also those that
        a listing of the whole table shows.
        """
        named = {marker.data_path for marker in markers.list_markers(self.storage, self.requested)}
        for path in sorted(named):
            if not belongs_to(name_of(path), self.requested):
                raise CorruptFileError(
                    f"a marker of {self.requested} names {path!r}, which is not of that instant"
                )
        return sorted(named | set(self._files_by_listing() if self.search else ()))

    def _files_by_listing(self) -> Iterator[str]:
        for top in self.storage.list(""):
            files = [top] if not top.is_dir else [] if top.name == ".hoodie" else self.storage.walk(top.path)
            yield from (info.path for info in files if belongs_to(info.name, self.requested))

    def metadata_files(self) -> list[str]:
        """The log files of T in the metadata table. They are found by listing, because our commits make no
        markers there.

        A base file of that time is not T's, since no commit of ours makes one there. It belongs to a
        compaction that another engine, whose clock is behind, began after T had left the timelines.
        """
        logs: list[str] = []
        for partition in self.storage.list(METADATA_TABLE):
            if partition.is_dir and partition.name != ".hoodie":
                files = self.storage.list(partition.path)
                logs += [info.path for info in files if _is_log_of(info.name, self.requested)]
        return logs

    def plan(self, rollback: str, action: Action, files: list[str], root: str) -> Instant:
        """Makes R's requested and inflight file; those that an earlier try left stay as they are."""
        requested = Instant(rollback, Action.ROLLBACK, State.REQUESTED)
        if not self.storage.exists(instant_path(requested, root)):
            table = "" if root == DATA_ROOT else METADATA_TABLE
            requests = tuple(
                RollbackRequest(
                    partition_path=parent_of(path).removeprefix(table).lstrip("/"),
                    file_id="",
                    latest_base_instant=self.requested,
                    files_to_delete=(self._absolute(path),),
                )
                for path in files
            )
            plan = RollbackPlan(instant_to_rollback=self.requested, action=action.value, requests=requests)
            create_requested(self.by, rollback, Action.ROLLBACK, encode_rollback_plan(plan), root=root)
        return create_inflight(self.by, requested, root=root)

    def rollback_metadata_table(
        self, timeline: Timeline, rollback: str, generator: InstantGenerator
    ) -> list[str]:
        """Step 2. Log files of T may be there without T on that timeline, so they are deleted in any case."""
        on_timeline = timeline.find(self.requested)
        if on_timeline is not None and on_timeline.action is not Action.DELTA_COMMIT:
            # It is a table service of another engine that has the same time (see `metadata_files`).
            on_timeline = None
        earlier = timeline.find(rollback)
        if earlier is not None and earlier.is_completed:
            return self.delete_metadata_files()
        if on_timeline is None and earlier is None:
            return self.delete_metadata_files()
        action = Action.DELTA_COMMIT
        inflight = self.plan(rollback, action, self.metadata_files(), METADATA_TABLE_ROOT)
        deleted = self.delete_metadata_files()
        if on_timeline is not None and on_timeline.is_completed:
            self.storage.delete(instant_path(on_timeline, METADATA_TABLE_ROOT))
        delete_pending(self.storage, self.requested, action, METADATA_TABLE_ROOT)
        self.complete(inflight, action, deleted, generator, METADATA_TABLE_ROOT)
        return deleted

    def delete_data_files(self) -> list[str]:
        """Step 3. Deletes the files of `data_files`; returns them."""
        return self._delete(self.data_files())

    def delete_metadata_files(self) -> list[str]:
        """Deletes T's log files in the metadata table; returns them."""
        return self._delete(self.metadata_files())

    def _delete(self, paths: list[str]) -> list[str]:
        if len(paths) < _WORTH_THREADS:
            for path in paths:
                self.storage.delete(path)
        else:
            with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="roll-back") as pool:
                for _ in pool.map(self.storage.delete, paths):
                    pass
        for folder in sorted({parent_of(path) for path in paths}):
            self.storage.sync_dir(folder)
        return paths

    def complete(
        self, inflight: Instant, action: Action, deleted: list[str], generator: InstantGenerator, root: str
    ) -> None:
        """Makes R's completed file, which lists the `deleted` files by partition."""
        table = "" if root == DATA_ROOT else METADATA_TABLE
        partitions: dict[str, list[str]] = {}
        for path in deleted:
            partition = parent_of(path).removeprefix(table).lstrip("/")
            partitions.setdefault(partition, []).append(self._absolute(path))
        completion = generator.next()
        metadata = RollbackMetadata(
            start_rollback_time=inflight.requested,
            time_taken_ms=instant_to_ms(completion) - instant_to_ms(inflight.requested),
            rolled_back=((self.requested, action.value),),
            partitions=tuple(
                RollbackPartition(partition_path=partition, deleted=tuple(files))
                for partition, files in sorted(partitions.items())
            ),
        )
        complete(self.by, inflight, completion, encode_rollback_metadata(metadata), root=root)

    def remove_traces(self) -> None:
        """Step 6. The heartbeat goes last: without it every later write of Spark could fail at a T that is
        half rolled back (FORMAT.md, section 9.2, trap 1).
        """
        markers.delete_markers(self.storage, self.requested)
        heartbeat.stop(self.storage, self.requested)

    def _absolute(self, path: str) -> str:
        return join_path(self.storage.base_uri, path)


def belongs_to(file_name: str, instant: str) -> bool:
    """Whether the name is that of a base file (`<fileId>_<token>_<instant>.<ext>`) or a log file
    (`.<fileId>_<instant>.log...`) of the instant; False for `.crc` side files.
    """
    if file_name.endswith(".crc"):
        return False
    if file_name.startswith("."):
        return _is_log_of(file_name, instant)
    return file_name.count("_") == 2 and file_name.rpartition("_")[2].partition(".")[0] == instant


def _is_log_of(file_name: str, instant: str) -> bool:
    return file_name.startswith(".") and f"_{instant}.log." in file_name and not file_name.endswith(".crc")


def pending_plan(storage: Storage, rollback: Instant) -> RollbackPlan | None:
    """The plan of a pending rollback; None when it cannot be read, because a writer died while it wrote the
    plan. Hudi skips such a rollback and schedules another one
    (`BaseHoodieTableServiceClient.getPendingRollbackInfos`); so do we.

    Raises `FileMissingError` when the requested file is gone.
    """
    path = instant_path(Instant(rollback.requested, Action.ROLLBACK, State.REQUESTED))
    try:
        return decode_rollback_plan(storage.read(path), path)
    except CorruptFileError:
        return None


def _pending_rollback(storage: Storage, timeline: Timeline, requested: str) -> Instant | None:
    for instant in timeline.pending(Action.ROLLBACK):
        plan = pending_plan(storage, instant)
        if plan is not None and plan.instant_to_rollback == requested:
            return instant
    return None


def _planned_action(storage: Storage, rollback: Instant | None) -> Action:
    if rollback is None:
        raise TimelineConflictError("neither the instant nor a rollback of it is on the timeline")
    plan = pending_plan(storage, rollback)
    assert plan is not None
    return Action(plan.action)
