"""Finds out whether a coordinator serves a table's folder, wherever it runs, by its sign of life."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.commit_coordinator.opening.sign_of_life import shown_sign
from tidemark.hudi_format.storage.base import Storage
from tidemark.stream_runtime.clock import Clock

WATCHED_S: Final = 30.0
"""A coordinator that changes nothing for so long is dead. It changes its sign every five seconds, later where
the machine is busy.
"""
_LOOK_EVERY_S: Final = 1.0


class SignWatch:
    """Looks at the sign of life in a table's folder again and again. ``sign``: as seen last; "": none."""

    def __init__(self, storage: Storage, clock: Clock) -> None:
        """Looks for the first time."""
        self._storage, self._clock = storage, clock
        self.sign = shown_sign(storage)
        self.moved()

    def look(self) -> bool:
        """Looks; returns whether the sign has changed since the last look."""
        before, self.sign = self.sign, shown_sign(self._storage)
        if self.sign == before:
            return False
        self.moved()
        return True

    def moved(self) -> None:
        """Whoever is watched did something else now, by which it is seen that it lives."""
        self._since_s = self._clock.monotonic_s()

    @property
    def is_silent(self) -> bool:
        """Whether nothing has changed for `WATCHED_S`."""
        return self._clock.monotonic_s() - self._since_s >= WATCHED_S


def is_served(storage: Storage, clock: Clock, waits: Callable[[], None] = lambda: None) -> bool:
    """Whether a coordinator serves the table, wherever it runs.

    Without the file none does. With it the file is watched for `WATCHED_S` seconds, because a coordinator
    that was killed left it as well; ``waits`` is called when that begins.
    """
    watch = SignWatch(storage, clock)
    if not watch.sign:
        return False
    waits()
    while not watch.is_silent:
        clock.sleep(_LOOK_EVERY_S)
        if watch.look():
            # If the file is gone, the coordinator has just ended in order.
            return bool(watch.sign)
    return False
