"""librdkafka's log lines: forwarded to Python's logging, and watched for lost connections.

A lost connection is logged and nothing else: the client reconnects, repeats its request and reports success.
For the end of a transaction that is the one sign of a request that may still be under way (ARCHITECTURE.md
section 4).

A client that reaches nobody logs ten lines a second, which differ in numbers alone. Of lines that are alike
the first is forwarded at once, then one in `_AGAIN_S` with the number of those between, whichever client of
the process logs them.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from tidemark.stream_runtime.clock import Clock, SystemClock

_FORWARD: Final = logging.getLogger("tidemark.kafka")
_LOST: Final = ("disconnect", "connection closed", "timed out", "receive failed", "send failed")
# Properties of producers given to consumers and the other way round: the kafka: section serves both.
_AGAIN_S: Final = 30.0
_KINDS_MAX: Final = 200
_NUMBERS: Final = re.compile(r"\d+")
_NOISE: Final = frozenset({"CONFWARN"})


class Repeats:
    """Which lines have been forwarded lately. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int]] = {}

    def held_back(self, line: str) -> int | None:
        """How many lines like this one were not forwarded since the last that was; None: nor is this one."""
        kind, now_s = _NUMBERS.sub("#", line), self._clock.monotonic_s()
        with self._lock:
            last_s, held = self._kinds.get(kind, (now_s - _AGAIN_S, 0))
            if now_s - last_s < _AGAIN_S:
                self._kinds[kind] = last_s, held + 1
                return None
            if len(self._kinds) >= _KINDS_MAX:
                self._kinds.clear()
            self._kinds[kind] = now_s, 0
            return held


_REPEATS: Final = Repeats(SystemClock())


class ConnectionLog:
    """Given to librdkafka as its `logger`. Served in the thread that polls the client."""

    def __init__(self, client: str, repeats: Repeats = _REPEATS) -> None:
        self._client = client
        self._repeats = repeats
        self.losses = 0
        """How often a connection was logged as lost or a request as timed out."""

    def log(self, level: int, _format: str, facility: str, _handle: str, line: str) -> None:
        """The call that confluent-kafka makes for each line."""
        if facility in ("FAIL", "REQTMOUT", "ERROR", "CLOSE") and any(sign in line.lower() for sign in _LOST):
            self.losses += 1
        held = None if facility in _NOISE else self._repeats.held_back(f"{facility} {line}")
        if held is not None:
            more = f" ({held} lines like this one since the last)" if held else ""
            # What librdkafka calls an error is a connection that it opens again by itself.
            _FORWARD.log(
                min(level, logging.WARNING), "client=%s facility=%s %s%s", self._client, facility, line, more
            )
