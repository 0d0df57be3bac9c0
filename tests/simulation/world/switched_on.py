"""Indexes that are switched on in a world's table as soon as there is one and nobody holds its lock."""

from __future__ import annotations

from typing import Any, cast

from tests.simulation import kept_secondary
from tests.simulation.kept_stats import switch_on
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.script import Setup
from tests.simulation.world.settings import NOTE
from tests.simulation.world.storage import WatchedStorage
from tidemark.hudi_format.model import instant_from_ms, instant_to_ms
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, load_timeline

GROUPS = 2


class SwitchedOn:
    """What the world's table keeps, as its setup says: column stats, a secondary index."""

    def __init__(self, setup: Setup, storage: WatchedStorage, judge: Judge) -> None:
        self._setup, self._storage, self._judge = setup, storage, judge
        self._waits = setup.stats or setup.secondary

    def happened(self) -> None:
        """After an event."""
        if not self._waits or self._storage.exists(".hoodie/lock"):
            return
        path = ".hoodie/hoodie.properties"
        if not self._storage.exists(path) or b"record_index" not in self._storage.memory.read(path):
            return
        with self._judge.elsewhere():
            if self._setup.stats:
                columns = ("id", "ts", "v", *((NOTE,) if self._setup.nullable else ()))
                switch_on(cast(Any, self._storage), columns, GROUPS)
            if self._setup.secondary:
                column = NOTE if self._setup.nullable else "ts"
                kept_secondary.switch_on(cast(Any, self._storage), GROUPS, column, self._next_completion())
        self._waits = False

    def _next_completion(self) -> str:
        """No two instants complete at one time: `verify` would find that, and an operator could not go on."""
        built = load_timeline(cast(Any, self._storage), METADATA_TABLE_ROOT).completed()
        return instant_from_ms(1 + max(instant_to_ms(str(instant.completion)) for instant in built))
