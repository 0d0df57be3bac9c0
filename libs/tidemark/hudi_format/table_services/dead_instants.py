"""Finds what failed writers left: pending writes whose writer is gone, and side files of instants that are on
no timeline any more. Pure.

Pending writes hold back compactions, the horizon of cleans, and archival. A writer that lives beats at least
every minute (`commit/heartbeat.py`). A failed write is for whoever finds it without a beat (FORMAT.md,
section 9.3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final

from tidemark.hudi_format.commit.heartbeat import INTERVAL_MS, MISSES_TOLERATED
from tidemark.hudi_format.model import is_instant_time
from tidemark.hudi_format.storage.base import name_of
from tidemark.hudi_format.timeline import Action, Timeline

DEAD_AFTER_MS: Final = INTERVAL_MS * MISSES_TOLERATED
LEFT_AFTER_MS: Final = 60 * 60_000
_ROLLED_BACK: Final = (Action.COMMIT, Action.DELTA_COMMIT)


def dead_instants(
    timeline: Timeline,
    own: Collection[str],
    now_ms: int,
    *,
    begun_ms: Callable[[str], int | None],
    beaten_ms: Callable[[str], int | None],
) -> list[str]:
    """Requested times of the data timeline's pending commits and deltacommits that no writer finishes.

    ``own``: our own pending instants. ``begun_ms``, ``beaten_ms``: requested time -> when its requested file
    was made, and its last beat (Unix epoch, by the storage's clock); None where the file is not there.
    """
    dead = []
    for instant in timeline.pending(*_ROLLED_BACK):
        if instant.requested in own:
            continue
        times = (begun_ms(instant.requested), beaten_ms(instant.requested))
        newest = max((time for time in times if time is not None), default=None)
        if newest is not None and now_ms - newest > DEAD_AFTER_MS:
            dead.append(instant.requested)
    return dead


def leftovers(
    side_files: Iterable[str], timeline: Timeline, now_ms: int, written_ms: Callable[[str], int | None]
) -> tuple[str, ...]:
    """The paths of those that belong to no instant of the data timeline, and were not changed for an hour.

    ``side_files``: paths of entries of `.hoodie/.temp` and `.hoodie/.heartbeat`, which are named by instants.
    ``written_ms``: when one was written last; None when it is gone.
    """

    def is_left(path: str) -> bool:
        name = name_of(path)
        if not is_instant_time(name) or timeline.contains(name):
            return False
        written = written_ms(path)
        return written is not None and now_ms - written > LEFT_AFTER_MS

    return tuple(sorted(filter(is_left, side_files)))
