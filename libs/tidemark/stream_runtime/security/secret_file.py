"""Reads files with secrets, and notices when they change.

A file that its group can write, or other users can read or write, is refused. Its group may read it, and a
link is followed to its file, because container platforms mount secrets like that.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from tidemark.stream_runtime.security.errors import SecurityConfigError

BYTES_MAX: Final = 1 << 20
_READING: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
_OPEN_TO_OTHERS: Final = stat.S_IWGRP | stat.S_IRWXO

Stamp = tuple[int, int, int, int]
T = TypeVar("T")


def read_file(path: Path, setting: str) -> bytes:
    """The content of a file without secrets, of any mode. Raises SecurityConfigError."""
    return _read(path, setting, secret=False)


def read_secret(path: Path, setting: str) -> bytes:
    """The content of a file that only its owner and group can read. Raises SecurityConfigError, also for a
    file that others can read or change.
    """
    return _read(path, setting, secret=True)


def create_secret(path: Path, text: str) -> None:
    """Writes a new file of mode 0600; does not follow a link. Raises FileExistsError."""
    _write(path, text, os.O_EXCL)


def append_secret(path: Path, text: str) -> None:
    """Appends to a file, or creates it with mode 0600; does not follow a link. Raises OSError."""
    _write(path, text, os.O_APPEND)


def _write(path: Path, text: str, how: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how
    with open(path, "w", encoding="utf-8", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
        file.write(text)


def _read(path: Path, setting: str, *, secret: bool) -> bytes:
    try:
        # By an opener, since open() raises for the descriptor of a folder and would leave it open.
        with open(path, "rb", opener=lambda name, _: os.open(name, _READING)) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise SecurityConfigError(f"{setting}: {path} is not a file")
            if secret and status.st_mode & _OPEN_TO_OTHERS:
                raise SecurityConfigError(
                    f"{setting}: {path} can be read or changed by others (mode "
                    f"{stat.S_IMODE(status.st_mode):04o}): chmod 600 it"
                )
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise SecurityConfigError(f"{setting}: {path}: {error.strerror}") from None
    if len(content) > BYTES_MAX:
        raise SecurityConfigError(f"{setting}: {path} is larger than {BYTES_MAX} bytes")
    return content


def stamp(path: Path) -> Stamp | None:
    """A value that changes when the file is replaced or written; None while there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class Reloaded(Generic[T]):
    """A value that `load` reads from files, and reads anew when one of them has changed. Thread-safe.

    If the new content cannot be used, the former value stays, and `complain` gets the reason, once for each
    change.
    """

    def __init__(
        self, paths: tuple[Path, ...], load: Callable[[], T], complain: Callable[[str], None]
    ) -> None:
        """Loads the value at once, and raises what `load` raises."""
        self._paths = paths
        self._load = load
        self._complain = complain
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._value = load()

    def current(self) -> T:
        """The newest value that could be loaded: the same object until a file changes."""
        with self._lock:
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._value = self._load()
                except SecurityConfigError as error:
                    self._complain(f"{error}; the content that was read before stays in use")
            return self._value

    def _look(self) -> list[Stamp | None]:
        return [stamp(path) for path in self._paths]
