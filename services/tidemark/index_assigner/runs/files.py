"""Run files on local disk: a new one is under a temporary name until it is whole and synced.

Ranges of a published file can be given back to the disk (`punch`): a hole is left there. Nothing says so but
the hole itself, which whoever opens the file looks for (`holes`): a loss of power leaves the hole, the bytes,
or a smaller hole.

The order in which a run reaches the disk: the file's bytes (`finish`, in the loader's thread), then its name
and the folder (`publish`). So a file with a final name is whole, also after a loss of power; one with a
temporary name is left over, and is deleted at the next start. A file is named after its shard and the shard's
life; a change run has a random name of its own as well.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from tidemark.hudi_format.model import ShardId
from tidemark.index_assigner.runs.errors import RunDamagedError, RunRefusedError

RUN_SUFFIX: Final = ".run"
PART_SUFFIX: Final = ".part"
ASIDE_SUFFIX: Final = ".damaged"
_SHARD_DIGITS: Final = 5
_CHANGE_MARK: Final = "+"
_NAME: Final = re.compile(rf"\d{{{_SHARD_DIGITS}}}-.+")
_NOTHING_LEFT: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_SECTOR: Final = 512  # the unit of `st_blocks`


def run_name(shard: ShardId, life: str) -> str:
    """The name of the run of a shard's life, without its ending."""
    return f"{shard:0{_SHARD_DIGITS}d}-{life}"


def change_name(shard: ShardId, life: str, change: str) -> str:
    """The name of a change run, without its ending."""
    return f"{run_name(shard, life)}{_CHANGE_MARK}{change}"


def is_change(name: str) -> bool:
    """Whether this is the name of a change run."""
    return _CHANGE_MARK in name


def shard_of(name: str) -> ShardId:
    """The shard of a run, by its name."""
    return ShardId(int(name[:_SHARD_DIGITS]))


def remove_copies(folder: Path, count: int) -> int:
    """Deletes so many of the files that may vanish, or all of them; returns how many it were. Unfinished and
    damaged ones go first, then copies of base files, the largest first; change runs stay.
    """
    files = [file for file in folder.glob("*") if _NAME.match(file.name) and _may_vanish(file)]
    chosen = sorted(files, key=lambda file: (file.suffix == RUN_SUFFIX, -(_taken(file) or 0)))[:count]
    for file in chosen:
        file.unlink(missing_ok=True)
    return len(chosen)


def _may_vanish(file: Path) -> bool:
    is_copy = file.suffix == RUN_SUFFIX and not is_change(file.name)
    return is_copy or file.suffix in (PART_SUFFIX, ASIDE_SUFFIX)


class RunFolder:
    """The folder of the run files of one assigner. Whoever uses it holds the lock of `state.path`.

    It is listed and measured once. A partitioned index has a file for each of thousands of units, and each
    opening and publication asks for names and sizes.
    """

    def __init__(self, path: Path) -> None:
        """Makes the folder, and deletes what was not published before the last process ended."""
        self.path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in path.glob(f"*{PART_SUFFIX}"):
            part.unlink()
        self._published: dict[str, int] = {}
        self._published_bytes = 0
        self._of_shard: defaultdict[str, set[str]] = defaultdict(set)
        for name in self._there(RUN_SUFFIX):
            self._measure(name)
        aside = self._there(ASIDE_SUFFIX)
        self._aside = {name: _taken(path / f"{name}{ASIDE_SUFFIX}") or 0 for name in aside}

    def _there(self, suffix: str) -> list[str]:
        """Files of another name are somebody else's."""
        names = (file.name.removesuffix(suffix) for file in self.path.glob(f"*{suffix}"))
        return sorted(filter(_NAME.fullmatch, names))

    def _measure(self, name: str) -> None:
        """Takes note of what a published file takes on the disk now, or that it is gone."""
        taken = _taken(self.path / f"{name}{RUN_SUFFIX}")
        self._published_bytes += (taken or 0) - self._published.pop(name, 0)
        if taken is None:
            self._of_shard[name[:_SHARD_DIGITS]].discard(name)
        else:
            self._published[name] = taken
            self._of_shard[name[:_SHARD_DIGITS]].add(name)

    def create(self, name: str) -> BinaryIO:
        """A new file under its temporary name, open for writing."""
        return (self.path / f"{name}{PART_SUFFIX}").open("wb")

    def finish(self, file: BinaryIO) -> None:
        """Makes the bytes of the written file durable, and closes it."""
        file.flush()
        os.fsync(file.fileno())
        file.close()

    def publish(self, name: str) -> None:
        """Gives a finished file its final name, durably."""
        os.replace(self.path / f"{name}{PART_SUFFIX}", self.path / f"{name}{RUN_SUFFIX}")
        self._measure(name)
        self._sync()

    def give_up(self, file: BinaryIO, name: str) -> None:
        """Closes a file that is not finished, and deletes it."""
        # Closing writes what is left in memory, which a full disk refuses once more: that changes nothing.
        with contextlib.suppress(OSError):
            file.close()
        self.discard(name)

    def discard(self, name: str) -> None:
        """Deletes a file that is not published; nothing happens where there is none."""
        (self.path / f"{name}{PART_SUFFIX}").unlink(missing_ok=True)

    def remove(self, name: str) -> None:
        """Deletes a published file; nothing happens where there is none."""
        (self.path / f"{name}{RUN_SUFFIX}").unlink(missing_ok=True)
        self._measure(name)

    def punch(self, name: str, ranges: Sequence[tuple[int, int]]) -> bool:
        """Gives the whole pages in these ranges [begin, end) of a published file back to the disk. False: its
        file system cannot do that, or the file is gone.
        """
        try:
            descriptor = os.open(self.path / f"{name}{RUN_SUFFIX}", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            with mmap.mmap(descriptor, 0) as mapping:
                for begin, end in ranges:
                    first = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
                    behind = end // mmap.PAGESIZE * mmap.PAGESIZE
                    if behind > first:
                        mapping.madvise(mmap.MADV_REMOVE, first, behind - first)
        except OSError:
            return False
        finally:
            os.close(descriptor)
            self._measure(name)
        return True

    def set_aside(self, name: str) -> None:
        """Renames a damaged file, so that it is used no more and can be looked at."""
        file = self.path / f"{name}{RUN_SUFFIX}"
        if file.exists():
            os.replace(file, self.path / f"{name}{ASIDE_SUFFIX}")
            self._aside[name] = self._published.get(name, 0)
            self._measure(name)
            self._sync()

    def remove_damaged(self) -> None:
        """Deletes the files that were set aside."""
        for name in self._aside:
            (self.path / f"{name}{ASIDE_SUFFIX}").unlink(missing_ok=True)
        self._aside.clear()

    def names(self) -> list[str]:
        """The names of published files, without their ending."""
        return sorted(self._published)

    def names_of(self, shard: ShardId) -> list[str]:
        """Those of one shard."""
        return sorted(self._of_shard.get(f"{shard:0{_SHARD_DIGITS}d}", ()))

    def damaged(self) -> list[str]:
        """The names of files that were set aside, without their ending. Whoever looked at one may delete
        it.
        """
        there = {name for name in self._aside if (self.path / f"{name}{ASIDE_SUFFIX}").exists()}
        self._aside = {name: taken for name, taken in self._aside.items() if name in there}
        return sorted(there)

    def size(self, name: str) -> int:
        """Bytes of a published file, 0 where there is none."""
        try:
            return (self.path / f"{name}{RUN_SUFFIX}").stat().st_size
        except FileNotFoundError:
            return 0

    def disk_bytes(self) -> int:
        """Bytes that published files and damaged ones take on the disk, holes left out."""
        return self._published_bytes + sum(self._aside.values())

    def taken_bytes(self, names: Iterable[str]) -> int:
        """Bytes that these published files take on the disk, holes left out."""
        return sum(self._published.get(name, 0) for name in names)

    def free_bytes(self) -> int:
        """Bytes that are free on the disk for this process's user; `sys.maxsize` where the file system does
        not say.
        """
        disk = os.statvfs(self.path)
        return disk.f_bavail * disk.f_frsize if disk.f_blocks else sys.maxsize

    def open(self, name: str) -> int:
        """A descriptor of a published file for reading. Raises RunDamagedError when it is not there or cannot
        be opened, RunRefusedError when the system has no descriptor left.
        """
        try:
            return os.open(self.path / f"{name}{RUN_SUFFIX}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise RunDamagedError(f"{name}{RUN_SUFFIX} is not in {self.path}") from error
        except OSError as error:
            refused = error.errno in _NOTHING_LEFT
            kind = RunRefusedError if refused else RunDamagedError
            raise kind(f"{name}{RUN_SUFFIX} cannot be opened: {error}") from error

    def _sync(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _taken(file: Path) -> int | None:
    """Bytes on the disk; None: the file is gone."""
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    return min(stat.st_size, stat.st_blocks * _SECTOR)


def holes(descriptor: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges [begin, end) of a file of that size that take no place on the disk; none where the
    file system does not say.
    """
    at = 0
    while at < size:
        try:
            begin = os.lseek(descriptor, at, os.SEEK_HOLE)
        except OSError:
            return
        if begin >= size:
            return
        try:
            at = os.lseek(descriptor, begin, os.SEEK_DATA)
        except OSError:
            at = size
        yield begin, at
