"""Reads files that hold secrets, and notices when they were replaced.

A file that anybody on the machine can read or write is refused. Its group may read it: that is how containers
get mounted secrets. A link is followed, for the same reason; what counts is the file it leads to.
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
    """The content of a file that is no secret. Raises SecurityConfigError."""
    return _read(path, setting, secret=False)


def read_secret(path: Path, setting: str) -> bytes:
    """The content of a file that only its owner and group can read. Raises SecurityConfigError."""
    return _read(path, setting, secret=True)


def create_secret(path: Path, text: str) -> None:
    """A new file of mode 0600; a link is not followed. Raises FileExistsError."""
    _write(path, text, os.O_EXCL)


def append_secret(path: Path, text: str) -> None:
    """Adds to a file, which is made with mode 0600 where there is none; a link is not followed."""
    _write(path, text, os.O_APPEND)


def _write(path: Path, text: str, how: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how
    with open(path, "w", encoding="utf-8", opener=lambda name, _: os.open(name, flags, 0o600)) as file:
        file.write(text)


def _read(path: Path, setting: str, *, secret: bool) -> bytes:
    try:
        # By an opener: a bare descriptor would stay open where there is a folder of that name.
        with open(path, "rb", opener=lambda name, _: os.open(name, _READING)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise SecurityConfigError(f"{setting}: {path} is no file")
            if secret and found.st_mode & _OPEN_TO_OTHERS:
                raise SecurityConfigError(
                    f"{setting}: {path} can be read or changed by others (mode "
                    f"{stat.S_IMODE(found.st_mode):04o}): chmod 600 it"
                )
            content = file.read(BYTES_MAX + 1)
    except OSError as error:
        raise SecurityConfigError(f"{setting}: {path}: {error.strerror}") from None
    if len(content) > BYTES_MAX:
        raise SecurityConfigError(f"{setting}: {path} is larger than {BYTES_MAX} bytes")
    return content


def stamp(path: Path) -> Stamp | None:
    """Changes when the file is replaced or written; None while there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class Reloaded(Generic[T]):
    """What is read from files, read anew when one of them changed. Thread-safe.

    When the new content cannot be used the former one stays, and `complain` hears why, once a change.
    """

    def __init__(
        self, paths: tuple[Path, ...], load: Callable[[], T], complain: Callable[[str], None]
    ) -> None:
        """Loads at once: raises what `load` raises."""
        self._paths = paths
        self._load = load
        self._complain = complain
        self._lock = threading.Lock()
        self._stamps = self._look()
        self._value = load()

    def current(self) -> T:
        """The newest content that could be used."""
        with self._lock:
            stamps = self._look()
            if stamps != self._stamps:
                self._stamps = stamps
                try:
                    self._value = self._load()
                except SecurityConfigError as error:
                    self._complain(f"{error}; what was read before stays in use")
            return self._value

    def _look(self) -> list[Stamp | None]:
        return [stamp(path) for path in self._paths]
