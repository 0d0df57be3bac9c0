"""Lanes of the shuffle stage that are not read, because their topic is gone or another one than recorded.

The coordinator takes such lanes away when it sees what the stage sees. It need not: a broker that has just
started may know no topic for a moment in which only the stage asks. So the stage looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Final

from tidemark.stream_runtime.clock import Clock

_LOOK_S: Final = 1.0
_log = logging.getLogger("tidemark.assigner")


class RestingLanes:
    """Which lanes rest, which of them are suspect, because former readers died, and when to look at their
    topics again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lanes: set[str] = set()
        self.suspects: set[str] = set()
        self._look_at_s = 0.0

    def add(self, names: Iterable[str], suspects: Collection[str] = ()) -> None:
        """These rest from now on."""
        new = sorted(set(names) - self._lanes)
        if new:
            _log.warning("lanes %s rest: their topic is gone, or another one than recorded", ", ".join(new))
            self._lanes.update(new)
            self.suspects.update(set(new).intersection(suspects))
            self._look_at_s = self._clock.monotonic_s() + _LOOK_S

    def __contains__(self, name: str) -> bool:
        return name in self._lanes

    def forget(self, names: Iterable[str]) -> None:
        """These are given up, or are read."""
        for name in names:
            self._lanes.discard(name)
            self.suspects.discard(name)

    def due(self) -> list[str]:
        """The lanes whose topics are to be looked at now, once a second at most."""
        now_s = self._clock.monotonic_s()
        if not self._lanes or now_s < self._look_at_s:
            return []
        self._look_at_s = now_s + _LOOK_S
        return sorted(self._lanes)
