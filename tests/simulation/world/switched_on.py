"""Indexes that are switched on in a world's table as soon as there is one and nobody holds its lock."""

from __future__ import annotations

from typing import Any, cast

from tests.simulation import kept_secondary
from tests.simulation.kept_stats import switch_on
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.storage import WatchedStorage
from tidemark.hudi_format.model import instant_from_ms, instant_to_ms
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline

COLUMNS = ("id", "ts", "v")
GROUPS = 2


class SwitchedOn:
    """``stats``, ``secondary``: what the world's table keeps, column stats and an index of `ts`."""

    def __init__(self, stats: bool, secondary: bool, storage: WatchedStorage, judge: Judge) -> None:
        self._stats, self._secondary = stats, secondary
        self._waits, self._storage, self._judge = stats or secondary, storage, judge

    def happened(self) -> None:
        """After an event."""
        if not self._waits or self._storage.exists(".hoodie/lock"):
            return
        path = ".hoodie/hoodie.properties"
        if not self._storage.exists(path) or b"record_index" not in self._storage.memory.read(path):
            return
        with self._judge.elsewhere():
            if self._stats:
                switch_on(cast(Any, self._storage), COLUMNS, GROUPS)
            if self._secondary:
                kept_secondary.switch_on(cast(Any, self._storage), GROUPS, "ts", self._next_completion())
                self._judge.has_secondary()
        self._waits = False

    def _next_completion(self) -> str:
        """No two instants complete at one time: `verify` would find that, and an operator could not go on."""
        built = load_timeline(cast(Any, self._storage), METADATA_TABLE_ROOT).completed()
        return instant_from_ms(1 + max(instant_to_ms(str(instant.completion)) for instant in built))
