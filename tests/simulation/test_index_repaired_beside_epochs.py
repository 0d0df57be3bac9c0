"""`tidemark index repair` beside a coordinator that runs. Another engine's write that knew nothing of the
index left it without entries of all rows; commits of ours come at every step of the repair, and it dies at
every step. Afterwards the index has exactly the entries of the rows, by a reader and a rule of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.simulation.scripted_tagger import SCHEMA
from tests.simulation.test_index_made_beside_epochs import (
    FOLDER,
    INDEX,
    PLACES,
    CommandClock,
    Killed,
    Life,
    Nth,
    Watched,
    completed,
    entries,
    with_values,
)
from tidemark.commit_coordinator.offline.secondary_repair import RepairedIndex, SecondaryRepair
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import TableType, read_table_config
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT


class Wrong(Life):
    """A table whose index has none of the entries of its rows, and one for each value from before."""

    def __init__(self, folder: Path, table_type: TableType = TableType.MERGE_ON_READ) -> None:
        super().__init__(folder, table_type)
        self.make()
        self.epoch()
        self.run_until_idle()
        self.engine.rewrite(SCHEMA, lambda rows: with_values(rows, next(self.numbers)))
        self._rewind()
        self.build = self.of_build()
        rows = {f"{each['v']}${key}" for key, each in self.path.rows().items()}
        assert not rows & entries(self.storage)

    def _rewind(self) -> None:
        """The coordinator sees the write; what was tagged before counts no more."""
        self.tag()
        for _ in range(10):
            if self.path.state().generation:
                return
            self.step()
        raise AssertionError("no rewind")

    @property
    def committed(self) -> int:
        """The last epoch that is committed."""
        return int(self.path.state().committed.epoch)

    def tag(self) -> None:
        """Also after a rewind, which each write of others brings."""
        if self.path.tagger.generation != self.path.state().generation:
            self.path.tagger.claim_anew(self.path.state())
        super().tag()

    def epoch(self) -> None:
        """Behind a rewind it takes some more steps."""
        self.tag()
        for _ in range(10):
            self.step()

    def of_build(self) -> list[str]:
        """The files that a build made."""
        return [name for name in self.storage.names(FOLDER) if "_0000000" in name]

    def repair(self, look: Callable[[str, str], None] = lambda name, path: None) -> RepairedIndex:
        """The command, from its start."""
        storage = cast(Storage, Watched(self.storage, look))
        repair = SecondaryRepair(storage, CommandClock(self), self.path.ids)
        return repair.repair(INDEX, read_table_config(self.storage), SCHEMA, "v")

    def check_repaired(self) -> None:
        """The index is right, and still the one that was built."""
        self.check_later()
        assert self.of_build() == self.build

    def check_nothing_left(self) -> None:
        """Both timelines have all files of each completed instant, the metadata table has a commit of each of
        the data table's, and each log file of the index belongs to one.
        """
        of_data, of_index = (completed(self.storage, root) for root in (DATA_ROOT, METADATA_TABLE_ROOT))
        assert of_data <= of_index
        logs = {name.partition("_")[2].partition(".")[0] for name in self.storage.names(FOLDER)} - {""}
        assert {each for each in logs if each.isdigit()} <= of_index


def places_of(folder: Path) -> int:
    """How often the command changes something in the table."""
    changed: list[str] = []
    Wrong(folder).repair(lambda name, path: changed.append(path) if name in PLACES else None)
    return len(changed)


@pytest.mark.parametrize("table_type", list(TableType))
def test_each_wrong_entry_is_put_right(tmp_path: Path, table_type: TableType) -> None:
    life = Wrong(tmp_path, table_type)
    before = len(entries(life.storage))
    repaired = life.repair()
    assert (repaired.missing, repaired.extra) == (len(life.path.rows()), before)
    life.check_repaired()
    assert not life.repair().was_wrong


def test_what_is_committed_at_any_step_of_a_repair_is_in_the_index(tmp_path: Path) -> None:
    moved = 0
    for nth in range(places_of(tmp_path / "count")):
        life = Wrong(tmp_path / str(nth))
        moment, committed = Nth(nth, life.epoch), life.committed
        life.repair(moment)
        assert not moment.is_due
        moved += life.committed > committed
        life.check_repaired()
    assert moved > 3


def test_a_repair_beside_a_stream_that_never_rests_is_right(tmp_path: Path) -> None:
    life, epochs = Wrong(tmp_path), set[int]()

    def look(name: str, path: str) -> None:
        if not life.is_stepping and name in PLACES:
            life.tag()
            life.step()
        epochs.add(life.committed)

    life.repair(look)
    assert len(epochs) > 2
    life.check_repaired()


def test_a_repair_that_is_killed_at_any_step_is_repeated(tmp_path: Path) -> None:
    for nth in range(places_of(tmp_path / "count")):
        life = Wrong(tmp_path / str(nth))

        class Dying(Nth):
            def __call__(self, name: str, path: str) -> None:
                if not self.is_due:
                    raise Killed
                super().__call__(name, path)

        def die() -> None:
            raise Killed

        with pytest.raises(Killed):
            life.repair(Dying(nth, die))
        life.tag()
        life.run_until_idle()
        life.path.clock.advance(700)
        life.repair()
        life.check_nothing_left()
        # Behind a rewind: takes the lock that the killed one may have been about to give back.
        life.epoch()
        life.epoch()
        life.check_repaired()
