"""Unique ids and dice from a seed."""

from __future__ import annotations

import random
import uuid


class SeededIds:
    """The same ids in the same order for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def random(self) -> random.Random:
        return random.Random(self._random.getrandbits(64))
