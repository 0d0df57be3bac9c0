"""A model of the assigner's RocksDB folders: what a killed process wrote stays, a machine's crash takes the
newest batches back, a folder that a living process holds is not handed out twice.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from testing.dict_rocks import DictRocks
from tests.simulation.world.process import Process
from tests.unit.index_assigner.index_world import memory_folder
from tidemark.index_assigner.index.errors import CacheInUseError
from tidemark.index_assigner.index.rocks import RUNS_FOLDER

_BATCHES_KEPT: Final = 4
_FOLDERS_MAX: Final = 8


@dataclass
class Folder:
    """One cache folder. ``before``: contents before the newest batches, oldest first. ``home``: for run
    files, which are real ones.
    """

    identity: str
    content: dict[bytes, bytes] = field(default_factory=dict)
    before: list[dict[bytes, bytes]] = field(default_factory=list)
    holder: Process | None = None
    home: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(dir=memory_folder())))

    def __post_init__(self) -> None:
        weakref.finalize(self, shutil.rmtree, self.home, ignore_errors=True)

    def lose(self, batches: int) -> None:
        """The newest batches had not reached the disk."""
        for _ in range(min(batches, len(self.before))):
            self.content = self.before.pop()


class Disk:
    """The folders below one `state.path`."""

    def __init__(self) -> None:
        self.folders: list[Folder] = []

    def open(self, process: Process, identity: str) -> LightRocks:
        """The first folder that nobody holds, as `wiring.open_cache` looks for it."""
        for each in self.folders:
            if each.holder is None or not each.holder.alive:
                if each.identity != identity:
                    each.identity, each.content, each.before = identity, {}, []
                    shutil.rmtree(each.home / RUNS_FOLDER, ignore_errors=True)
                each.holder = process
                return LightRocks(each, process)
        if len(self.folders) >= _FOLDERS_MAX:
            raise CacheInUseError("all folders are in use")
        self.folders.append(Folder(identity, holder=process))
        return LightRocks(self.folders[-1], process)


class LightRocks(DictRocks):
    """Takes the place of `RocksTier`: a process may be frozen or die at each read and each batch."""

    def __init__(self, folder: Folder, process: Process) -> None:
        self._folder, self.path = folder, folder.home
        self._process = process

    @property
    def content(self) -> dict[bytes, bytes]:
        return self._folder.content

    def replace(self, content: dict[bytes, bytes]) -> None:
        folder = self._folder
        folder.before = [*folder.before[1 - _BATCHES_KEPT :], folder.content]
        folder.content = content

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        self._process.place("rocks.get")
        return super().get_many(keys)

    def write(
        self,
        puts: Iterable[tuple[list[bytes], list[bytes]]],
        deletes: Iterable[bytes] = (),
        drop_ranges: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self._process.place("rocks.write")
        super().write(puts, deletes, drop_ranges)

    def sync(self) -> None:
        self._folder.before = []

    def close(self) -> None:
        self._folder.holder = None
