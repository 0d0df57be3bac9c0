"""The storage port: the file operations of this package. Only files that take effect for readers (timeline
files, data and log files) are made through another port, `publication.port`.

Invariants that every implementation keeps (tests/contract/test_storage.py runs over all of them):

- Paths are POSIX strings relative to the table's base folder; '' is the base itself. A path that is
  absolute, or has an empty, '.' or '..' part, or a NUL, is refused with `InvalidPathError`: nothing outside
  the base is ever touched.
- A file appears with its whole content or not at all, and is durable when the call returns.
- `create`, and `publish` without `overwrite`, never replace a file; of two calls that race for one name, one
  raises `AlreadyExistsError`.
- `publish` (of `FolderStorage`) works only while its staging folder exists: renaming the folder away fences
  all its writers at once, also a process that was suspended in the middle of the call.
- Deletions are not synced until `sync_dir`: after a machine crash a deleted file may be back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from tidemark.hudi_format.errors import InvalidPathError

if TYPE_CHECKING:
    import pyarrow as pa

FileContent: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a listing. `size` is in bytes (0 for a folder), `mtime_ms` in milliseconds since the Unix
    epoch. `file_id` identifies a file whatever path it is reached by; a copy has another. Only `stat` fills
    it in; it is "" for folders and for files with several hard links.
    """

    path: str
    name: str
    size: int
    mtime_ms: int
    is_dir: bool
    file_id: str = field(default="", compare=False)

    @property
    def version(self) -> str:
        """Size and time as one text: it changes when another file takes the place of this one."""
        return f"{self.size}-{self.mtime_ms}"


Listing: TypeAlias = list[FileInfo]
Names: TypeAlias = list[str]


class Storage(Protocol):
    """File operations under one table's base folder. Every method that takes a path raises `InvalidPathError`
    for one that does not stay inside the base.
    """

    @property
    def base_uri(self) -> str:
        """The base folder as an absolute path. Hudi's plans name a file as `base_uri + '/' + path`."""
        ...

    def read(self, path: str) -> bytes:
        """The content of the whole file. Raises `FileMissingError`."""
        ...

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """`length` bytes from `offset` on, fewer only at the end of the file. Raises `FileMissingError`."""
        ...

    def open_input(self, path: str) -> pa.NativeFile:
        """The file, open for reading and seeking; the caller closes it. Raises `FileMissingError`."""
        ...

    def stat(self, path: str) -> FileInfo | None:
        """Size and time of a file or folder; None when absent."""
        ...

    def exists(self, path: str) -> bool:
        """Whether a file or folder is there."""
        ...

    def folder_problem(self, path: str) -> str | None:
        """Why no file may be written into this folder: the path, or a folder on the way to it, is a file or a
        symbolic link. None when it is a folder, or can be made.
        """
        ...

    def list(self, path: str) -> Listing:
        """The entries of one folder, ordered by name, `.crc` side files of Hadoop included; empty when
        absent.
        """
        ...

    def names(self, path: str) -> Names:
        """The names of what `list` lists, in no order. It is cheaper: sizes and times are not looked at."""
        ...

    def sizes(self, path: str, names: Iterable[str]) -> dict[str, int]:
        """Name -> bytes of those of these files in one folder that are there. It is cheaper than `stat`."""
        ...

    def walk(self, path: str) -> Listing:
        """All files (no folders) below a folder, ordered by path; empty when absent."""
        ...

    def create(self, path: str, data: FileContent) -> None:
        """Makes a new file with the whole content, and missing parent folders. Raises
        `AlreadyExistsError`.
        """
        ...

    def replace(self, path: str, data: FileContent) -> None:
        """Puts a file in place of what may be there, in one step.

        Removes the stale `.<name>.crc` that Hadoop's local file system keeps beside a file: left behind it
        makes every read by Spark fail (FORMAT.md, section 2.4).
        """
        ...

    def make_dir(self, path: str) -> None:
        """Makes a folder and its parents, where the storage has folders: Hudi looks for some."""
        ...

    def delete(self, path: str) -> bool:
        """Deletes one file (and its `.crc`); False when it was absent."""
        ...

    def delete_tree(self, path: str) -> int:
        """Deletes a folder with all it holds; returns the number of files that were in it, 0 when absent."""
        ...

    def sync_dir(self, path: str) -> None:
        """Makes earlier deletions and new names in that folder durable. Does nothing for an absent folder."""
        ...


class PieceWriter(Protocol):
    """A file that is being written piece by piece. For one thread."""

    def write(self, data: FileContent) -> None:
        """Appends to the file."""
        ...

    def close(self) -> None:
        """Makes the content durable, and ends writing."""
        ...

    def discard(self) -> None:
        """Ends writing, and deletes the file if it is there. Does nothing after `close`."""
        ...


@runtime_checkable
class FolderStorage(Storage, Protocol):
    """A storage that is a file system: `publication.posix` publishes files by its folders, links and
    renames.
    """

    def publish(self, staging_dir: str, path: str, data: FileContent, overwrite: bool = False) -> None:
        """Writes a temporary file in `staging_dir` and gives it the name `path`. Makes the missing parent
        folders of `path`, and never the staging folder, which is the fence.

        With `overwrite` the file replaces one that is there, in one step; the fence is the same. Raises
        `FencedOutError` when the staging folder is absent, `AlreadyExistsError` when `path` exists (never
        with `overwrite`). After an error of another kind the file may have appeared: repeat the call.
        """
        ...

    def write_in_pieces(self, staging_dir: str, name: str) -> PieceWriter:
        """Begins the file `name` in `staging_dir`, which is never made. It is for files that are too large to
        be held in memory; `link` gives them the name by which they are read. Raises `FencedOutError` when the
        staging folder is absent, `AlreadyExistsError` when it has the file.
        """
        ...

    def link(self, src: str, dst: str, durable: bool = True) -> None:
        """Gives the file `src` a second name, and makes the missing parent folders of that. Raises
        `FencedOutError` when `src` or its folder is gone, `AlreadyExistsError` when `dst` exists. Without
        `durable` the name may be gone after a crash until `sync_dir` of its folder.
        """
        ...

    def link_all(self, links: Sequence[tuple[str, str]]) -> Names:
        """As `link` for each (file, second name), cheaper for many names in few folders, and not durable
        before `sync_dir` of these. Returns the names that exist already, and goes on behind them. Raises
        `FencedOutError` when a file or a folder of a name is gone; names before it are made then.
        """
        ...

    def make_dir(self, path: str, exclusive: bool = False) -> None:
        """Makes a folder and its parents. Raises `AlreadyExistsError` if it exists and `exclusive` is set."""
        ...

    def rename_over(self, src: str, dst: str) -> None:
        """Puts the file `src` in place of the file `dst`, in one step: at no moment is `dst` absent. Never
        makes the folder of `dst`. Raises `FileMissingError` when `src` or the folder of `dst` is absent, or
        that is a file; then nothing has changed.
        """
        ...

    def rename(self, src: str, dst: str, durable: bool = True) -> None:
        """Renames a file or folder in one step. Never makes the folder of `dst`, so that folder can be a
        fence.

        Of several calls that rename the same `src`, one succeeds. Of several calls that rename different
        folders to the same `dst`, one succeeds too, also against a call that makes a file named `dst`; but
        only if the folders are not empty. For a file or an empty folder choose a `dst` that no other caller
        uses.

        Raises `FileMissingError` when `src` or the folder of `dst` is absent, `AlreadyExistsError` when
        `dst` exists. Without `durable` both names are durable only after `sync_dir` of their folders.
        """
        ...

    def touch(self, path: str, create: bool = True) -> None:
        """Sets a file's modification time to now. An absent file is made, empty, unless `create` is False."""
        ...


def join_path(*parts: str) -> str:
    """Joins path parts with '/' and leaves empty ones out: the partition path of an unpartitioned table is
    ''.
    """
    return "/".join(part for part in parts if part)


def parent_of(path: str) -> str:
    """The folder that holds `path`; '' is the base."""
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    """The last part of `path`."""
    return path.rpartition("/")[2]


def checked_path(path: str) -> str:
    """Returns `path` when it stays inside the base; raises `InvalidPathError` otherwise."""
    if not path:
        return path
    if "\0" in path:
        raise InvalidPathError(f"path {path!r} holds a NUL character")
    if path.startswith("/"):
        raise InvalidPathError(f"path {path!r} is absolute; paths are relative to the table's base folder")
    enclosed = f"/{path}/"
    if "//" in enclosed or "/./" in enclosed or "/../" in enclosed:
        raise InvalidPathError(f"path {path!r} has an empty, '.' or '..' part")
    return path


def written_ms(storage: Storage, path: str) -> int | None:
    """When the file was written last (Unix epoch, by the storage's clock); None if it is not there.

    To be shown to people. Nothing may be decided by it: the clocks of storages and engines differ.
    """
    info = storage.stat(path)
    return None if info is None else info.mtime_ms


def checked_name(name: str) -> str:
    """Returns `name` when it is that of one file; raises `InvalidPathError` otherwise."""
    if "/" in name:
        raise InvalidPathError(f"{name!r} is a path, and no name")
    return checked_file_path(name)


def checked_file_path(path: str) -> str:
    """Returns `path` when it names something below the base; raises `InvalidPathError` otherwise, also for
    ''.
    """
    if not path:
        raise InvalidPathError("the empty path is the base folder, not a file")
    return checked_path(path)
