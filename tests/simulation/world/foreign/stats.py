"""What another engine does to the column stats of a table, each as Hudi 1.2.0 does: at the start of a write,
under the lock, and whatever becomes of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.simulation.kept_stats import FOLDER, switch_on
from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.index_definitions import (
    COLUMN_STATS,
    column_stats_definition,
    read_index_definitions,
    remove_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.metadata_table.bootstrap import partition_metadata
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.ports import Clock
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_config import read_properties, update_properties
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, load_timeline

_COLUMNS: Final = ("id", "ts")
_GROUPS: Final = 3


class ForeignStats:
    """Raises LeftOutError where there is nothing to be changed. ``clock``: completes above all that there
    is.
    """

    def __init__(self, storage: Any, clock: Clock) -> None:
        self._storage, self._clock = storage, clock

    def change(self, _: Look, what: str) -> None:
        """``what``: one of `STATS_CHANGES`."""
        STATS_CHANGES[what](self)

    def off(self) -> None:
        """It drops them: property, definition, folder."""
        self._list(self._listed() - {COLUMN_STATS})
        remove_index_definitions(self._storage, [COLUMN_STATS])
        self._storage.delete_tree(FOLDER)

    def columns(self) -> None:
        """Its configuration names other columns: the definition has them from here on."""
        self._listed()
        definitions = read_index_definitions(self._storage)
        changed = {**definitions, COLUMN_STATS: column_stats_definition(_COLUMNS)}
        write_index_definitions(self._storage, changed)

    def anew(self) -> None:
        """It drops them and builds them anew, with other groups; its records of the files that are
        there are left out here.
        """
        self.off()
        times = InstantGenerator(self._clock)
        for root in (DATA_ROOT, METADATA_TABLE_ROOT):
            times.observe(load_timeline(self._storage, root).times())
        switch_on(self._storage, _COLUMNS, _GROUPS, times.next())
        self._storage.replace(join_path(FOLDER, ".hoodie_partition_metadata"), partition_metadata("0", 1))

    def partition(self) -> None:
        """It switches partition_stats on beside them."""
        self._list(self._listed() | {"partition_stats"})

    def _listed(self) -> set[str]:
        found = set(read_properties(self._storage).get(keys.METADATA_PARTITIONS, "").split(","))
        if COLUMN_STATS not in found:
            raise LeftOutError("the table keeps no column stats")
        return found

    def _list(self, names: set[str]) -> None:
        update_properties(self._storage, {keys.METADATA_PARTITIONS: ",".join(sorted(names))})


STATS_CHANGES: Final[Mapping[str, Callable[[ForeignStats], None]]] = {
    "off": ForeignStats.off,
    "columns": ForeignStats.columns,
    "anew": ForeignStats.anew,
    "partition": ForeignStats.partition,
}
