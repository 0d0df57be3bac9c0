"""Finds what failed writers left: pending writes whose writer is gone, and side files of instants that are on
no timeline any more. Pure.

Pending writes hold back compactions, the horizon of cleans, and archival. A writer that lives beats at least
every minute (`commit/heartbeat.py`). A failed write is for whoever finds it without a beat (FORMAT.md,
section 9.3).

How old a file is says the storage's clock, or ours where that is earlier. Example: our clock is ten minutes
ahead of it. By our clock a beat of this moment is ten minutes old, and each write of another engine would be
dead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from tidemark.hudi_format.commit.heartbeat import INTERVAL_MS, MISSES_TOLERATED
from tidemark.hudi_format.model import is_instant_time
from tidemark.hudi_format.storage.base import name_of
from tidemark.hudi_format.timeline import WRITTEN, Timeline

DEAD_AFTER_MS: Final = INTERVAL_MS * MISSES_TOLERATED
LEFT_AFTER_MS: Final = 60 * 60_000


def dead_instants(
    timeline: Timeline,
    own: Collection[str],
    now_ms: Callable[[], int],
    *,
    begun_ms: Callable[[str], int | None],
    beaten_ms: Callable[[str], int | None],
) -> list[str]:
    """Requested times of the data timeline's pending writes (`WRITTEN`) that no writer finishes.

    ``own``: our own pending instants. ``now_ms``: the storage's time now (Unix epoch); it is asked where
    there is a pending write, and before the times of files: what is written later is not dead. ``begun_ms``,
    ``beaten_ms``: requested time -> when its requested file was made, and its last beat, by the same clock;
    None where the file is not there.
    """
    pending = [instant.requested for instant in timeline.pending(*WRITTEN)]
    foreign = [requested for requested in pending if requested not in own]
    if not foreign:
        return []
    dead_from_ms, dead = now_ms() - DEAD_AFTER_MS, []
    for requested in foreign:
        times = (begun_ms(requested), beaten_ms(requested))
        newest = max((time for time in times if time is not None), default=None)
        if newest is not None and newest < dead_from_ms:
            dead.append(requested)
    return dead


def leftovers(
    side_files: Iterable[str],
    timelines: Sequence[Timeline],
    now_ms: Callable[[], int],
    written_ms: Callable[[str], int | None],
) -> tuple[str, ...]:
    """The paths of those that belong to no instant of these timelines, and were not changed for an hour.

    ``side_files``: paths of entries of `.temp` and `.heartbeat` folders, which are named by instants.
    ``now_ms``: as of `dead_instants`, asked where there is such a file. ``written_ms``: when one was written
    last, by the same clock; None when it is gone.
    """
    named = [(path, name_of(path)) for path in side_files]
    nobodys = [
        path
        for path, name in named
        if is_instant_time(name) and not any(timeline.contains(name) for timeline in timelines)
    ]
    if not nobodys:
        return ()
    left_from_ms = now_ms() - LEFT_AFTER_MS
    times = {path: written_ms(path) for path in nobodys}
    return tuple(sorted(path for path, time in times.items() if time is not None and time < left_from_ms))
