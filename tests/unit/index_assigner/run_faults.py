"""What may happen to RocksDB and run files in a test: the process ends at any step of a load, writes are
lost with the power, deleted files and parts of files come back, bytes change.

A file system gives back whole pages, and the run files of a test are smaller. So holes are kept here.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from testing.dict_rocks import DictRocks
from tidemark.index_assigner.runs import run
from tidemark.index_assigner.runs.files import PART_SUFFIX, RUN_SUFFIX, RunFolder

_STEPS = ("create", "finish", "publish", "remove", "punch")


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
        # By file: begin and end of each hole, and what was there, which a loss of power may bring back.
        self._holes: defaultdict[Path, list[tuple[int, int, bytes]]] = defaultdict(list)
        self._killed = False
        self.kill_in: int | None = None

    def rocks(self, path: Path, identity: str, memory: int) -> Any:
        """Opens the RocksDB of a folder, as a new process does."""
        self._killed = False
        return KeptRocks(path, self._rocks.setdefault(path, [{}]), self._may_end)

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on, all run folders are watched."""
        monkeypatch.setattr(RunFolder, "punch", self._punch)
        monkeypatch.setattr(run, "holes", self._holes_of)
        size = RunFolder.disk_bytes
        monkeypatch.setattr(RunFolder, "disk_bytes", lambda folder: size(folder) - self._given_back(folder))
        for name in _STEPS:
            monkeypatch.setattr(RunFolder, name, self._watched(name, getattr(RunFolder, name)))
        discard = RunFolder.discard
        monkeypatch.setattr(
            RunFolder, "discard", lambda folder, name: None if self._killed else discard(folder, name)
        )

    def _punch(self, folder: RunFolder, name: str, ranges: Sequence[tuple[int, int]]) -> bool:
        """A file system that takes every byte back, or now and then none."""
        if self._draw.random() < 0.1:
            return False
        file = folder.path / f"{name}{RUN_SUFFIX}"
        for begin, end in ranges:
            data = file.read_bytes()
            self._holes[file].append((begin, end, data[begin:end]))
            self._write(file, begin, bytes(end - begin))
        return True

    def _write(self, file: Path, at: int, data: bytes) -> None:
        with file.open("r+b") as opened:
            opened.seek(at)
            opened.write(data)

    def _holes_of(self, descriptor: int, size: int) -> Iterator[tuple[int, int]]:
        file = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        yield from sorted((begin, end) for begin, end, _ in self._holes[file] if begin < min(end, size))

    def _given_back(self, folder: RunFolder) -> int:
        files = [file for file in self._holes if file.parent == folder.path and file.exists()]
        return sum(end - begin for file in files for begin, end, _ in self._holes[file])

    def _lose_holes(self, folder: Path) -> None:
        """Each hole is there, or not, or a smaller one."""
        for file in [file for file in self._holes if file.is_relative_to(folder) and file.exists()]:
            left = []
            for begin, end, data in self._holes[file]:
                middle = self._draw.choice([begin, end, self._draw.randint(begin, end)])
                self._write(file, begin, data[: middle - begin])
                left.append((middle, end, data[middle - begin :]))
            self._holes[file] = left

    def _watched(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(folder: RunFolder, *arguments: Any) -> Any:
            self._may_end()
            if name == "remove":
                file = folder.path / f"{arguments[0]}{RUN_SUFFIX}"
                if file.exists():
                    self._deleted[file] = file.read_bytes()
            done = real(folder, *arguments)
            if name == "publish":
                self._holes.pop(folder.path / f"{arguments[0]}{RUN_SUFFIX}", None)
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
        self._lose_holes(folder)
        contents = self._rocks.get(folder, [{}])
        del contents[self._draw.randrange(len(contents)) + 1 :]
        del contents[:-1]
        for part in folder.glob(f"runs/*{PART_SUFFIX}"):
            part.write_bytes(part.read_bytes()[: self._draw.randrange(99)])
        for file, data in self._deleted.items():
            if file.is_relative_to(folder) and self._draw.random() < 0.7:
                file.write_bytes(data)
        self._deleted = {f: data for f, data in self._deleted.items() if not f.is_relative_to(folder)}

    def lose_rocks(self, folder: Path) -> None:
        """The folder's RocksDB is empty; run files are as they were."""
        self._rocks[folder][:] = [{}]

    def flip(self, folder: Path, below: Mapping[str, int] | None = None) -> bool:
        """Changes a byte of a run file, also of one that is mapped; False where there is none.

        ``below``: the runs of which one is chosen, and how many bytes of each; None: of any, wherever.
        """
        files = sorted(folder.glob(f"runs/*{RUN_SUFFIX}"))
        if below is not None:
            files = [file for file in files if below.get(file.stem)]
        if not files:
            return False
        file = self._draw.choice(files)
        data = file.read_bytes()
        at = self._draw.randrange(len(data) if below is None else below[file.stem])
        # In place: a file that is cut off for a moment would end the process that has it mapped.
        self._write(file, at, bytes([data[at] ^ 1 << self._draw.randrange(8)]))
        return True
