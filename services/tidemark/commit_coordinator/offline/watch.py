"""Finds out whether a coordinator serves a table's folder, wherever it runs, by its sign of life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.commit_coordinator.opening.sign_of_life import shown_sign
from tidemark.hudi_format.storage.base import Storage
from tidemark.stream_runtime.clock import Clock

WATCHED_S: Final = 20.0
_LOOK_EVERY_S: Final = 1.0


def is_served(storage: Storage, clock: Clock, waits: Callable[[], None] = lambda: None) -> bool:
    """Whether a coordinator serves the table, wherever it runs.

    Without the file none does. With it the file is watched for `WATCHED_S` seconds, because a coordinator
    that was killed left it as well; ``waits`` is called when that begins.
    """
    first = shown_sign(storage)
    if not first:
        return False
    waits()
    end_s = clock.monotonic_s() + WATCHED_S
    while clock.monotonic_s() < end_s:
        clock.sleep(_LOOK_EVERY_S)
        now = shown_sign(storage)
        if now != first:
            # If the file is gone, the coordinator has just ended in order.
            return bool(now)
    return False
