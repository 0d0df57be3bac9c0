"""What another engine does to the column stats of a table, each as Hudi 1.2.0 does: at the start of a write,
under the lock, and whatever becomes of the write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench
from tests.simulation.world.foreign.listed_indexes import LISTED, define, name_in, named_in
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

_STATS: Final = "column_stats"
_FOLDER: Final = f".hoodie/metadata/{_STATS}"
_META_COLUMNS: Final = ("_hoodie_commit_time", "_hoodie_partition_path", "_hoodie_record_key")
_COLUMNS: Final = ("id", "ts")
_MORE: Final = ("id", "ts", "v", "day")
_GROUPS: Final = 3


class ForeignStats:
    """Raises LeftOutError where there is nothing to be changed."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._storage = bench, bench.storage

    def change(self, look: Look, what: str) -> None:
        """``what``: one of `STATS_CHANGES`."""
        STATS_CHANGES[what](self, look)

    def off(self, _: Look) -> None:
        """It drops them: property, definition, folder."""
        self._list(self._listed() - {_STATS})
        self._define(None)
        self._storage.delete_tree(_FOLDER)

    def columns(self, _: Look) -> None:
        """Its configuration names other columns: the definition has them from here on."""
        self._listed()
        self._define(_COLUMNS)

    def more(self, _: Look) -> None:
        """Its configuration names one more column: so do the definition and the records of its writes."""
        self._listed()
        self._define(_MORE)
        self._bench.stats_of = (*_META_COLUMNS, *_MORE)

    def anew(self, look: Look) -> None:
        """It drops them and builds them anew, with other groups; its records of the files that are
        there are left out here.
        """
        listed = self._listed()
        self.off(look)
        self._build(look)
        self._define(_COLUMNS)
        self._list(listed)

    def partition(self, _: Look) -> None:
        """It switches partition_stats on beside them."""
        self._list(self._listed() | {"partition_stats"})

    def some(self, _: Look) -> None:
        """Its writes have records of these columns from here on, and nothing else tells."""
        self._listed()
        self._bench.stats_of = (*_META_COLUMNS, *_COLUMNS)

    def _build(self, look: Look) -> None:
        """The partition without records, by an instant of the metadata table alone, which completes above all
        that there is.
        """
        instant = instants.build_instant(look.metadata.hudi.instants)
        completion = self._bench.built_at(look)
        for group in range(_GROUPS):
            name = LogFileName(f"col-stats-{group:04d}-0", instant, 1, "0-0-0")
            self._storage.create(f"{_FOLDER}/{name}", empty_log(instant))
        self._storage.replace(f"{_FOLDER}/.hoodie_partition_metadata", b"commitTime=0\npartitionDepth=1\n")
        instants.request(self._storage, instant, "deltacommit", root=instants.METADATA)
        instants.start(self._storage, instant, "deltacommit", root=instants.METADATA)
        done = encode_commit_metadata(CommitMetadata())
        instants.complete(self._storage, instant, "deltacommit", completion, done, instants.METADATA)

    def _listed(self) -> set[str]:
        found = named_in(self._storage, LISTED)
        if _STATS not in found:
            raise LeftOutError("the table keeps no column stats")
        return found

    def _list(self, names: set[str]) -> None:
        name_in(self._storage, LISTED, names)

    def _define(self, columns: tuple[str, ...] | None) -> None:
        """Sets the columns of their definition; None takes it out."""
        fields = None if columns is None else (*_META_COLUMNS, *columns)
        define(self._storage, _STATS, fields, _STATS, _STATS)


STATS_CHANGES: Final[Mapping[str, Callable[[ForeignStats, Look], None]]] = {
    "off": ForeignStats.off,
    "columns": ForeignStats.columns,
    "more": ForeignStats.more,
    "anew": ForeignStats.anew,
    "partition": ForeignStats.partition,
    "some": ForeignStats.some,
}
