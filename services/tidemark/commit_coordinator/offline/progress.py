"""What a long scan of a table says on its way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.stream_runtime.clock import Clock

_SAY_EVERY_MS: Final = 2_000


class Progress:
    """Says every two seconds how far a scan is. `things`: what is counted."""

    def __init__(self, clock: Clock, say: Callable[[str], None], things: str) -> None:
        self._clock, self._say, self._things = clock, say, things
        self._next_ms = clock.now_ms() + _SAY_EVERY_MS

    def scanned(self, done: int, left: int) -> None:
        """``done`` and ``left``: numbers of the things."""
        if self._clock.now_ms() >= self._next_ms:
            self._next_ms = self._clock.now_ms() + _SAY_EVERY_MS
            self._say(f"read {done} of {done + left} {self._things}")
