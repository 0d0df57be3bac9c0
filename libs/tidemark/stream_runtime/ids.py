"""Sources of unique ids and random numbers, which services get as an argument. No other module may ask the
machine for randomness.
"""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class IdSource(Protocol):
    """A source of ids and random numbers."""

    def uuid(self) -> str:
        """A random (version 4) UUID in its canonical text form: 36 characters, lower case."""
        ...

    def random(self) -> random.Random:
        """A new generator, used by this caller alone (for instance for the jitter of retries)."""
        ...


class SystemIds:
    """Ids from the operating system's randomness."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def random(self) -> random.Random:
        return random.Random(uuid.uuid4().int)
