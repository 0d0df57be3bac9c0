"""A storage that fails on purpose, for tests: injected errors before or after an operation, and machine
crashes.

It wraps any other storage. Two things can be told to it:

- `fail(operation, nth, when)`: the nth call of that operation from now on raises `InjectedFaultError`,
  either BEFORE anything happened or AFTER the effect (the caller can't tell the two apart: the outcome is
  unknown to it).
- `crash(chosen)`: what was not synced is forgotten. The storage contract syncs everything but deletions and
  touches; a synced operation in the same folder also makes the folder's earlier deletions durable, as
  `fsync` of a folder does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ParamSpec, TypeVar

import pyarrow as pa

from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import AlreadyExistsError, HudiFormatError
from tidemark.hudi_format.storage.base import (
    FileContent,
    FileInfo,
    FolderStorage,
    Listing,
    Names,
    PieceWriter,
    join_path,
    parent_of,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class When(Enum):
    """On which side of the effect an injected fault strikes."""

    BEFORE = "before"
    AFTER = "after"


class InjectedFaultError(HudiFormatError):
    """Raised in place of an I/O error; like one, it doesn't say whether the operation took effect."""

    kind = ErrorKind.RETRYABLE


@dataclass(slots=True)
class _Fault:
    operation: str
    countdown: int
    when: When


class FaultyStorage:
    """Passes every call to `inner`, except where a fault was injected. `calls` counts the calls per
    operation.
    """

    def __init__(self, inner: FolderStorage) -> None:
        self._inner = inner
        self._faults: list[_Fault] = []
        self._unsynced_deletes: dict[str, bytes] = {}
        self.calls: dict[str, int] = {}

    @property
    def base_uri(self) -> str:
        return self._inner.base_uri

    def fail(self, operation: str, nth: int = 1, when: When = When.BEFORE) -> None:
        """Lets the `nth` call (1 = the next one) of the method `operation` fail. '*' stands for any writing
        method.
        """
        self._faults.append(_Fault(operation, nth, when))

    def fail_no_more(self) -> None:
        """Forgets the faults that have not struck yet."""
        self._faults.clear()

    def crash(self, chosen: Callable[[str], bool] = lambda path: True) -> list[str]:
        """Undoes the unsynced deletions of files that `chosen(path)` picks; returns the paths that came
        back.
        """
        restored: list[str] = []
        for path, data in sorted(self._unsynced_deletes.items()):
            if chosen(path):
                try:
                    self._inner.create(path, data)
                except AlreadyExistsError:  # made anew since, and that was synced
                    continue
                restored.append(path)
        self._unsynced_deletes.clear()
        return restored

    def _call(self, operation: str, call: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
        self.calls[operation] = self.calls.get(operation, 0) + 1
        due = self._due(operation)
        if due is When.BEFORE:
            raise InjectedFaultError(f"injected fault before {operation}{args}")
        result = call(*args, **kwargs)
        if due is When.AFTER:
            raise InjectedFaultError(f"injected fault after {operation}{args[:1]}")
        return result

    def _due(self, operation: str) -> When | None:
        struck: _Fault | None = None
        for fault in self._faults:
            if fault.operation == operation or (fault.operation == "*" and operation in WRITING):
                fault.countdown -= 1
                if fault.countdown == 0 and struck is None:
                    struck = fault
        self._faults = [fault for fault in self._faults if fault.countdown > 0]
        return struck.when if struck else None

    def _synced(self, path: str) -> None:
        if not self._unsynced_deletes:
            return
        folder = parent_of(path)
        for deleted in [path for path in self._unsynced_deletes if parent_of(path) == folder]:
            del self._unsynced_deletes[deleted]

    def read(self, path: str) -> bytes:
        return self._call("read", self._inner.read, path)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._call("read_range", self._inner.read_range, path, offset, length)

    def open_input(self, path: str) -> pa.NativeFile:
        return self._call("open_input", self._inner.open_input, path)

    def stat(self, path: str) -> FileInfo | None:
        return self._call("stat", self._inner.stat, path)

    def exists(self, path: str) -> bool:
        return self._call("exists", self._inner.exists, path)

    def folder_problem(self, path: str) -> str | None:
        return self._call("folder_problem", self._inner.folder_problem, path)

    def list(self, path: str) -> Listing:
        return self._call("list", self._inner.list, path)

    def names(self, path: str) -> Names:
        return self._call("names", self._inner.names, path)

    def sizes(self, path: str, names: Iterable[str]) -> dict[str, int]:
        return self._call("sizes", self._inner.sizes, path, names)

    def walk(self, path: str) -> Listing:
        return self._call("walk", self._inner.walk, path)

    def create(self, path: str, data: FileContent) -> None:
        self._call("create", self._inner.create, path, data)
        self._synced(path)

    def replace(self, path: str, data: FileContent) -> None:
        self._call("replace", self._inner.replace, path, data)
        self._synced(path)

    def publish(self, staging_dir: str, path: str, data: FileContent, overwrite: bool = False) -> None:
        self._call("publish", self._inner.publish, staging_dir, path, data, overwrite)
        self._synced(path)

    def write_in_pieces(self, staging_dir: str, name: str) -> PieceWriter:
        return self._call("write_in_pieces", self._inner.write_in_pieces, staging_dir, name)

    def link(self, src: str, dst: str, durable: bool = True) -> None:
        self._call("link", self._inner.link, src, dst, durable)
        if durable:
            self._synced(dst)

    def link_all(self, links: Sequence[tuple[str, str]]) -> Names:
        return self._call("link_all", self._inner.link_all, links)

    def make_dir(self, path: str, exclusive: bool = False) -> None:
        self._call("make_dir", self._inner.make_dir, path, exclusive)
        self._synced(path)

    def rename(self, src: str, dst: str, durable: bool = True) -> None:
        self._call("rename", self._inner.rename, src, dst, durable)
        if durable:
            self._synced(src)
            self._synced(dst)

    def rename_over(self, src: str, dst: str) -> None:
        self._call("rename_over", self._inner.rename_over, src, dst)
        self._synced(src)
        self._synced(dst)

    def delete(self, path: str) -> bool:
        info = self._inner.stat(path)
        is_file = info is not None and not info.is_dir
        before = {path: self._inner.read(path)} if is_file else {}
        return self._deleting("delete", self._inner.delete, path, before)

    def delete_tree(self, path: str) -> int:
        before = {info.path: self._inner.read(info.path) for info in self._inner.walk(path)}
        return self._deleting("delete_tree", self._inner.delete_tree, path, before)

    def _deleting(self, operation: str, call: Callable[[str], _R], path: str, before: dict[str, bytes]) -> _R:
        try:
            return self._call(operation, call, path)
        finally:
            gone = {path: data for path, data in before.items() if not self._inner.exists(path)}
            self._unsynced_deletes.update(gone)

    def sync_dir(self, path: str) -> None:
        self._call("sync_dir", self._inner.sync_dir, path)
        self._synced(join_path(path, "any"))

    def touch(self, path: str, create: bool = True) -> None:
        self._call("touch", self._inner.touch, path, create)


WRITING = frozenset(
    {
        "sync_dir",
        "create",
        "replace",
        "publish",
        "write_in_pieces",
        "link",
        "link_all",
        "make_dir",
        "rename",
        "rename_over",
        "delete",
        "delete_tree",
        "touch",
    }
)
