"""Side files that writers which died left below `.hoodie`: markers and heartbeats of instants that are on no
timeline. A clean deletes them with what it cleans; where there is nothing to clean, as always in a table of
inserts alone, its look does.
"""

from __future__ import annotations

from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.table_services.handler import LockedStep
from tidemark.hudi_format.table_services.dead_instants import leftovers
from tidemark.stream_runtime.retry import Deadline

_FOLDERS: Final = (".hoodie/.temp", ".hoodie/.heartbeat")


def left_side_files(step: LockedStep) -> tuple[str, ...]:
    """The paths of side files, and of folders of them, that belong to no instant any more."""
    context = step.context
    paths = [info.path for folder in _FOLDERS for info in context.storage.list(folder)]
    now_ms = context.clock.now_ms()
    return leftovers(paths, step.timelines.data, now_ms, context.publishing.written_ms)


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
