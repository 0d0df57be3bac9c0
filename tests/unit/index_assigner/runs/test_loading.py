"""What a load leaves when the disk refuses it, or when it is given up."""

from __future__ import annotations

import errno
import threading
from collections.abc import Generator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.unit.index_assigner.full_disk import created_on_full_disk
from tidemark.index_assigner.runs.files import RunFolder
from tidemark.index_assigner.runs.loading import Load, SteppedLoads, ThreadedLoads

PARTS = 3


class Bytes(Load):
    """Writes so many bytes in each part."""

    def __init__(self, folder: RunFolder, name: str, part_bytes: int) -> None:
        super().__init__(folder, name, 1 << 30)
        self._part_bytes = part_bytes
        self.began, self.may_go_on = threading.Event(), threading.Event()

    def _fill(self, file: BinaryIO) -> Generator[tuple[int, int], None, None]:
        for number in range(PARTS):
            file.write(bytes(self._part_bytes))
            yield 1, self._part_bytes * (number + 1)
            self.began.set()
            assert self.may_go_on.wait(180)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


@pytest.fixture
def full(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setattr(RunFolder, "create", created_on_full_disk)
    return folder


@pytest.mark.parametrize("part_bytes", [1, 1 << 20], ids=["refused at its end", "refused at once"])
def test_a_load_that_a_full_disk_refuses_leaves_no_file_and_says_why(
    full: RunFolder, part_bytes: int
) -> None:
    load = Bytes(full, "one", part_bytes)
    load.may_go_on.set()
    while load.step():
        pass
    assert isinstance(load.error, OSError)
    assert load.error.errno == errno.ENOSPC
    assert list(full.path.iterdir()) == []


@pytest.mark.parametrize("steps", range(PARTS))
def test_a_load_that_is_given_up_on_a_full_disk_leaves_no_file_and_no_error(
    full: RunFolder, steps: int
) -> None:
    """What it wrote is still in memory: closing the file is the first that the disk hears of it."""
    load, loads = Bytes(full, "one", 1), SteppedLoads()
    load.may_go_on.set()
    loads.start(load)
    for _ in range(steps):
        assert loads.take_ended() is None
    loads.end()
    assert not loads.is_busy
    assert list(full.path.iterdir()) == []


def test_a_load_on_a_thread_that_is_given_up_on_a_full_disk_leaves_no_file_and_no_error(
    full: RunFolder,
) -> None:
    load, loads = Bytes(full, "one", 1), ThreadedLoads()
    loads.start(load)
    assert load.began.wait(180)
    loads.end()
    load.may_go_on.set()
    loads.close()
    assert not loads.is_busy
    assert loads.take_ended() is None
    assert list(full.path.iterdir()) == []


class EndsOnceAsked:
    """A thread that is alive for whoever asks first, and has ended behind the answer."""

    def __init__(self, thread: threading.Thread, load: Bytes) -> None:
        self._thread, self._load = thread, load

    def is_alive(self) -> bool:
        was_alive = self._thread.is_alive()
        self._load.may_go_on.set()
        self._thread.join(180)
        return was_alive

    def join(self) -> None:
        self._thread.join()


def test_a_load_that_was_given_up_is_not_taken_whenever_its_thread_ends(folder: RunFolder) -> None:
    """Nobody would publish it, or delete its file."""
    load, loads = Bytes(folder, "one", 1), ThreadedLoads()
    loads.start(load)
    assert load.began.wait(180)
    assert loads._thread is not None
    loads._thread = EndsOnceAsked(loads._thread, load)  # type: ignore[assignment]
    loads.end()
    assert [loads.take_ended() for _ in range(3)] == [None] * 3
    assert not loads.is_busy
    assert list(folder.path.iterdir()) == []
    loads.close()
