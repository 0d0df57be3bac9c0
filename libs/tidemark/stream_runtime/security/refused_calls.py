"""Counts the calls that a process refused, by reason, on all its ports. Metrics and `status` show the counts.

Connections that were closed to make room, before any call on them, are counted, too. Not counted are other
cases in which no call came about: connections beyond gRPC's limit, failed handshakes, and messages that are
larger than gRPC accepts.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from tidemark.stream_runtime.security.errors import Denial

TOO_MANY: Final = "too_many"
"""The call was above a limit of calls at once."""
TOO_SLOW: Final = "too_slow"
"""The call was cancelled because its request did not come in time, or to make room for others."""
REASONS: Final = (*(denial.value for denial in Denial), TOO_MANY, TOO_SLOW)


class RefusedCalls:
    """Thread-safe. Every reason has a count from the start, so a rate includes the first call of a reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        """Counts one refusal. `reason` is one of `REASONS`."""
        with self._lock:
            self._counted[reason] += 1

    def counts(self) -> dict[str, int]:
        """The count of each reason since the process began."""
        with self._lock:
            return {reason: self._counted[reason] for reason in REASONS}
