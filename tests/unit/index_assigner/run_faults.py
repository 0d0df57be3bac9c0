"""What may happen to RocksDB and run files in a test: the process ends at any step of a load, writes are lost
with the power, deleted files come back, bytes change.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from testing.dict_rocks import DictRocks
from tidemark.index_assigner.runs.files import PART_SUFFIX, RUN_SUFFIX, RunFolder

_STEPS = ("create", "finish", "publish", "remove")


class KilledError(BaseException):
    """The process ended here."""


class KeptRocks(DictRocks):
    """A dictionary for each folder, and its contents since the last sync."""

    def __init__(self, path: Path, contents: list[dict[bytes, bytes]], may_end: Callable[[], None]) -> None:
        self.path, self._contents, self._may_end = path, contents, may_end
        path.mkdir(parents=True, exist_ok=True)

    @property
    def content(self) -> dict[bytes, bytes]:
        return self._contents[-1]

    def replace(self, content: dict[bytes, bytes]) -> None:
        self._contents.append(content)

    def sync(self) -> None:
        self._may_end()
        del self._contents[:-1]

    def close(self) -> None:
        return None


class RunFaults:
    """All folders of a test, and what is to happen to them. ``kill_in``: the process ends before or after so
    many more steps that write run files; None: it goes on.
    """

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._rocks: dict[Path, list[dict[bytes, bytes]]] = {}
        # Deleted files whose deletion may not have reached the disk.
        self._deleted: dict[Path, bytes] = {}
        self._killed = False
        self.kill_in: int | None = None

    def rocks(self, path: Path, identity: str, memory: int) -> Any:
        """Opens the RocksDB of a folder, as a new process does."""
        self._killed = False
        return KeptRocks(path, self._rocks.setdefault(path, [{}]), self._may_end)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on, all run folders are watched."""
        for name in _STEPS:
            monkeypatch.setattr(RunFolder, name, self._watched(name, getattr(RunFolder, name)))
        discard = RunFolder.discard
        monkeypatch.setattr(
            RunFolder, "discard", lambda folder, name: None if self._killed else discard(folder, name)
        )

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(folder: RunFolder, *arguments: Any) -> Any:
            self._may_end()
            if name == "remove":
                file = folder.path / f"{arguments[0]}{RUN_SUFFIX}"
                if file.exists():
                    self._deleted[file] = file.read_bytes()
            done = real(folder, *arguments)
            if name == "publish":
                self._deleted = {f: data for f, data in self._deleted.items() if f.parent != folder.path}
            if name != "create":
                self._may_end()
            return done

        return step

    def _may_end(self) -> None:
        if self.kill_in is None:
            return
        self.kill_in -= 1
        if self.kill_in < 0:
            self.kill_in, self._killed = None, True
            raise KilledError

    def lose_power(self, folder: Path) -> None:
        """The machine of the folder's process stops: what was not synced is lost, or partly so."""
        contents = self._rocks.get(folder, [{}])
        del contents[self._draw.randrange(len(contents)) + 1 :]
        del contents[:-1]
        for part in folder.glob(f"runs/*{PART_SUFFIX}"):
            part.write_bytes(part.read_bytes()[: self._draw.randrange(99)])
        for file, data in self._deleted.items():
            if file.is_relative_to(folder) and self._draw.random() < 0.7:
                file.write_bytes(data)
        self._deleted = {f: data for f, data in self._deleted.items() if not f.is_relative_to(folder)}

    def flip(self, folder: Path) -> bool:
        """Changes a byte of a run file that no process has mapped; False where there is none."""
        files = sorted(folder.glob(f"runs/*{RUN_SUFFIX}"))
        if not files:
            return False
        file = self._draw.choice(files)
        data = bytearray(file.read_bytes())
        data[self._draw.randrange(len(data))] ^= 1 << self._draw.randrange(8)
        file.write_bytes(data)
        return True
