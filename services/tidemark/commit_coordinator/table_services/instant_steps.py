"""The steps that the handlers share: an instant's files on its timeline, and taking them back; a slice of a
sweep.

No step looks at what an earlier try made: all can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tidemark.commit_coordinator.commit.attempt_effects import give_back
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import DecidedAction, Dropped, LockedStep
from tidemark.commit_coordinator.table_services.rules import decided_time, half_done_by_other, overtaken
from tidemark.hudi_format.commit.instants import (
    complete,
    completed_file,
    create_inflight,
    create_requested,
    instant_path,
)
from tidemark.hudi_format.commit.markers import marker_folder
from tidemark.hudi_format.errors import FencedOutError, TimelineConflictError, UnsupportedTableError
from tidemark.hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
    publish_log,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, StatsChanges
from tidemark.hudi_format.metadata_table.partitions.files import FileChange
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, MetadataLogFile
from tidemark.hudi_format.metadata_table.stats_layout import StatsLayout
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage, join_path, name_of
from tidemark.hudi_format.table_config import read_table_config
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State, Timeline
from tidemark.hudi_format.timeline.avro_records import decode_commit_metadata
from tidemark.stream_runtime.clock import Clock


@contextmanager
def lost_on_conflict(what: str) -> Iterator[None]:
    """Another engine's file in our way, or a file that was published and is gone: the action is lost."""
    try:
        yield
    except (TimelineConflictError, FencedOutError) as error:
        raise ActionLostError(f"{what}: {error}") from error


def begin_instant(step: LockedStep, instant: str, action: Action, plan: bytes, root: str) -> Instant:
    """Makes the requested and the inflight file. Raises ActionLostError."""
    context = step.context
    with lost_on_conflict(f"instant {instant} cannot be begun"):
        requested = create_requested(context.publishing, instant, action, plan, root=root)
        context.hit(CoordinatorFailpoint.AFTER_SERVICE_REQUESTED)
        inflight = create_inflight(context.publishing, requested, root=root)
        context.hit(CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT)
    return inflight


def completion_of(step: LockedStep, action: DecidedAction, root: str) -> str:
    """When the action's instant is to complete: at the decided time. Later if another instant completed since
    the decision: then something of the action is completed, so that it can only go on, and completion times
    grow all the same. The same holds if another engine completed the metadata table's deltacommit.
    """
    timelines, planned, decided = step.timelines, action.planned, action.decided
    is_late = overtaken(timelines, planned, decided) or half_done_by_other(timelines, planned, decided, root)
    if not is_late:
        return decided_time(decided, root)
    step.context.instants.observe(timelines.times())
    return step.context.instants.next()


def complete_instant(step: LockedStep, inflight: Instant, completion: str, content: bytes, root: str) -> None:
    """Makes the completed file. Raises TimelineConflictError when another engine took the instant away."""
    complete(step.context.publishing, inflight, completion, content, root=root, lease=step.lease())
    step.context.hit(CoordinatorFailpoint.AFTER_SERVICE_COMPLETED)


def metadata_deltacommit(
    step: LockedStep,
    action: DecidedAction,
    changes: list[FileChange],
    stats: Mapping[ShardId, StatsChanges],
) -> list[MetadataLogFile]:
    """Makes the metadata table's deltacommit of the action's instant: of `files`, and of the column stats
    where there are changes in file groups of theirs. Returns its log files.

    Raises ActionLostError while it is not completed, TimelineConflictError when another engine completed it.
    """
    publishing, instant = step.context.publishing, action.planned.instant
    with lost_on_conflict(f"the metadata table's commit of {instant} cannot be begun"):
        inflight = begin_delta_commit(publishing, instant)
        logs = [publish_files_log(publishing, instant, changes)]
        for group, of_group in stats.items():
            log, data = COLUMN_STATS.log_file(of_group, instant, group)
            publish_log(publishing, log, data)
            logs.append(log)
    metadata = delta_commit_metadata(instant, logs)
    completion = action.decided.metadata_completion
    complete_delta_commit(publishing, inflight, completion, metadata, step.lease())
    step.context.hit(CoordinatorFailpoint.AFTER_SERVICE_METADATA)
    return logs


def kept_stats(step: LockedStep) -> StatsLayout | Dropped | None:
    """The column stats that the table keeps now; `Dropped` for some that cannot be written."""
    config = read_table_config(step.context.storage)
    try:
        return step.context.stats.current(config, step.timelines)
    except UnsupportedTableError as error:
        return Dropped(error.reason)


def ticket_of(action: DecidedAction, path: str) -> Ticket:
    """The ticket of a prepared file. Raises ActionLostError."""
    ticket = action.tickets.get(path)
    if ticket is None:
        raise ActionLostError(f"{path} is not prepared any more")
    return ticket


def committed_names(context: Context, instant: str, root: str) -> set[str] | None:
    """The names of the base files that the completed instant's metadata names; None when it cannot be told,
    because the instant was archived.
    """
    name = completed_file(context.storage, instant, root)
    if name is None:
        return None
    path = join_path(root, "timeline", name)
    metadata = decode_commit_metadata(context.storage.read(path), path)
    return {name_of(stat.path) for stat in metadata.stats()}


def is_completed(timelines: Timelines, instant: str, root: str) -> bool:
    """Whether the instant, or on the data timeline its metadata deltacommit, is completed."""
    asked: list[Timeline] = [timelines.metadata]
    if root == DATA_ROOT:
        asked.append(timelines.data)
    found = [timeline.find(instant) for timeline in asked]
    return any(instant is not None and instant.is_completed for instant in found)


def take_back_instant(step: LockedStep, instant: str, action: Action, root: str) -> None:
    """Deletes what was made of an instant that is not completed, but for base files, which go before. What
    an engine that died made of it goes, too: the metadata table's deltacommit, markers.
    """
    step.context.hit(CoordinatorFailpoint.IN_TAKE_BACK)
    if root == DATA_ROOT:
        found = step.timelines.metadata.find(instant)
        if found is not None and found.is_completed:
            step.delete(instant_path(found, METADATA_TABLE_ROOT))
            step.context.storage.sync_dir(join_path(METADATA_TABLE_ROOT, "timeline"))
        for partition, paths in _metadata_logs(step.context.storage, instant).items():
            for path in paths:
                step.delete(path)
            step.context.storage.sync_dir(partition)
        _delete_pending(step, instant, Action.DELTA_COMMIT, METADATA_TABLE_ROOT)
    delete_markers(step, instant, root)
    _delete_pending(step, instant, action, root)


def delete_markers(step: LockedStep, instant: str, root: str) -> None:
    """Deletes markers of the instant: an executor of another engine that died has left them, we make none."""
    step.context.lock.check()
    step.context.storage.delete_tree(marker_folder(instant, root))


def _metadata_logs(storage: Storage, instant: str) -> dict[str, list[str]]:
    """Folder of a partition of the metadata table -> the instant's log files in it."""
    found: dict[str, list[str]] = {}
    for info in storage.list(METADATA_TABLE_PATH):
        if info.is_dir and not info.name.startswith("."):
            logs = [name for name in storage.names(info.path) if f"_{instant}.log." in name]
            if logs:
                found[info.path] = [join_path(info.path, name) for name in sorted(logs)]
    return found


def _delete_pending(step: LockedStep, instant: str, action: Action, root: str) -> None:
    for state in (State.INFLIGHT, State.REQUESTED):
        step.delete(instant_path(Instant(instant, action, state), root))
    step.context.storage.sync_dir(join_path(root, "timeline"))


def slice_time(clock: Clock, slice_ms: int) -> Callable[[], bool]:
    """Tells whether the time of a slice is over: ``slice_ms``, which begin when it is asked first.

    Deletions get all of that time, and the first one is made in any case: ask before each. What comes before
    them (documents, the lock, listings) takes longer than the whole slice where the disk is slow. If it
    counted, a slice would delete one file, or none.
    """
    ends_ms: int | None = None

    def is_over() -> bool:
        nonlocal ends_ms
        now_ms = clock.now_ms()
        if ends_ms is None:
            ends_ms = now_ms + slice_ms
            return False
        return now_ms >= ends_ms

    return is_over


@contextmanager
def slice_lock(context: Context) -> Iterator[Callable[[str], bool]]:
    """The lock for one slice of a sweep, if it is not held already; yields how to delete under it. Raises
    LockHeldError.
    """
    was_held = context.lock.is_held
    if not was_held:
        context.lock.acquire(0, ends_epoch=True)

    def delete(path: str) -> bool:
        context.lock.check()
        return context.storage.delete(path)

    try:
        yield delete
    finally:
        if not was_held:
            give_back(context)
