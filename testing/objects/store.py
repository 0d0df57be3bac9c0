"""A store of objects, as cloud storage has it: names with contents, conditions on a write, uploads that
nobody sees before they are published. There are no folders, no renames, no links.

`where` is a condition that holds at the moment of the effect: each of these objects has just that content.
Real stores compare one object, the one that is written. What the others stand for is said in `publication`.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from testing.memory_storage import CountingClock, NowMs
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import (
    AlreadyExistsError,
    FileMissingError,
    HudiFormatError,
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

Where = Mapping[str, bytes]


class PreconditionFailedError(HudiFormatError):
    """`path` does not have the content that the write was to rest on."""

    kind = ErrorKind.CONFLICT

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} changed meanwhile")
        self.path = path


class NoSuchUploadError(HudiFormatError):
    """The upload was published, or aborted, or never begun."""

    kind = ErrorKind.CONFLICT


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that is there as a whole, and that nobody sees. ``tag``: of whom made it. ``note``: what it left
    with it.
    """

    path: str
    data: bytes
    tag: str
    note: bytes = b""


@dataclass(slots=True)
class _Object:
    data: bytes
    mtime_ms: int


class ObjectStore:
    """`Storage` over names alone. What names have in common up to a '/' is shown like a folder, as stores do
    it. Safe for use by several threads. A write that was answered is durable.
    """

    def __init__(self, base_uri: str = "/objects", clock: NowMs | None = None) -> None:
        self._base_uri = base_uri
        self._clock: NowMs = clock if clock is not None else CountingClock()
        self._files: dict[str, _Object] = {}
        self._names: dict[str, dict[str, None]] = {}
        self._uploads: dict[str, Upload] = {}
        self._numbers = itertools.count(1)
        self._mutex = threading.RLock()

    @property
    def base_uri(self) -> str:
        return self._base_uri

    # ------------------------------------------------------------ reading

    def read(self, path: str) -> bytes:
        with self._mutex:
            found = self._files.get(checked_file_path(path))
            if found is None:
                raise FileMissingError(f"no object {path!r} under {self._base_uri}")
            return found.data

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            raise InvalidPathError(f"{path}: offset {offset} and length {length} must not be negative")
        return self.read(path)[offset : offset + length]

    def open_input(self, path: str) -> pa.NativeFile:
        return pa.BufferReader(self.read(path))

    def stat(self, path: str) -> FileInfo | None:
        with self._mutex:
            found = self._files.get(checked_path(path))
            if found is not None:
                return FileInfo(path, name_of(path), len(found.data), found.mtime_ms, False)
            return FileInfo(path, name_of(path), 0, 0, True) if self._names.get(path) else None

    def exists(self, path: str) -> bool:
        return self.stat(path) is not None

    def folder_problem(self, path: str) -> str | None:
        checked_path(path)
        return None

    def list(self, path: str) -> Listing:
        with self._mutex:
            names = sorted(self._names.get(checked_path(path), ()))
            return [info for name in names if (info := self.stat(name))]

    def names(self, path: str) -> Names:
        with self._mutex:
            return [name_of(below) for below in self._names.get(checked_path(path), ())]

    def sizes(self, path: str, names: Iterable[str]) -> dict[str, int]:
        infos = {name: self.stat(join_path(path, checked_name(name))) for name in names}
        return {name: info.size for name, info in infos.items() if info is not None}

    def walk(self, path: str) -> Listing:
        with self._mutex:
            prefix = f"{checked_path(path)}/" if path else ""
            names = sorted(name for name in self._files if name.startswith(prefix))
            return [info for name in names if (info := self.stat(name))]

    # ------------------------------------------------------------ plain writes and deletions

    def create(self, path: str, data: FileContent, where: Where | None = None) -> None:
        with self._mutex:
            self._demand(where)
            if checked_file_path(path) in self._files:
                raise AlreadyExistsError(f"{path!r} exists already under {self._base_uri}")
            self._put(path, bytes(data))

    def replace(self, path: str, data: FileContent, where: Where | None = None) -> None:
        with self._mutex:
            self._demand(where)
            self._put(checked_file_path(path), bytes(data))

    def touch(self, path: str, create: bool = True) -> None:
        """Puts an empty object anew, so that its time is now."""
        with self._mutex:
            if create or path in self._files:
                self._put(checked_file_path(path), b"")

    def make_dir(self, path: str) -> None:
        checked_path(path)

    def delete(self, path: str, where: Where | None = None) -> bool:
        with self._mutex:
            self._demand(where)
            if self._files.pop(checked_file_path(path), None) is None:
                return False
            while path and path not in self._files and not self._names.get(path):
                self._names.get(parent_of(path), {}).pop(path, None)
                path = parent_of(path)
            return True

    def delete_tree(self, path: str) -> int:
        with self._mutex:
            return sum(self.delete(info.path) for info in self.walk(checked_file_path(path)))

    def sync_dir(self, path: str) -> None:
        checked_path(path)

    # ------------------------------------------------------------ uploads

    def upload(self, path: str, data: FileContent, tag: str, note: bytes = b"") -> str:
        """Stores a file under no name; returns the upload's id."""
        with self._mutex:
            upload_id = f"upload-{next(self._numbers)}"
            self._uploads[upload_id] = Upload(checked_file_path(path), bytes(data), tag, note)
            return upload_id

    def publish(self, path: str, upload_id: str, where: Where | None = None) -> None:
        """Gives an upload its name, unless there is one. Raises `NoSuchUploadError`, `AlreadyExistsError`;
        then nothing has changed.
        """
        with self._mutex:
            self._demand(where)
            upload = self._uploads.get(upload_id)
            if upload is None:
                raise NoSuchUploadError(f"{path}: there is no upload {upload_id}")
            self.create(upload.path, upload.data)
            del self._uploads[upload_id]

    def abort(self, upload_id: str) -> bool:
        """From here on nobody can publish it; False: it was not there."""
        with self._mutex:
            return self._uploads.pop(upload_id, None) is not None

    def uploads(self) -> dict[str, Upload]:
        """All that are neither published nor aborted, by id."""
        with self._mutex:
            return dict(self._uploads)

    def _demand(self, where: Where | None) -> None:
        for path, content in (where or {}).items():
            found = self._files.get(path)
            if found is None or found.data != content:
                raise PreconditionFailedError(path)

    def _put(self, path: str, data: bytes) -> None:
        self._files[path] = _Object(data, self._clock.now_ms())
        while path:
            self._names.setdefault(parent_of(path), {})[path] = None
            path = parent_of(path)
