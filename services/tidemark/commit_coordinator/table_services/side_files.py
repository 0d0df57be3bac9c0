"""Side files that writers which died left below `.hoodie`, and below that of the metadata table: markers and
heartbeats of instants that are on neither timeline. A clean deletes them with what it cleans; where there is
nothing to clean, as always in a table of inserts alone, its look does. So it does with what killed commands
prepared.

Markers are the only list of the files of a write that was rolled back. Example: Spark's driver is cut off,
its write is dead and rolled back, and its executors, which live, make more files and markers of that instant.
Once archival has passed it, it counts as archived, and readers would see its rows. So what markers name goes
before them: the files of an instant that never completed. One that is in an archive did, and its files stay.
Of one that is older than the timeline, and neither in an archive nor named by a rollback, nobody can tell:
its files and markers stay.
"""

from __future__ import annotations

import logging
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.table_services.handler import LockedStep
from tidemark.hudi_format.commit.markers import list_markers
from tidemark.hudi_format.commit.rollback import belongs_to, rollback_pending
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.storage.base import join_path, name_of, parent_of
from tidemark.hudi_format.table_services.dead_instants import leftovers
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT
from tidemark.stream_runtime.retry import Deadline

_log = logging.getLogger("tidemark.coordinator")

_MARKERS: Final = ".temp"
_FOLDERS: Final = (_MARKERS, ".heartbeat")


def left_side_files(step: LockedStep) -> tuple[str, ...]:
    """The paths of side files, and of folders of them, that belong to no instant any more."""
    context, timelines = step.context, step.timelines
    folders = [join_path(root, name) for root in (DATA_ROOT, METADATA_TABLE_ROOT) for name in _FOLDERS]
    paths = [info.path for folder in folders for info in context.storage.list(folder)]
    # What is pending in the table may be tried again in its metadata table, by the same time.
    both = (timelines.data, timelines.metadata)
    return leftovers(paths, both, context.file_time_ms, context.publishing.written_ms)


def delete_side_file(context: Context, path: str) -> None:
    """Deletes a side file, or a folder of them; markers behind the files that they name. Hold the lock."""
    root, folder, requested = _parts(path)
    if folder != _MARKERS or is_bootstrap_instant(requested) or _files_are_settled(context, root, requested):
        context.storage.delete_tree(path)
        context.storage.delete(path)


def _parts(path: str) -> tuple[str, str, str]:
    """(root of the timeline, name of the folder, the instant)."""
    parent = parent_of(path)
    return parent_of(parent), name_of(parent), name_of(path)


def _files_are_settled(context: Context, root: str, requested: str) -> bool:
    """Whether no file needs the markers of the instant any more. Files that no reader may see are deleted."""
    timelines = load_timelines(context.storage)
    both = (timelines.data, timelines.metadata)
    if any(timeline.contains(requested) for timeline in both):
        return False
    if any(timeline.archive and timeline.archive.completion_time(requested) for timeline in both):
        return True
    try:
        timeline = timelines.data if root == DATA_ROOT else timelines.metadata
        if timeline.is_archived(requested) and requested not in context.rollbacks.named(timelines):
            return not any(map(context.storage.exists, _named(context, root, requested)))
        _delete_named(context, root, requested)
    except CorruptFileError as error:
        _log.warning("markers of %s are left, look at them: %s", requested, error)
        return False
    return True


def _delete_named(context: Context, root: str, requested: str) -> None:
    if root == DATA_ROOT:
        rollback_pending(context.publishing, requested, context.instants)
        return
    named = _named(context, root, requested)
    for path in named:
        context.storage.delete(path)
    for folder in {parent_of(path) for path in named}:
        context.storage.sync_dir(folder)


def _named(context: Context, root: str, requested: str) -> list[str]:
    """The files that the markers name. Raises CorruptFileError for one that is of another instant."""
    base = "" if root == DATA_ROOT else METADATA_TABLE_PATH
    paths = [join_path(base, marker.data_path) for marker in list_markers(context.storage, requested, root)]
    for path in paths:
        if not belongs_to(name_of(path), requested):
            raise CorruptFileError(f"a marker of {requested} names {path!r}, which is not of that instant")
    return paths


def delete_side_files(step: LockedStep, for_s: float) -> None:
    """Deletes what is left now, one at least and none after so many seconds. Raises LockLostError."""
    deadline = Deadline(step.context.clock, for_s)
    for path in left_side_files(step):
        step.context.lock.check()
        delete_side_file(step.context, path)
        if deadline.is_over:
            return


def delete_dead_commands(step: LockedStep, for_s: float) -> None:
    """Deletes what killed commands prepared, one file at least and none after so many seconds: that can be as
    much as an index has, and the table's lock is held. Raises LockLostError.

    What cannot be deleted holds up no clean. Example: the folder belongs to root, who ran the command.
    """
    deadline = Deadline(step.context.clock, for_s)

    def is_over() -> bool:
        step.context.lock.check()
        return deadline.is_over

    try:
        step.context.publishing.remove_dead_commands(is_over)
    except OSError as error:
        _log.warning("what a killed `tidemark index` command prepared is left, delete it by hand: %s", error)
