"""Storage on a local (or mounted POSIX) file system.

A file is written under a temporary name first and synced. Two system calls then make it appear atomically:
`link()`, which fails when the target exists, and `rename()`, which replaces the target. Both need the
temporary file on the target's file system, so it is written in the target's folder or in the staging folder.
Temporary names start with '.': Hudi's listings of timeline and data files skip them.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemark.hudi_format.errors import AlreadyExistsError, FencedOutError, FileMissingError, InvalidPathError
from tidemark.hudi_format.storage.base import (
    FileContent,
    FileInfo,
    Listing,
    Names,
    checked_file_path,
    checked_name,
    checked_path,
    name_of,
)
from tidemark.hudi_format.storage.new_files import (
    NEW_FILE,
    link_unless_taken,
    sync_folder,
    write_all,
    write_temporary,
)

if TYPE_CHECKING:
    import pyarrow as pa

_PARENT_RETRIES_MAX: Final = 3
# The errors of rename(2) for a target that it does not replace.
_TARGET_EXISTS: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR)


class LocalStorage:
    """`FolderStorage` over the folder `base`, which is made on first use. Safe for use by several threads and
    processes.
    """

    def __init__(self, base: str | os.PathLike[str]) -> None:
        self._base = os.path.abspath(os.fspath(base))

    @property
    def base_uri(self) -> str:
        return self._base

    def _absolute(self, path: str) -> str:
        return os.path.join(self._base, checked_path(path)) if path else self._base

    def _absolute_file(self, path: str) -> str:
        return os.path.join(self._base, checked_file_path(path))

    def read(self, path: str) -> bytes:
        with self._reading(path):
            return Path(self._absolute_file(path)).read_bytes()

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise InvalidPathError(f"{path}: offset {offset} and length {length} must not be negative")
        with self._reading(path), open(self._absolute_file(path), "rb", buffering=0) as file:
            pieces: list[bytes] = []
            while length > 0 and (piece := os.pread(file.fileno(), length, offset)):
                pieces.append(piece)
                offset += len(piece)
                length -= len(piece)
            return b"".join(pieces)

    def open_input(self, path: str) -> pa.NativeFile:
        # Commands that ask a coordinator look at small files of the table alone, and start without PyArrow.
        import pyarrow as pa

        target = self._absolute_file(path)
        if not os.path.isfile(target):
            raise FileMissingError(f"no file {path!r} under {self._base}")
        with self._reading(path):
            return pa.OSFile(target, "r")

    @contextlib.contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise FileMissingError(f"no file {path!r} under {self._base}") from error

    def stat(self, path: str) -> FileInfo | None:
        status = _status(self._absolute(path))
        if status is None:
            return None
        one_path = status.st_nlink == 1 and not stat.S_ISDIR(status.st_mode)
        file_id = f"{status.st_dev}:{status.st_ino}" if one_path else ""
        return replace(_file_info(path, status), file_id=file_id)

    def folder_problem(self, path: str) -> str | None:
        at = self._base
        for part in checked_path(path).split("/"):
            at = os.path.join(at, part)
            try:
                mode = os.lstat(at).st_mode
            except FileNotFoundError:
                return None
            shown = os.path.relpath(at, self._base)
            if stat.S_ISLNK(mode):
                return f"{shown!r} is a symbolic link; files are written only below the table's own folder"
            if not stat.S_ISDIR(mode):
                return f"{shown!r} is a file"
        return None

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def list(self, path: str) -> Listing:
        prefix = f"{path}/" if path else ""
        infos: Listing = []
        try:
            with os.scandir(self._absolute(path)) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):  # deleted since it was listed
                        infos.append(_file_info(prefix + entry.name, entry.stat()))
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(infos, key=lambda info: info.name)

    def names(self, path: str) -> Names:
        try:
            return os.listdir(self._absolute(path))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def sizes(self, path: str, names: Iterable[str]) -> dict[str, int]:
        folder = self._absolute(path)
        found = ((name, _status(f"{folder}/{checked_name(name)}")) for name in names)
        return {name: status.st_size for name, status in found if status is not None}

    def walk(self, path: str) -> Listing:
        infos: Listing = []
        pending = [path]
        while pending:
            for info in self.list(pending.pop()):
                if info.is_dir:
                    pending.append(info.path)
                else:
                    infos.append(info)
        return sorted(infos, key=lambda info: info.path)

    def create(self, path: str, data: FileContent) -> None:
        target = self._absolute_file(path)
        for _ in range(_PARENT_RETRIES_MAX):
            self._make_dirs(os.path.dirname(target))
            with contextlib.suppress(FileNotFoundError):  # the parent was deleted meanwhile
                self._link_new(os.path.dirname(target), target, path, data)
                return
        raise FileMissingError(
            f"cannot create {path!r}: its folder was deleted {_PARENT_RETRIES_MAX} times while the file was "
            "being made; find the process that deletes it"
        )

    def publish(self, staging_dir: str, path: str, data: FileContent, overwrite: bool = False) -> None:
        staging = self._absolute(checked_file_path(staging_dir))
        target = self._absolute_file(path)
        for _ in range(_PARENT_RETRIES_MAX):
            if not os.path.isdir(staging):
                break
            self._refuse_link(path)
            self._make_dirs(os.path.dirname(target))
            # Either folder may have gone since it was looked at. The next round looks for staging first, and
            # makes the target's folder again.
            with contextlib.suppress(FileNotFoundError):
                if overwrite:
                    self._rename_over(staging, target, data)
                else:
                    self._link_new(staging, target, path, data)
                return
        raise FencedOutError(f"staging folder {staging_dir!r} is gone: {path!r} must not be published")

    def write_in_pieces(self, staging_dir: str, name: str) -> LocalPieceWriter:
        path = f"{staging_dir}/{name}"
        try:
            descriptor = os.open(self._absolute_file(path), NEW_FILE, 0o666)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{path!r} exists already under {self._base}") from error
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FencedOutError(f"staging folder {staging_dir!r} is gone: {name!r} is not begun") from error
        return LocalPieceWriter(self, path, descriptor)

    def link(self, src: str, dst: str, durable: bool = True) -> None:
        source, target = self._absolute_file(src), self._absolute_file(dst)
        for _ in range(_PARENT_RETRIES_MAX):
            if not os.path.isfile(source):
                break
            self._refuse_link(dst)
            self._make_dirs(os.path.dirname(target))
            try:
                os.link(source, target)
            except FileExistsError as error:
                raise AlreadyExistsError(f"{dst!r} exists already under {self._base}") from error
            except FileNotFoundError:
                continue  # either folder has gone since it was looked at
            if durable:
                sync_folder(os.path.dirname(target))
            return
        raise FencedOutError(f"{src!r} is gone: {dst!r} must not be published")

    def link_all(self, links: Sequence[tuple[str, str]]) -> Names:
        named = [(self._absolute_file(src), self._absolute_file(dst), dst) for src, dst in links]
        for path in {os.path.dirname(dst): dst for _, dst in links}.values():
            self._refuse_link(path)
            self._make_dirs(os.path.dirname(self._absolute_file(path)))
        return [path for source, target, path in named if not link_unless_taken(source, target)]

    def _refuse_link(self, path: str) -> None:
        """Raises `InvalidPathError` when a folder on the way to `path` is a symbolic link: anybody who may
        write into the table's folder could otherwise make us write files outside it.
        """
        problem = self.folder_problem(os.path.dirname(path))
        if problem is not None:
            raise InvalidPathError(f"{path!r} cannot be written: {problem}")

    def _link_new(self, temporary_dir: str, target: str, path: str, data: FileContent) -> None:
        """Writes a temporary file and links it to `target`. Raises `AlreadyExistsError` when `target` exists,
        FileNotFoundError when either folder is gone.
        """
        temporary = write_temporary(temporary_dir, os.path.basename(target), data)
        try:
            # The link is made by path, not by file descriptor, so that it fails once the staging folder was
            # renamed away: that is the fence.
            os.link(temporary, target)
        except FileExistsError as error:
            raise AlreadyExistsError(f"{path!r} exists already under {self._base}") from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
        sync_folder(os.path.dirname(target))

    def replace(self, path: str, data: FileContent) -> None:
        target = self._absolute_file(path)
        folder = os.path.dirname(target)
        self._make_dirs(folder)
        self._rename_over(folder, target, data)

    def _rename_over(self, temporary_dir: str, target: str, data: FileContent) -> None:
        """Writes a temporary file and renames it to `target`. Raises FileNotFoundError when either folder is
        gone.
        """
        folder, name = os.path.split(target)
        temporary = write_temporary(temporary_dir, name, data)
        # Hadoop's reader checks a file against its .crc if there is one, and reads it unchecked if there is
        # none. So the old checksum goes before the new content comes: at no moment do the two differ.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f".{name}.crc"))
        os.rename(temporary, target)
        sync_folder(folder)

    def make_dir(self, path: str, exclusive: bool = False) -> None:
        target = self._absolute(path)
        if not exclusive:
            self._make_dirs(target)
            return
        self._make_dirs(os.path.dirname(target))
        try:
            os.mkdir(target)
        except FileExistsError as error:
            raise AlreadyExistsError(f"folder {path!r} exists already under {self._base}") from error
        sync_folder(os.path.dirname(target))

    def _make_dirs(self, folder: str) -> None:
        """Makes a folder and its missing parents; syncs the parent of each, so that the new name is
        durable.
        """
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        if parent != folder:
            self._make_dirs(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
            sync_folder(parent)

    def rename(self, src: str, dst: str, durable: bool = True) -> None:
        source, target = self._absolute_file(src), self._absolute_file(dst)
        if os.path.lexists(target):
            raise AlreadyExistsError(f"{dst!r} exists already under {self._base}")
        try:
            os.rename(source, target)
        except OSError as error:
            # The error number tells whether the target existed: a second look could find it gone meanwhile.
            folders = os.path.isdir(source) and os.path.isdir(os.path.dirname(target))
            if error.errno in _TARGET_EXISTS or (error.errno == errno.ENOTDIR and folders):
                raise AlreadyExistsError(f"{dst!r} exists already under {self._base}") from error
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            raise FileMissingError(f"cannot rename {src!r}: it or the folder of {dst!r} is gone") from error
        if durable:
            _sync_folders_of(source, target)

    def rename_over(self, src: str, dst: str) -> None:
        source, target = self._absolute_file(src), self._absolute_file(dst)
        try:
            os.rename(source, target)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileMissingError(f"cannot rename {src!r}: it or the folder of {dst!r} is gone") from error
        _sync_folders_of(source, target)

    def delete(self, path: str) -> bool:
        folder, name = os.path.split(self._absolute_file(path))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(os.path.join(folder, f".{name}.crc"))
        try:
            os.unlink(os.path.join(folder, name))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def delete_tree(self, path: str) -> int:
        count = len(self.walk(checked_file_path(path)))
        shutil.rmtree(self._absolute_file(path), ignore_errors=False, onerror=_ignore_missing)
        return count

    def sync_dir(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            sync_folder(self._absolute(path))

    def touch(self, path: str, create: bool = True) -> None:
        target = self._absolute_file(path)
        try:
            os.utime(target)
        except FileNotFoundError:
            if not create:
                return
            self._make_dirs(os.path.dirname(target))
            with open(target, "ab"):
                os.utime(target)


class LocalPieceWriter:
    """`PieceWriter` over an open file."""

    def __init__(self, storage: LocalStorage, path: str, descriptor: int) -> None:
        self._storage, self._path, self._descriptor = storage, path, descriptor

    def write(self, data: FileContent) -> None:
        write_all(self._descriptor, memoryview(data).cast("B"))

    def close(self) -> None:
        os.fsync(self._descriptor)
        self._end()

    def discard(self) -> None:
        if self._descriptor >= 0:
            self._end()
            self._storage.delete(self._path)

    def _end(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        os.close(descriptor)


def _sync_folders_of(*paths: str) -> None:
    """Syncs the folders of these files, if they are still there."""
    for folder in set(map(os.path.dirname, paths)):
        with contextlib.suppress(FileNotFoundError):
            sync_folder(folder)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _file_info(path: str, status: os.stat_result) -> FileInfo:
    is_dir = stat.S_ISDIR(status.st_mode)
    size = 0 if is_dir else status.st_size
    return FileInfo(path, name_of(path), size, status.st_mtime_ns // 1_000_000, is_dir)


def _ignore_missing(function: object, path: str, error: object) -> None:
    exception = error[1] if isinstance(error, tuple) else error
    if not isinstance(exception, FileNotFoundError | NotADirectoryError):
        raise exception if isinstance(exception, BaseException) else OSError(f"cannot delete {path}")
