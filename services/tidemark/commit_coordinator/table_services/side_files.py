"""Side files that writers which died left below `.hoodie`, and below that of the metadata table: markers and
heartbeats of instants that are on neither timeline. A clean deletes them with what it cleans; where there is
nothing to clean, as always in a table of inserts alone, its look does. So it does with what killed commands
prepared.
"""

from __future__ import annotations

import logging
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.table_services.handler import LockedStep
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services.dead_instants import leftovers
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT
from tidemark.stream_runtime.retry import Deadline

_log = logging.getLogger("tidemark.coordinator")

_FOLDERS: Final = (".temp", ".heartbeat")


def left_side_files(step: LockedStep) -> tuple[str, ...]:
    """The paths of side files, and of folders of them, that belong to no instant any more."""
    context, timelines = step.context, step.timelines
    folders = [join_path(root, name) for root in (DATA_ROOT, METADATA_TABLE_ROOT) for name in _FOLDERS]
    paths = [info.path for folder in folders for info in context.storage.list(folder)]
    # What is pending in the table may be tried again in its metadata table, by the same time.
    both = (timelines.data, timelines.metadata)
    return leftovers(paths, both, context.file_time_ms, context.publishing.written_ms)


def delete_side_file(context: Context, path: str) -> None:
    """Deletes a side file, or a folder of them."""
    context.storage.delete_tree(path)
    context.storage.delete(path)


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
