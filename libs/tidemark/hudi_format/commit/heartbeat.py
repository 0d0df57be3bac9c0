"""Heartbeats of running commits: the file `.hoodie/.heartbeat/<instant>`, empty, its time is the last beat.

Other writers with lazy cleaning of failed writes roll an instant back whose heartbeat is older than two
intervals or missing. The file matters in single-writer mode too: a failed instant without it, followed by a
completed one, wedges Spark (FORMAT.md, section 9.2, trap 1). So: beat before the requested file exists, stop
after completion or rollback.
"""

from __future__ import annotations

import contextlib
from typing import Final

from tidemark.hudi_format.errors import AlreadyExistsError
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.timeline import DATA_ROOT

INTERVAL_MS: Final = 60_000
MISSES_TOLERATED: Final = 2


def heartbeat_path(instant: str, root: str = DATA_ROOT) -> str:
    """Where the instant's heartbeat lies, relative to the table's base."""
    return join_path(root, ".heartbeat", instant)


def beat(storage: Storage, instant: str, root: str = DATA_ROOT) -> None:
    """Says that the instant's writer lives; to be repeated every `INTERVAL_MS` at least."""
    storage.touch(heartbeat_path(instant, root))


def begin(storage: Storage, instant: str, staging_dir: str) -> None:
    """The first beat, behind the staging folder's fence. Repeatable. Raises `StagingGoneError`."""
    with contextlib.suppress(AlreadyExistsError):
        storage.publish(staging_dir, heartbeat_path(instant), b"")
    keep(storage, instant)


def keep(storage: Storage, instant: str) -> None:
    """Beats if the heartbeat is there: one that another writer has ended with its instant stays away."""
    storage.touch(heartbeat_path(instant), create=False)


def is_alive(storage: Storage, instant: str, now_ms: int, root: str = DATA_ROOT) -> bool:
    """Whether the last beat is not older than Hudi's writers tolerate."""
    info = storage.stat(heartbeat_path(instant, root))
    return info is not None and now_ms - info.mtime_ms <= INTERVAL_MS * MISSES_TOLERATED


def stop(storage: Storage, instant: str, root: str = DATA_ROOT) -> bool:
    """Removes the heartbeat; False when there was none."""
    return storage.delete(heartbeat_path(instant, root))
