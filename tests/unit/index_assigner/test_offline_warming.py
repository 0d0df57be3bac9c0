"""`tidemark index warm` without an assigner loads the folder that the next assigner takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testing.clock import ManualClock
from testing.ids import SeededIds
from testing.kafka import MemoryBroker, MemoryKafkaClient
from tests.unit.index_assigner.index_world import LANES, MANY, Assigner, DataTable
from tests.unit.table_files import write_config
from tidemark.config import TableConfigFile, load_config
from tidemark.epoch_protocol.state import FoldState
from tidemark.index_assigner import offline
from tidemark.index_assigner.assign_stage import open_first_cache, table_identity
from tidemark.index_assigner.index.errors import CacheInUseError
from tidemark.index_assigner.index.ports import Tier, WarmProgress
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.kafka.ports import TopicSpec


class TickingClock(ManualClock):
    """Every question takes half a second."""

    def monotonic_s(self) -> float:
        self.advance(0.5)
        return super().monotonic_s()


class World:
    """A table of which a fold has seen all that there is."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table = DataTable()
        self.table.commit_rows(MANY)
        self.table.compact_index(clean=True)
        loaded = load_config(write_config(folder))
        index = replace(loaded.table.index, lanes=LANES)
        self.config: TableConfigFile = replace(loaded, table=replace(loaded.table, index=index))
        self.clock = TickingClock()
        self.client = MemoryKafkaClient(MemoryBroker(self.clock, SeededIds(1)))
        names = TopicNames(self.config.table.name)
        self.client.admin().create_topics([TopicSpec(names.ledger, 1), TopicSpec(names.epochs, 1)])
        self.said: list[WarmProgress] = []
        monkeypatch.setattr(FoldState, "known", lambda _: self.table.known())

    def warm(self) -> WarmProgress:
        return offline.warm_index(
            self.config, self.table.storage, self.client, self.clock, SeededIds(2), self.said.append
        )


def test_the_next_assigner_answers_from_runs_without_reading_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)
    done = world.warm()
    assert done == WarmProgress(world.table.shards, world.table.shards, 0, len(MANY), len(MANY))
    assert world.said
    assert world.said[-1].entries <= len(MANY)
    runs = {path: path.stat().st_ino for path in folder_of_runs(world).iterdir()}
    assert world.warm() == done
    assert {path: path.stat().st_ino for path in folder_of_runs(world).iterdir()} == runs, "loaded again"
    folder = world.config.state.path / "index-0"
    next_one = Assigner(world.table, folder, ordered=False, make_rocks=_same_identity(world))
    next_one.open(world.table.known())
    found = next_one.ask([*MANY, "new"])
    assert {key: found[key].group for key in MANY} == {key: group for key, (group, _) in MANY.items()}
    assert {found[key].tier for key in MANY} == {Tier.RUN}
    assert next_one.index.stats()["blocks_read"] == 0
    next_one.close()


def test_it_refuses_a_folder_that_an_assigner_has(tmp_path, monkeypatch) -> None:
    world = World(tmp_path, monkeypatch)
    held = open_first_cache(world.config.state.path, "t 3", 1 << 20)
    with pytest.raises(CacheInUseError):
        world.warm()
    held.close()


def test_an_interrupt_leaves_whole_runs_and_a_folder_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path, monkeypatch)

    def interrupt(progress: WarmProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        offline.warm_index(
            world.config, world.table.storage, world.client, world.clock, SeededIds(2), interrupt
        )
    assert list(folder_of_runs(world).glob("*.part")) == []
    assert world.warm().loaded == world.table.shards


def folder_of_runs(world: World) -> Path:
    return world.config.state.path / "index-0" / "runs"


def _same_identity(world: World):
    def make(folder: Path, _: str, memory_bytes: int):
        identity = table_identity(world.table.storage, SeededIds(3))
        return open_first_cache(folder.parent, f"{identity} {world.table.shards}", memory_bytes)

    return make
