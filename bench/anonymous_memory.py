"""Anonymous resident memory of this process: what it allocated itself, without mapped files."""

from __future__ import annotations

import threading
from typing import Final

from tidemark.stream_runtime import allocator

_EVERY_S: Final = 1.0


def anonymous_bytes() -> int:
    """``RssAnon`` of this process in bytes. Linux only: raises OSError elsewhere."""
    found = allocator.anonymous_bytes()
    if found is None:
        raise OSError("/proc/self/status has no RssAnon")
    return found


class AnonymousMemory:
    """The peak while it is entered, read every second and at the end. ``peak``: bytes."""

    def __init__(self) -> None:
        self.peak = anonymous_bytes()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="anonymous-memory", daemon=True)

    def __enter__(self) -> AnonymousMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        self.peak = max(self.peak, anonymous_bytes())
