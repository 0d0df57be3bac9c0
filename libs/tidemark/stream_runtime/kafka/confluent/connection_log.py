"""Forwards librdkafka's log lines to Python's logging, and counts the connections that they report as lost.

librdkafka only logs a lost connection: it connects again, repeats its request and reports success. For the
end of a transaction the log line is the only sign that the first request may still arrive later and end the
next transaction (ARCHITECTURE.md 3.3).

A client that cannot connect logs ten lines a second which differ only in their numbers. Of such equal lines
the first is forwarded at once, then one in `_AGAIN_S` with the number of lines in between, whichever clients
of the process log them.
"""

from __future__ import annotations

import logging
import re
import threading
from typing import Final

from tidemark.stream_runtime.clock import Clock, SystemClock

_FORWARD: Final = logging.getLogger("tidemark.kafka")
_LOST: Final = ("disconnect", "connection closed", "timed out", "receive failed", "send failed")
_AGAIN_S: Final = 30.0
_KINDS_MAX: Final = 200
_NUMBERS: Final = re.compile(r"\d+")
# Warnings about settings of producers given to consumers, or the reverse: the section kafka: is for both.
_NOISE: Final = frozenset({"CONFWARN"})


class Repeats:
    """Remembers which kinds of lines were forwarded when. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: dict[str, tuple[float, int]] = {}

    def held_back(self, line: str) -> int | None:
        """None if this line is not to be forwarded, because an equal one was within `_AGAIN_S`. Else the
        number of equal lines that were not forwarded since then. Lines that differ in numbers are equal.
        """
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
    """The `logger` of one librdkafka client. Its calls come in the thread that polls the client."""

    def __init__(self, client: str, repeats: Repeats = _REPEATS) -> None:
        self._client = client
        self._repeats = repeats
        self.losses = 0
        """How often a connection was logged as lost or a request as timed out."""

    def log(self, level: int, _format: str, facility: str, _handle: str, line: str) -> None:
        """Takes one line; confluent-kafka calls it."""
        if facility in ("FAIL", "REQTMOUT", "ERROR", "CLOSE") and any(sign in line.lower() for sign in _LOST):
            self.losses += 1
        held = None if facility in _NOISE else self._repeats.held_back(f"{facility} {line}")
        if held is not None:
            more = f" ({held} lines like this one since the last)" if held else ""
            # Never as an error: librdkafka's errors are connections that it opens again by itself.
            _FORWARD.log(
                min(level, logging.WARNING), "client=%s facility=%s %s%s", self._client, facility, line, more
            )
