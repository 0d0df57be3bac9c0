"""A table's folder that counts what is read of it: figures that are the same on every machine."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field

import pyarrow as pa

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Listing, Names, name_of
from tidemark.hudi_format.storage.local import LocalStorage


@dataclass
class Counts:
    """`opened`: the name of a file, each time one is opened or read. `bytes_read`: of their contents.
    `listed`: names in listings of folders.
    """

    opened: list[str] = field(default_factory=list)
    bytes_read: int = 0
    listed: int = 0


class CountedStorage(LocalStorage):
    """`counts`: whoever wants to count from now on puts new ones there. For one thread."""

    def __init__(self, base: str | os.PathLike[str]) -> None:
        super().__init__(base)
        self.counts = Counts()

    def read(self, path: str) -> bytes:
        content = super().read(path)
        self._note(path, len(content))
        return content

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        content = super().read_range(path, offset, length)
        self._note(path, len(content))
        return content

    def open_input(self, path: str) -> pa.NativeFile:
        self._note(path, 0)
        try:
            return pa.PythonFile(_CountedFile(f"{self.base_uri}/{path}", self.counts), mode="r")
        except FileNotFoundError as error:
            raise FileMissingError(path) from error

    def names(self, path: str) -> Names:
        found = super().names(path)
        self.counts.listed += len(found)
        return found

    def list(self, path: str) -> Listing:
        found = super().list(path)
        self.counts.listed += len(found)
        return found

    def _note(self, path: str, size: int) -> None:
        self.counts.opened.append(name_of(path))
        self.counts.bytes_read += size


class _CountedFile(io.FileIO):
    def __init__(self, path: str, counts: Counts) -> None:
        super().__init__(path)
        self._counts = counts

    def read(self, size: int | None = -1, /) -> bytes:
        content = super().read(-1 if size is None else size)
        assert content is not None, "a regular file never makes its reader wait"
        self._counts.bytes_read += len(content)
        return content
