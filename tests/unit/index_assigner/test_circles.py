"""Objects that keep each other are freed within a minute, however few they are."""

from __future__ import annotations

import gc
import weakref

from testing.clock import ManualClock
from tidemark.index_assigner.circles import CircleSearch


class Circle:
    """Keeps itself."""

    def __init__(self) -> None:
        self.itself = self


def test_a_circle_is_freed_once_a_minute_is_over() -> None:
    clock = ManualClock()
    search = CircleSearch(clock)
    gc.disable()
    try:
        for _ in range(2):
            left = weakref.ref(Circle())
            clock.advance(59.0)
            search.when_due()
            assert left() is not None
            clock.advance(1.0)
            search.when_due()
            assert left() is None
    finally:
        gc.enable()
