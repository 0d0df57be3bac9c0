"""An operator who reads why a coordinator stopped, and does what it says."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.simulation.world.storage import WatchedStorage
from tidemark.table_verification.remembering import verify_and_remember

_ASKED: Final = "Run `tidemark verify`"
VERIFIED: Final = "an operator compared rows and index"


class Operator:
    """``log``: lines of the world's log."""

    def __init__(self, storage: WatchedStorage, reached: Counter[str], log: list[str]) -> None:
        self._storage = storage
        self._reached = reached
        self._log = log

    def reads(self, said: str) -> bool:
        """Whether that asked for something."""
        if _ASKED not in said:
            return False
        self._reached[VERIFIED] += 1
        found = verify_and_remember(self._storage.memory, True, lambda _: None, lambda _: None).findings
        self._log.append(f"    the operator verifies: {dict(found.counts)}")
        return True
