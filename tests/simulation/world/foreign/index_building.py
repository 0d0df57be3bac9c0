"""How the engine builds the secondary index: the steps of Spark's CREATE INDEX, between
any two of which whoever builds it may die, or anybody else may act; and what an indexer leaves of an index of
another kind, when it dies. And how a write of the engine builds what a restore dropped.

CREATE INDEX builds from the rows as they are at its indexing instant. Then it waits for writes that are
pending and have a heartbeat; what is completed by that time and has a deltacommit in the metadata table it
passes over, so a commit of ours that completed meanwhile is in no index.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.simulation.world.checkers.judge import Look
from tests.simulation.world.checkers.model import Row
from tests.simulation.world.checkers.secondary import NAME
from tests.simulation.world.foreign import instants
from tests.simulation.world.foreign.bench import Bench
from tests.simulation.world.foreign.listed_indexes import (
    BUILDING,
    LISTED,
    define,
    definitions,
    name_in,
    named_in,
)
from tests.simulation.world.foreign.secondary_entries import FOLDER, entries_of, logs_of
from tests.simulation.world.foreign.writes import LeftOutError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

_GROUPS: Final = 2
_INDEXING: Final = "indexing"
_COUNTER: Final = "00000000000000"
_WRITES: Final = ("commit", "deltacommit", "replacecommit", "clustering", "compaction")


class IndexBuilding:
    """``writes()``: whether a write of the engine's own is in flight. ``built_anew``: how often a write built
    what a restore had dropped. ``died_writing``: how often a builder died whose deltacommit of the metadata
    table was pending, ``rolled_back``: how often the engine ended one. Raises LeftOutError.
    """

    def __init__(self, bench: Bench, writes: Callable[[], bool]) -> None:
        self._bench, self._storage, self._writes, self._is_dropped = bench, bench.storage, writes, False
        self.built_anew = self.rolled_back = self.died_writing = 0
        self._left: list[Callable[[Look], None]] = []
        self._rows: Mapping[str, Row] = {}
        self._instant = self._build = ""

    @property
    def is_on(self) -> bool:
        """Whether somebody is building one, and lives."""
        return bool(self._left)

    def is_left(self) -> bool:
        """Whether a dead one's is defined or named as being built, and not whole."""
        if self.is_on or not self._storage.exists(".hoodie/hoodie.properties"):
            return False
        building = named_in(self._storage, BUILDING)
        is_listed = NAME in named_in(self._storage, LISTED) - building
        return bool(building - {NAME}) or (NAME in definitions(self._storage) and not is_listed)

    def leave(self, look: Look, name: str) -> None:
        """Its indexer names an index of another kind as being built, and dies."""
        instant = self._bench.instant(look)
        instants.request(self._storage, instant, _INDEXING)
        instants.start(self._storage, instant, _INDEXING)
        name_in(self._storage, BUILDING, named_in(self._storage, BUILDING) | {name})

    def dropped(self) -> None:
        """A restore dropped the index. Its definition is still there."""
        self._is_dropped = True

    def rebuild(self) -> None:
        """A write begins. What a restore dropped it builds first, in the same hold of the lock, of all rows
        that are there, unless somebody took the definition out. (What a write makes of a definition that a
        dead builder left is not known here.)
        """
        is_dropped, self._is_dropped = self._is_dropped, False
        is_listed = NAME in named_in(self._storage, LISTED)
        if not is_dropped or is_listed or NAME not in definitions(self._storage):
            return
        look = self._bench.look()
        self._rows = dict(look.content.rows)
        self._write(look)
        self._commit(look)
        self._list(look)
        self.built_anew += 1

    def roll_back(self) -> None:
        """Who writes to the metadata table first rolls back what is pending there: the build of somebody who
        died. (Hudi takes its log files out of all folders. What that does to an index of an archived build of
        the same number is not known here.)
        """
        for instant, found in sorted(self._bench.look().metadata.hudi.instants.items()):
            if instant.startswith(_COUNTER) and found.completion is None:
                for path in self._bench.metadata_files_of(instant):
                    if path.startswith(FOLDER):
                        self._storage.delete(path)
                instants.delete(self._storage, instant, instants.METADATA)
                self.rolled_back += 1

    def act(self, look: Look, what: str) -> None:
        """``begin``, and takes the first step; ``next``; ``finish``: all that are left; ``die``."""
        if what == "die":
            self._check_on()
            self.died_writing += self._left[0] == self._commit
            self._left = []
        elif what == "begin":
            self._begin(look)
        elif what == "next":
            self._check_on()
            self._step(look)
        else:
            self._check_on()
            while self._left:
                self._step(self._bench.look())

    def _begin(self, look: Look) -> None:
        if self.is_on or NAME in definitions(self._storage) or NAME in named_in(self._storage, LISTED):
            raise LeftOutError("there is one, or somebody builds it")
        if self._writes():
            raise LeftOutError("a write of its own is in flight")
        self._left = [
            self._define, self._request, self._start, self._name, self._write, self._commit, self._list,
            self._wait, self._end,
        ]  # fmt: skip
        self._step(look)

    def _check_on(self) -> None:
        if not self.is_on:
            raise LeftOutError("nobody builds an index")

    def _step(self, look: Look) -> None:
        self._left[0](look)
        self._left = self._left[1:]

    # ------------------------------------------------------------ the steps

    def _define(self, _: Look) -> None:
        define(self._storage, NAME, (self._bench.indexed,), "secondary_index", "identity")

    def _request(self, look: Look) -> None:
        self._instant = self._bench.instant(look)
        instants.request(self._storage, self._instant, _INDEXING)
        self._rows = dict(look.content.rows)

    def _start(self, _: Look) -> None:
        instants.start(self._storage, self._instant, _INDEXING)

    def _name(self, _: Look) -> None:
        name_in(self._storage, BUILDING, named_in(self._storage, BUILDING) | {NAME})

    def _write(self, look: Look) -> None:
        """The partition, by an instant of the metadata table alone; what a former builder left of it goes."""
        storage = self._storage
        self.roll_back()
        storage.delete_tree(FOLDER)
        instant = self._build = instants.build_instant(look.metadata.hudi.instants)
        logs = logs_of(storage, instant, entries_of(self._bench.indexed, self._rows), (), _GROUPS)
        for group in set(range(_GROUPS)) - {int(log.shard) for log in logs}:
            name = LogFileName(f"{NAME.replace('_', '-')}-{group:04d}-0", instant, 1, "0-0-0")
            storage.create(join_path(FOLDER, str(name)), empty_log(instant))
        storage.replace(f"{FOLDER}/.hoodie_partition_metadata", b"commitTime=0\npartitionDepth=1\n")
        instants.request(storage, instant, "deltacommit", root=instants.METADATA)
        instants.start(storage, instant, "deltacommit", root=instants.METADATA)

    def _commit(self, look: Look) -> None:
        """It completes above all that is there."""
        done = encode_commit_metadata(CommitMetadata())
        completion = self._bench.built_at(look)
        instants.complete(self._storage, self._build, "deltacommit", completion, done, instants.METADATA)

    def _list(self, _: Look) -> None:
        name_in(self._storage, LISTED, named_in(self._storage, LISTED) | {NAME})

    def _wait(self, look: Look) -> None:
        """For all that was pending when it began."""
        storage = self._storage
        for each in look.timeline.hudi.pending(*_WRITES):
            alive = storage.exists(instants.heartbeat(each.requested))
            if each.requested < self._instant and alive:
                raise LeftOutError(f"{each.name} is pending, and its writer lives")
        name_in(storage, BUILDING, named_in(storage, BUILDING) - {NAME})

    def _end(self, look: Look) -> None:
        instants.complete(self._storage, self._instant, _INDEXING, self._bench.instant(look), b"")
