"""Tells the judges of needless work what a world did, with all decisions before it told first."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from tests.hudi_rules.slices import parse_data_file
from tests.simulation.world.actors import Actor, CoordinatorActor
from tests.simulation.world.checkers.judge import Judge
from tests.simulation.world.checkers.needless_services import NeedlessServices
from tests.simulation.world.checkers.needless_work import NeedlessWork
from tests.simulation.world.checkers.timelines import DATA_TIMELINE
from tests.simulation.world.storage import WatchedStorage

_WRITTEN_BY: Final = {
    "coordinator": ("coordinator",),
    "shuffle": ("shuffler",),
    "assign": ("assigner",),
    "epochs": ("coordinator",),
    "keyed": ("shuffler",),
    "ledger": ("shuffler", "assigner"),
    "dead-letter": ("shuffler", "assigner"),
    "data": ("assigner",),
    "index": ("assigner",),
    "tombstones": ("assigner",),
}
"""Transactional identity without its number, or topic's role -> kinds of processes that write with it."""
_INDEX: Final = ".hoodie/metadata/record_index"
_OF_INDEXES: Final = (".hoodie/hoodie.properties", ".hoodie/.index_defs/index.json")


class WatchedWork:
    """One per world. ``by_partition``: its record index is divided by partition."""

    def __init__(self, judge: Judge, storage: WatchedStorage, by_partition: bool = False) -> None:
        self._topics = judge.topics
        self._names: Callable[[], Collection[str]] = lambda: storage.file_names(DATA_TIMELINE)

        def index_instants() -> set[str]:
            files = map(parse_data_file, storage.file_names(_INDEX) if by_partition else ())
            return {file.instant for file in files if file is not None}

        self._work = NeedlessWork(judge.say, self._names, self._topics.since.generation, index_instants)
        self._services = NeedlessServices(judge.say)
        self._read = 0

    def follow(self) -> None:
        """What is new in the decisions."""
        self._topics.follow()
        self._take()

    def _take(self) -> None:
        decisions = self._topics.decisions
        for offset, entry in decisions[self._read :]:
            self._work.decided(offset, entry)
            self._services.decided(offset, entry)
        self._read = len(decisions)

    def foreign_stored(self, path: str) -> None:
        """Another engine wrote or deleted something there, or it is there again."""
        # Many files in a step, in which nobody else appends anything.
        self._take()
        self._services.caused()
        folder, _, name = path.rpartition("/")
        if folder == DATA_TIMELINE and name in self._names():
            self._told(lambda: self._work.foreign_completed(name))
        elif path in _OF_INDEXES:
            self._told(self._work.indexes_changed)

    def job_failed(self) -> None:
        """A job of the writer failed for good."""
        self._told(self._work.job_failed)

    def wished(self) -> None:
        """An assigner asked the coordinator for a rewind."""
        self._told(self._work.wished)

    def broker(self, is_down: bool) -> None:
        """The broker stopped or started."""
        self._told(lambda: self._work.broker(is_down))
        self._services.broker(is_down)

    def lock_was_taken(self) -> None:
        """Somebody deleted the table's lock, whoever held it."""
        self._told(self._services.caused)

    def aimed_at_seat(self, seat: str) -> None:
        """A call to storage of the seat's process will fail."""
        kind = _kind(seat)
        self._work.aimed_at(kind)
        if kind in ("coordinator", "writer"):
            self._services.refused(kind)

    def aimed_at_writers_of(self, what: str) -> None:
        """Something goes wrong with a message of this topic, or with a transaction of this identity."""
        for kind in _WRITTEN_BY[what if what in _WRITTEN_BY else what.partition("-")[0]]:
            self._work.aimed_at(kind)

    def begins(self, process: str) -> None:
        """A process was started."""
        self._told(lambda: self._work.begins(process, _kind(process)))
        self._services.begins(_kind(process))

    def ends(self, actor: Actor, error: str) -> None:
        """A process ended by itself."""
        term: int | None = None
        if isinstance(actor, CoordinatorActor) and actor.service.context is not None:
            term = actor.service.context.term
        name = actor.process.name
        self._told(lambda: self._work.ends(name, _kind(name), term, error))

    def _told(self, tell: Callable[[], None]) -> None:
        self.follow()
        tell()


def _kind(process: str) -> str:
    """Of a process or a seat: "assigner" of "assigner-1#0"."""
    return process.partition("#")[0].partition("-")[0]
