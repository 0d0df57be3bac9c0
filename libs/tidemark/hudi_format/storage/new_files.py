"""Files that are being written on a file system: their temporary names, and what makes them durable."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import Final

from tidemark.hudi_format.errors import AlreadyExistsError, FencedOutError
from tidemark.hudi_format.storage.base import FileContent

_TEMPORARY: Final = ".tmp"
_TEMPORARY_NAMES_MAX: Final = 10_000
NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
"""How a file is opened that must not be there yet."""
_counter = itertools.count()


def is_temporary(name: str) -> bool:
    """Whether this is the temporary name of a file that is being written, or whose writer was killed."""
    return name.startswith(".") and name.endswith(_TEMPORARY)


def write_temporary(folder: str, name: str, data: FileContent) -> str:
    """Writes and syncs a file under an unused temporary name in `folder`, which has to exist; returns its
    path.
    """
    for _ in range(_TEMPORARY_NAMES_MAX):
        temporary = os.path.join(folder, f".{name[-180:]}.{os.getpid()}-{next(_counter)}{_TEMPORARY}")
        try:
            descriptor = os.open(temporary, NEW_FILE, 0o666)
        except FileExistsError:
            # A process that died left it. Process ids come again, and another container may have the same.
            continue
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                write_all(file.fileno(), memoryview(data).cast("B"))
                os.fsync(file.fileno())
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return temporary
    raise AlreadyExistsError(f"{folder} is full of temporary files of {name!r}: remove its '.*.tmp' files")


def write_all(descriptor: int, view: memoryview) -> None:
    """Writes all bytes, however many a call takes."""
    while view:
        view = view[os.write(descriptor, view) :]


def link_unless_taken(source: str, target: str) -> bool:
    """Gives the file the name `target`; False where that exists. Raises FencedOutError when the file or the
    folder of `target` is gone.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except (FileNotFoundError, NotADirectoryError) as error:
        raise FencedOutError(f"{source!r} or the folder of {target!r} is gone") from error
    return True


def sync_folder(folder: str) -> None:
    """Makes the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
