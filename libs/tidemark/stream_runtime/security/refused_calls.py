"""How many calls a process turned away, by reason: all its ports count here, metrics and `status` show it.

Counted too are connections that made room for newcomers before anybody called on them. Not counted is what
else never became a call: connections beyond gRPC's limit, failed handshakes, and messages that are larger
than gRPC takes.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from tidemark.stream_runtime.security.errors import Denial

TOO_MANY: Final = "too_many"
"""More at once than a limit lets in."""
TOO_SLOW: Final = "too_slow"
"""Cut off because its request did not come in time, or to make room for others."""
REASONS: Final = (*(denial.value for denial in Denial), TOO_MANY, TOO_SLOW)


class RefusedCalls:
    """Thread-safe. Every reason is there from the start, so that a rate is told from its first call on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        """One of `REASONS`."""
        with self._lock:
            self._counted[reason] += 1

    def counts(self) -> dict[str, int]:
        """Since the process began."""
        with self._lock:
            return {reason: self._counted[reason] for reason in REASONS}
