"""Imports without searches for garbage.

An import makes hundreds of thousands of objects that stay. Python searches all of them for cycles again and
again meanwhile, and finds none: a tenth of the CPU of a service's start.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """No collection while the block imports. What is there at its end is left out of all later collections,
    too: each full one of a service would visit it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
