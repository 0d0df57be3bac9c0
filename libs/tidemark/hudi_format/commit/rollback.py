"""Rolling back a pending write of the table: what makes an attempt void (FORMAT.md, section 9.4).

Steps, each repeatable; a crash in between leaves a pending rollback R that the next call (or Hudi) finishes:

1. data timeline: R requested (the plan names the files, absolute paths), R inflight
2. metadata table, if T is on its timeline: R requested, inflight; T's files and instants deleted; R
completed 3. data files of T deleted, found by T's markers; then T's inflight and requested file 4. data
timeline: R completed 5. T's markers, then T's heartbeat removed

R completes only after every deletion is durable: a file of T that came back later would become rows once
archival moves the timeline's start past T (FORMAT.md, section 3.7). Before all this the caller closes the
attempt (`Term.close_attempt`), so that none of its writers publishes anything afterwards, and takes the
table's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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
_ROLLED_BACK: Final = frozenset({Action.COMMIT, Action.DELTA_COMMIT})


@dataclass(frozen=True, slots=True)
class RollbackOutcome:
    """What was done. `rollback_instant` is None when T was on no timeline: then only leftovers were
    removed.
    """

    rollback_instant: str | None
    deleted_files: tuple[str, ...]


def rollback_pending(
    by: Publisher, requested: str, generator: InstantGenerator, *, search: bool = False
) -> RollbackOutcome:
    """Rolls back the pending commit or deltacommit T = `requested`, with or without metadata table.

    `search`: somebody else rolled T back before, and took the markers along, while T's writers were still at
    work. What they made since then is looked for in every partition when T is on no timeline any more.

    Hold the table's lock. A coordinator whose term is over completes no instant. Raises
    `TimelineConflictError` when T is completed, or is no write that can be rolled back; `CorruptFileError`
    when a marker names a file that is not T's.
    """
    if not is_instant_time(requested):
        raise TimelineConflictError(f"{requested!r} is no instant time")
    storage = by.storage
    data = load_timeline(storage)
    metadata = load_timeline(storage, METADATA_TABLE_ROOT)
    target = data.find(requested)
    if target is not None and (target.is_completed or target.action not in _ROLLED_BACK):
        raise TimelineConflictError(f"{target.file_name} is no pending write: it cannot be rolled back")
    work = _Work(by, requested, search and target is None)
    rollback = _pending_rollback(storage, data, requested)
    if target is None and rollback is None:
        deleted = work.delete_metadata_files() + work.delete_data_files()
        work.remove_traces()
        return RollbackOutcome(None, tuple(deleted))
    generator.observe(data.times() + metadata.times())
    action = target.action if target is not None else _planned_action(storage, rollback)
    instant = rollback.requested if rollback is not None else generator.next()
    inflight = work.plan(instant, action, work.data_files(), DATA_ROOT)
    deleted = work.rollback_metadata_table(metadata, instant, generator)
    found = work.delete_data_files()
    delete_pending(storage, requested, action)
    work.complete(inflight, action, found, generator, DATA_ROOT)
    work.remove_traces()
    return RollbackOutcome(instant, tuple(deleted + found))


@dataclass(frozen=True, slots=True)
class _Work:
    """The effects of one rollback of the instant `requested`."""

    by: Publisher
    requested: str
    search: bool

    @property
    def storage(self) -> Storage:
        """The table's folder."""
        return self.by.storage

    def data_files(self) -> list[str]:
        """The data files that T's markers name, whether or not they came into being; with `search` also
        those that lie somewhere in the table.
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
            found = [top] if not top.is_dir else [] if top.name == ".hoodie" else self.storage.walk(top.path)
            yield from (info.path for info in found if belongs_to(info.name, self.requested))

    def metadata_files(self) -> list[str]:
        """The log files of T in the metadata table, by listing: its own writers make no markers that we need.

        A base file of that time is not T's: no write of ours makes one there. It is of a compaction that
        another engine began with a clock that is behind, once T had left the timelines.
        """
        found: list[str] = []
        for partition in self.storage.list(METADATA_TABLE):
            if partition.is_dir and partition.name != ".hoodie":
                files = self.storage.list(partition.path)
                found += [info.path for info in files if _is_log_of(info.name, self.requested)]
        return found

    def plan(self, rollback: str, action: Action, files: list[str], root: str) -> Instant:
        """Makes R requested and inflight, or takes over what an earlier try left of them."""
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
        """Step 2. Files of T may lie there before T is on that timeline: they go in any case."""
        on_timeline = timeline.find(self.requested)
        if on_timeline is not None and on_timeline.action is not Action.DELTA_COMMIT:
            # A table service of another engine that has the same time (`metadata_files`).
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
        """Deletes the files that T's markers name; returns those that are gone now."""
        return self._delete(self.data_files())

    def delete_metadata_files(self) -> list[str]:
        """Deletes T's files in the metadata table; returns them."""
        return self._delete(self.metadata_files())

    def _delete(self, paths: list[str]) -> list[str]:
        for path in paths:
            self.storage.delete(path)
        for folder in sorted({parent_of(path) for path in paths}):
            self.storage.sync_dir(folder)
        return paths

    def complete(
        self, inflight: Instant, action: Action, deleted: list[str], generator: InstantGenerator, root: str
    ) -> None:
        """Makes R's completed file."""
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
        """Step 5. The heartbeat goes last: while it is there, no other writer trips over a half rolled back
        T.
        """
        markers.delete_markers(self.storage, self.requested)
        heartbeat.stop(self.storage, self.requested)

    def _absolute(self, path: str) -> str:
        return join_path(self.storage.base_uri, path)


def belongs_to(file_name: str, instant: str) -> bool:
    """Whether a base file (`<fileId>_<token>_<instant>.<ext>`) or log file (`.<fileId>_<instant>.log...`)
    is of it.
    """
    if file_name.endswith(".crc"):
        return False
    if file_name.startswith("."):
        return _is_log_of(file_name, instant)
    return file_name.count("_") == 2 and file_name.rpartition("_")[2].partition(".")[0] == instant


def _is_log_of(file_name: str, instant: str) -> bool:
    return file_name.startswith(".") and f"_{instant}.log." in file_name and not file_name.endswith(".crc")


def pending_plan(storage: Storage, rollback: Instant) -> RollbackPlan | None:
    """What a pending rollback is to take back; None where its plan cannot be read: a writer died while it
    wrote the plan. Hudi passes such a rollback over and schedules another one
    (`BaseHoodieTableServiceClient.getPendingRollbackInfos`), and so do we. Raises FileMissingError.
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
