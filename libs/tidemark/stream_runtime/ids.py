"""Unique ids and dice as arguments. The only module that may ask the machine for randomness."""

from __future__ import annotations

import random
import uuid
from typing import Protocol


class IdSource(Protocol):
    """Where ids and dice come from."""

    def uuid(self) -> str:
        """A random (version 4) UUID in its canonical text form: 36 characters, lower case."""
        ...

    def random(self) -> random.Random:
        """A generator of its own for the caller, e.g. for retry jitter."""
        ...


class SystemIds:
    """Ids from the operating system's randomness."""

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def random(self) -> random.Random:
        return random.Random(uuid.uuid4().int)
