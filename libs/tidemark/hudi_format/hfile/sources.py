"""What an HFile is read from: a file in a storage, or bytes."""

from __future__ import annotations

from typing import Final, Protocol

from tidemark.hudi_format.errors import FileMissingError
from tidemark.hudi_format.storage.base import Storage

_TAIL_BYTES: Final = 64 * 1024


class Source(Protocol):
    """Bytes that are read in parts. ``size``: of all of them."""

    size: int

    def read(self, offset: int, length: int) -> bytes:
        """So many bytes from this offset on; fewer at the end."""
        ...

    def forget_tail(self) -> None:
        """Frees what is kept in memory; it is read again if it is asked for."""
        ...


class BytesSource:
    """Bytes that somebody else holds."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self._data[offset : offset + length])

    def forget_tail(self) -> None:
        return


class FileSource:
    """A file whose tail is kept in memory: there are the trailer and, in most files, the index."""

    def __init__(self, storage: Storage, path: str) -> None:
        """Raises FileMissingError."""
        info = storage.stat(path)
        if info is None:
            raise FileMissingError(
                f"{path}: the HFile is not there (any more): reload the metadata table's timeline"
            )
        self._storage, self._path, self.size = storage, path, info.size
        self._tail_start = max(0, info.size - _TAIL_BYTES)
        self._tail = storage.read_range(path, self._tail_start, info.size - self._tail_start)

    def read(self, offset: int, length: int) -> bytes:
        if offset >= self._tail_start:
            begin = offset - self._tail_start
            return self._tail[begin : begin + length]
        return self._storage.read_range(self._path, offset, length)

    def forget_tail(self) -> None:
        self._tail_start, self._tail = self.size, b""
