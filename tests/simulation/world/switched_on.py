"""Column stats that are switched on in a world's table as soon as there is one and nobody holds its lock."""

from __future__ import annotations

from typing import Any, cast

from tests.simulation.kept_stats import switch_on
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.storage import WatchedStorage

COLUMNS = ("id", "ts", "v")
GROUPS = 2


class SwitchedOn:
    """``wanted``: whether the world's table keeps stats."""

    def __init__(self, wanted: bool, storage: WatchedStorage, judge: Judge) -> None:
        self._waits, self._storage, self._judge = wanted, storage, judge

    def happened(self) -> None:
        """After an event."""
        if not self._waits or self._storage.exists(".hoodie/lock"):
            return
        path = ".hoodie/hoodie.properties"
        if not self._storage.exists(path) or b"record_index" not in self._storage.memory.read(path):
            return
        with self._judge.elsewhere():
            switch_on(cast(Any, self._storage), COLUMNS, GROUPS)
        self._waits = False
