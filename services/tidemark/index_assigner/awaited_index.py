"""Tells the shuffle stage of a process when the assign stage waits for its index.

The stages are threads of one process, and share its cores and the interpreter's lock. While shards are filled
and loaded after a cold start, the assign stage tags nothing, so what the shuffle stage would do meanwhile is
not needed yet: it only makes the loads take longer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class AwaitedIndex:
    """For two threads: one waits for the index, the other asks whether it does."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._over.set()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The index is waited for in this block."""
        self._over.clear()
        try:
            yield
        finally:
            self._over.set()

    def is_over(self, timeout_s: float) -> bool:
        """Whether nobody waits for the index; waits for that, so long at most."""
        return self._over.wait(timeout_s)
