"""Storage in memory, for tests and simulation: the same contract as `LocalStorage`, without a disk.

Folders exist on their own, as on a file system, because the staging fence is about folders. All calls take
one lock, so threads may share an instance.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FencedOutError,
    FileMissingError,
    InvalidPathError,
)
from tidemark.hudi_format.storage.base import (
    FileContent,
    FileInfo,
    Listing,
    Names,
    checked_file_path,
    checked_name,
    checked_path,
    join_path,
    name_of,
    parent_of,
)


class NowMs(Protocol):
    """The part of a `Clock` that file times need."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        ...


@dataclass(slots=True)
class CountingClock:
    """Stands in when no clock is given: every look is a millisecond later, so file times are ordered and
    repeatable.
    """

    ticks: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def now_ms(self) -> int:
        return next(self.ticks)


@dataclass(slots=True)
class _Entry:
    data: bytes
    mtime_ms: int


class InMemoryStorage:
    """`Storage` over a dictionary. `clock` gives the files' times; without one they count up from 1 ms."""

    def __init__(self, base_uri: str = "/memory", clock: NowMs | None = None) -> None:
        self._base_uri = base_uri
        self._clock: NowMs = clock if clock is not None else CountingClock()
        self._files: dict[str, _Entry] = {}
        self._dirs: dict[str, int] = {}
        # Folder -> what lies in it, so that a listing does not look at every file there is.
        self._inside: dict[str, dict[str, None]] = {}
        self._mutex = threading.RLock()

    @property
    def base_uri(self) -> str:
        return self._base_uri

    def read(self, path: str) -> bytes:
        with self._mutex:
            entry = self._files.get(checked_file_path(path))
            if entry is None:
                raise FileMissingError(f"no file {path!r} under {self._base_uri}")
            return entry.data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise InvalidPathError(f"{path}: offset {offset} and length {length} must not be negative")
        return self.read(path)[offset : offset + length]

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def stat(self, path: str) -> FileInfo | None:
        with self._mutex:
            return self._info(checked_path(path))

    def _info(self, path: str) -> FileInfo | None:
        entry = self._files.get(path)
        if entry is not None:
            return FileInfo(path, name_of(path), len(entry.data), entry.mtime_ms, False)
        if path in self._dirs:
            return FileInfo(path, name_of(path), 0, self._dirs[path], True)
        return None

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def folder_problem(self, path: str) -> str | None:
        parts = checked_path(path).split("/")
        for count in range(1, len(parts) + 1):
            at = "/".join(parts[:count])
            info = self.stat(at)
            if info is not None and not info.is_dir:
                return f"{at!r} is a file"
        return None

    def list(self, path: str) -> Listing:
        with self._mutex:
            # Within one folder the order of paths is that of names.
            names = sorted(self._inside.get(checked_path(path), ()))
            return [info for name in names if (info := self._info(name))]

    def names(self, path: str) -> Names:
        with self._mutex:
            begin = len(checked_path(path)) + 1 if path else 0
            return [below[begin:] for below in self._inside.get(path, ())]

    def sizes(self, path: str, names: Iterable[str]) -> dict[str, int]:
        infos = {name: self.stat(join_path(path, checked_name(name))) for name in names}
        return {name: info.size for name, info in infos.items() if info is not None}

    def walk(self, path: str) -> Listing:
        with self._mutex:
            prefix = f"{checked_path(path)}/" if path else ""
            names = sorted(name for name in self._files if name.startswith(prefix))
            return [info for name in names if (info := self._info(name))]

    def create(self, path: str, data: FileContent) -> None:
        with self._mutex:
            checked_file_path(path)
            self.make_dir(parent_of(path))
            self._put_new(path, data)

    def publish(self, staging_dir: str, path: str, data: FileContent, overwrite: bool = False) -> None:
        with self._mutex:
            checked_file_path(path)
            if checked_file_path(staging_dir) not in self._dirs:
                raise FencedOutError(
                    f"staging folder {staging_dir!r} is gone: {path!r} must not be published"
                )
            if overwrite:
                self.replace(path, data)
                return
            self.make_dir(parent_of(path))
            self._put_new(path, data)

    def write_in_pieces(self, staging_dir: str, name: str) -> InMemoryPieces:
        with self._mutex:
            if checked_file_path(staging_dir) not in self._dirs:
                raise FencedOutError(f"staging folder {staging_dir!r} is gone: {name!r} is not begun")
            path = f"{staging_dir}/{name}"
            self._put_new(checked_file_path(path), b"")
            return InMemoryPieces(self._mutex, self._files[path], lambda: self._drop(path))

    def link(self, src: str, dst: str, durable: bool = True) -> None:
        with self._mutex:
            entry = self._files.get(checked_file_path(src))
            checked_file_path(dst)
            if entry is None:
                raise FencedOutError(f"{src!r} is gone: {dst!r} must not be published")
            self.make_dir(parent_of(dst))
            self._put_new(dst, entry.data)

    def link_all(self, links: Sequence[tuple[str, str]]) -> Names:
        taken = []
        for src, dst in links:
            try:
                self.link(src, dst)
            except AlreadyExistsError:
                taken.append(dst)
        return taken

    def _put_new(self, path: str, data: FileContent) -> None:
        if path in self._files or path in self._dirs:
            raise AlreadyExistsError(f"{path!r} exists already under {self._base_uri}")
        self._put(path, data)

    def _put(self, path: str, data: FileContent) -> None:
        self._files[path] = _Entry(bytes(data), self._clock.now_ms())
        self._inside.setdefault(parent_of(path), {})[path] = None

    def _drop(self, path: str) -> bool:
        if self._files.pop(path, None) is None:
            return False
        del self._inside[parent_of(path)][path]
        return True

    def replace(self, path: str, data: FileContent) -> None:
        with self._mutex:
            checked_file_path(path)
            self.make_dir(parent_of(path))
            self._drop(_crc_of(path))
            self._put(path, data)

    def make_dir(self, path: str, exclusive: bool = False) -> None:
        with self._mutex:
            checked_path(path)
            if exclusive and (path in self._dirs or path in self._files):
                raise AlreadyExistsError(f"folder {path!r} exists already under {self._base_uri}")
            while path not in self._dirs:
                self._dirs[path] = self._clock.now_ms()
                if path:
                    self._inside.setdefault(parent_of(path), {})[path] = None
                path = parent_of(path)

    def rename(self, src: str, dst: str, durable: bool = True) -> None:
        with self._mutex:
            checked_file_path(src)
            if self.exists(checked_file_path(dst)):
                raise AlreadyExistsError(f"{dst!r} exists already under {self._base_uri}")
            if not self.exists(src) or parent_of(dst) not in self._dirs:
                raise FileMissingError(f"cannot rename {src!r}: it or the folder of {dst!r} is gone")
            for path in _below(self._files, src):
                self._files[dst + path[len(src) :]] = self._files.pop(path)
                self._moved(path, dst + path[len(src) :])
            for path in _below(self._dirs, src):
                self._dirs[dst + path[len(src) :]] = self._dirs.pop(path)
                self._moved(path, dst + path[len(src) :])

    def rename_over(self, src: str, dst: str) -> None:
        with self._mutex:
            if (
                checked_file_path(src) not in self._files
                or parent_of(checked_file_path(dst)) not in self._dirs
            ):
                raise FileMissingError(f"cannot rename {src!r}: it or the folder of {dst!r} is gone")
            self._drop(dst)
            self._files[dst] = self._files.pop(src)
            self._moved(src, dst)

    def _moved(self, path: str, to: str) -> None:
        del self._inside[parent_of(path)][path]
        self._inside.setdefault(parent_of(to), {})[to] = None

    def delete(self, path: str) -> bool:
        with self._mutex:
            self._drop(_crc_of(checked_file_path(path)))
            return self._drop(path)

    def delete_tree(self, path: str) -> int:
        with self._mutex:
            files = [file for file in _below(self._files, checked_file_path(path)) if file != path]
            for file in files:
                self._drop(file)
            for folder in _below(self._dirs, path):
                del self._dirs[folder], self._inside[parent_of(folder)][folder]
            return len(files)

    def sync_dir(self, path: str) -> None:
        checked_path(path)

    def touch(self, path: str, create: bool = True) -> None:
        with self._mutex:
            entry = self._files.get(checked_file_path(path))
            if entry is not None:
                entry.mtime_ms = self._clock.now_ms()
            elif create:
                self.create(path, b"")


class InMemoryPieces:
    """`PieceWriter`: it writes on in the same file when the file is renamed."""

    def __init__(self, mutex: threading.RLock, entry: _Entry, drop: Callable[[], object]) -> None:
        self._mutex, self._entry, self._drop = mutex, entry, drop
        self._is_open = True

    def write(self, data: FileContent) -> None:
        with self._mutex:
            self._entry.data += bytes(data)

    def close(self) -> None:
        self._is_open = False

    def discard(self) -> None:
        if self._is_open:
            self._is_open = False
            self._drop()


def _crc_of(path: str) -> str:
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}.crc" if folder else f".{name}.crc"


def _below(paths: Iterable[str], top: str) -> list[str]:
    """``top`` itself and what lies below it."""
    prefix = f"{top}/"
    return [path for path in paths if path.startswith(prefix) or path == top]
