"""Why processes left that cannot go on, for `status`: whoever starts them again gets the same answer."""

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
    """Said by a process of the stage at ``at_ms`` (epoch milliseconds)."""

    stage: Stage
    process_id: str
    reason: str
    at_ms: int


class TerminalFailures:
    """Thread-safe; the newest ``_KEPT_MAX``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._said: deque[TerminalFailure] = deque(maxlen=_KEPT_MAX)

    def say(self, stage: Stage, process_id: str, reason: str) -> None:
        """A process left and will not come back by itself."""
        with self._lock:
            self._said.append(TerminalFailure(stage, process_id, reason, self._clock.now_ms()))

    def current(self, is_manned: Callable[[Stage], bool]) -> list[TerminalFailure]:
        """Those of the last ten minutes, and all of a stage that nobody has joined since."""
        fresh_ms = self._clock.now_ms() - _FRESH_MS
        with self._lock:
            said = list(self._said)
        return [each for each in said if each.at_ms >= fresh_ms or not is_manned(each.stage)]
