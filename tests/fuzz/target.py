"""One kind of file that we read: an example of it, and the reader that production uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testing.memory_storage import InMemoryStorage


@dataclass(frozen=True)
class Target:
    """`path`: where the file lies in a table, which errors have to name. `counted`: a reading that succeeds
    finds what the undamaged file has, since the format counts or checks it.
    """

    name: str
    path: str
    content: bytes
    read: Callable[[InMemoryStorage, str], int | None]
    counted: bool = True
