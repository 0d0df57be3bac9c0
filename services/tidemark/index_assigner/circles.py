"""When the assigner searches for objects that keep each other.

Python frees an object when nothing refers to it. Objects that refer to each other in a circle wait for a
search. Python begins one when many objects were made and not freed; but a batch makes and frees tens of
thousands, none of them in a circle, so its thresholds would search after every few hundred of them, for
nothing. And few objects may hold much memory: an error refers to its frames, these to the arrays that they
worked with. So the assigner searches by the clock instead.
"""

from __future__ import annotations

import gc
from typing import Final

from tidemark.stream_runtime.clock import Clock

_EVERY_S: Final = 60.0
_COLLECT_AFTER: Final = (200_000, 20, 50)


def search_seldom() -> None:
    """Python's own searches become rare, and pass over what there is now: the imported modules."""
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)


class CircleSearch:
    """Searches once a minute, also for what other threads left."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next_s = clock.monotonic_s() + _EVERY_S

    def when_due(self) -> None:
        """Searches if a minute is over. All threads rest meanwhile, for some ten milliseconds."""
        if self._clock.monotonic_s() >= self._next_s:
            gc.collect()
            self._next_s = self._clock.monotonic_s() + _EVERY_S
