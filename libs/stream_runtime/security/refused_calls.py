"""How many calls a process turned away, by reason: all its ports count here, metrics and `status` show it.

Not counted is what never became a call: more calls at once, or larger messages, than gRPC itself takes, and
failed handshakes.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from stream_runtime.security.errors import Denial

TOO_MANY: Final = "too_many"
"""More at once than a limit lets in."""
REASONS: Final = (*(denial.value for denial in Denial), TOO_MANY)


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
