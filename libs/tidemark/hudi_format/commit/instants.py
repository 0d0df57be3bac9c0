"""Makes and removes the files of an instant (FORMAT.md, section 8.2).

Each step is repeatable. An inflight or completed file that is there already counts as written whatever its
bytes: its name says whose it is, and another version of the writer may have made it. A requested file counts
only if it has the very content that would have been written, because it may hold a plan.

These functions decide nothing; the caller holds the table's lock where the protocol says so
(ARCHITECTURE.md, "Commit"). After the end of the writer's term each step that makes a file raises
`FencedOutError` instead.
"""

from __future__ import annotations

from tidemark.hudi_format.errors import TimelineConflictError
from tidemark.hudi_format.publication.port import Publisher
from tidemark.hudi_format.publication.tickets import Lease
from tidemark.hudi_format.storage.base import FileContent, Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT, Action, Instant, State
from tidemark.hudi_format.timeline.instant import parse_file_name


def instant_path(instant: Instant, root: str = DATA_ROOT) -> str:
    """The path of the instant's file for its state, relative to the table's base."""
    return join_path(root, "timeline", instant.file_name)


def create_requested(
    by: Publisher,
    requested: str,
    action: Action,
    data: FileContent = b"",
    *,
    root: str = DATA_ROOT,
) -> Instant:
    """Makes the requested file; `data` is the plan, empty for commits and deltacommits.

    Raises `TimelineConflictError` when the file exists with another content, `FencedOutError` after the end
    of the term.
    """
    instant = Instant(requested, action, State.REQUESTED)
    _put(by, instant_path(instant, root), data, name_decides=False)
    return instant


def create_inflight(
    by: Publisher,
    instant: Instant,
    data: FileContent = b"",
    *,
    root: str = DATA_ROOT,
) -> Instant:
    """Makes the inflight file of a requested instant; `data` is commit metadata for commits, else empty.

    Raises `TimelineConflictError` when the requested file is gone, because another writer rolled the instant
    back; `FencedOutError` after the end of the term.
    """
    _require(by.storage, instant, root)
    inflight = instant.to(State.INFLIGHT)
    _put(by, instant_path(inflight, root), data)
    return inflight


def complete(
    by: Publisher,
    instant: Instant,
    completion: str,
    data: FileContent,
    *,
    root: str = DATA_ROOT,
    lease: Lease | None = None,
) -> Instant:
    """Makes the completed file of an inflight instant: the single write by which the instant takes effect.

    Before it readers see nothing of the instant, after it they see all of it. Hold the table's lock, and pass
    its `lease`: the completion time is in the file's name, so two writers that complete one instant would
    make two files (FORMAT.md, section 8.2).

    Raises `TimelineConflictError` when the inflight file is gone (the instant was rolled back) or the instant
    is completed at another time, `LockLostError` when the lock of `lease` is not held any more,
    `FencedOutError` after the end of the term.
    """
    completed = instant.to(State.COMPLETED, completion)
    already = completed_file(by.storage, instant.requested, root)
    if already is not None and already != completed.file_name:
        raise TimelineConflictError(f"{completed.file_name}: the instant is completed already as {already}")
    if already is not None:
        # The writer that made it may have died before the folder was synced, so sync it here.
        by.storage.sync_dir(join_path(root, "timeline"))
    else:
        _require(by.storage, instant, root)
        _put(by, instant_path(completed, root), data, lease=lease)
    return completed


def completed_file(storage: Storage, requested: str, root: str = DATA_ROOT) -> str | None:
    """The name of the completed file of an instant, None while there is none. A savepoint of that time is not
    looked at: its name begins with the same instant.
    """
    names = [name for name in storage.names(join_path(root, "timeline")) if name.startswith(f"{requested}_")]
    for name in sorted(names):
        instant = parse_file_name(name)
        if instant is not None and instant.action is not Action.SAVEPOINT:
            return name
    return None


def delete_pending(storage: Storage, requested: str, action: Action, root: str = DATA_ROOT) -> None:
    """Removes the inflight file, then the requested file, and syncs the folder. In this order, which is
    Hudi's, a crash in between leaves the instant requested.
    """
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(instant_path(Instant(requested, action, state), root))
    storage.sync_dir(join_path(root, "timeline"))


def _require(storage: Storage, instant: Instant, root: str) -> None:
    path = instant_path(instant, root)
    if not storage.exists(path):
        raise TimelineConflictError(f"{path} is gone: the instant was rolled back by somebody else")


def _put(
    by: Publisher, path: str, data: FileContent, *, name_decides: bool = True, lease: Lease | None = None
) -> None:
    by.publish([by.prepare(path, data, name_decides=name_decides)], lease)
