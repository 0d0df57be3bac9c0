"""Why processes left for good, for `tidemark status`: started again, they would fail for the same reason."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidemark.epoch_protocol.entries import Stage
from tidemark.stream_runtime.clock import Clock

_KEPT_MAX: Final = 10
_FRESH_MS: Final = 600_000


@dataclass(frozen=True)
class TerminalFailure:
    """A process of the stage left at ``at_ms`` (Unix epoch), because it cannot go on."""

    stage: Stage
    process_id: str
    reason: str
    at_ms: int


class TerminalFailures:
    """The newest ``_KEPT_MAX`` failures; thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._said: deque[TerminalFailure] = deque(maxlen=_KEPT_MAX)

    def say(self, stage: Stage, process_id: str, reason: str) -> None:
        """Notes that a process left because it cannot go on."""
        with self._lock:
            self._said.append(TerminalFailure(stage, process_id, reason, self._clock.now_ms()))

    def current(self, is_manned: Callable[[Stage], bool]) -> list[TerminalFailure]:
        """The failures of the last ten minutes, and older ones of stages without a live member.

        ``is_manned``: whether a stage has one.
        """
        fresh_ms = self._clock.now_ms() - _FRESH_MS
        with self._lock:
            said = list(self._said)
        return [failure for failure in said if failure.at_ms >= fresh_ms or not is_manned(failure.stage)]
