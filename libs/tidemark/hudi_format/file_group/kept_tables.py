"""Tables that the worker processes of one machine keep for each other: files in a folder of its local disk,
which are mapped. What one process made another finds, and the memory is the system's cache of files, once for
all of them.

Nothing depends on what is kept. Whatever fails here (a full disk, a folder that is gone, a lock that another
process holds) says "nothing kept", and the caller reads the table's files.

The folder belongs to one application, which takes it away with itself. In it:

1. `<name>`: tables under the name that `put` was given. A file appears whole (it is renamed), never changes,
   and may be removed at any time: a process that maps it goes on with it. The time of its last change is
   no time but the number of the last round that used it, as seconds.
2. `new.<round>.<process>`: what a process writes, or wrote when it died.
3. `used`: how much room is taken, and the last round that looked for what may go. Its lock is held for as
   long as that takes. Nobody waits for it.

Each file counts with its size and `FILE_BYTES`, so that small ones do not become too many. A file that is
being written while another process makes room may come on top of the limit once.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

Make = Callable[[], Sequence[pa.Table]]

FILE_BYTES: Final = 64 << 10
FREE_BYTES_MIN: Final = 1 << 30
"""So much of the disk stays free for others."""
MAPPED_ROUNDS: Final = 8
"""A process goes on mapping a file for so many rounds after it used it last, because others may have its work
in between. For so long a file that was removed takes space.
"""
_USED: Final = "used"
_NEW: Final = "new"
_NEVER: Final = -1
# A process may map some 65 000 files (vm.max_map_count).
_MAPPED_MAX: Final = 10_000
_STATE: Final = struct.Struct("<qq")
# Of eight bytes, so that all columns stay aligned.
_COUNT: Final = struct.Struct("<q")
_END: Final = b"all here"


class KeptTables(Protocol):
    """Keeps tables by name. A name stands for the same tables for ever."""

    def get(self, name: str) -> list[pa.Table] | None:
        """The tables of this name; None: they are not kept."""
        ...

    def put(self, name: str, nbytes: int, make: Make) -> None:
        """Keeps what `make` returns, which takes about so many bytes. Without room for it `make` is not
        called.
        """
        ...


class NothingKept:
    """Where there is no folder."""

    def get(self, name: str) -> None:
        return None

    def put(self, name: str, nbytes: int, make: Make) -> None:
        return None


class KeptFolder:
    """A process's way to the folder. Not thread-safe.

    What was used least recently makes room, but not what this round or the one before used: where rounds use
    more than fits, what is kept stays, instead of each file making room for the next. `free_bytes_min`: so
    much of the disk stays free for others.
    """

    def __init__(self, folder: Path, free_bytes_min: int = FREE_BYTES_MIN) -> None:
        self._folder, self._free_bytes_min = folder, free_bytes_min
        self._bytes_max = self._round = 0
        # Mapped files and the last round that used them here.
        self._mapped: dict[str, tuple[int, list[pa.Table]]] = {}

    def next_round(self, round_number: int, bytes_max: int) -> None:
        """Begins a round of work. The number is the same for all processes that take part in it, and grows
        from round to round. `bytes_max`: what all files in the folder count together at most.
        """
        self._round, self._bytes_max = round_number, bytes_max
        oldest = round_number - MAPPED_ROUNDS
        self._mapped = {name: kept for name, kept in self._mapped.items() if kept[0] >= oldest}

    def get(self, name: str) -> list[pa.Table] | None:
        """The tables of this name, mapped; None: they are not kept, or cannot be read."""
        used, tables = self._mapped.pop(name, (_NEVER, None))
        path = self._folder / name
        try:
            if tables is None:
                with pa.memory_map(str(path)) as source:
                    tables = read_tables(source)
            if used != self._round:
                self._mark(path)
        except (OSError, pa.ArrowException):
            # What is mapped is right, but room was made of it.
            return tables
        if len(self._mapped) < _MAPPED_MAX:
            self._mapped[name] = self._round, tables
        return tables

    def put(self, name: str, nbytes: int, make: Make) -> None:
        """Keeps what `make` returns, if there is room. Errors of `make` are raised, those of the disk not."""
        counted = nbytes + FILE_BYTES
        if counted > self._bytes_max:
            return
        try:
            has_room = self._take_room(counted)
        except OSError:
            return
        if has_room:
            tables = make()
            with contextlib.suppress(OSError):
                self._write(name, nbytes, tables)

    def _write(self, name: str, nbytes: int, tables: Sequence[pa.Table]) -> None:
        new = self._folder / f"{_NEW}.{self._round}.{os.getpid()}"
        try:
            with pa.OSFile(str(new), "wb") as sink:
                write_tables(sink, tables)
                # What Arrow writes around the columns is known now.
                beyond = sink.tell() - nbytes
            self._mark(new)
            if beyond <= 0 or self._take_room(beyond):
                os.rename(new, self._folder / name)
        finally:
            new.unlink(missing_ok=True)

    def _mark(self, path: Path) -> None:
        os.utime(path, (self._round, self._round))

    def _may_go(self, last_used: int) -> bool:
        return last_used < self._round - 1

    def _take_room(self, counted: int) -> bool:
        """Counts so much as taken, if there is room or room can be made. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        disk = os.statvfs(self._folder)
        if disk.f_bavail * disk.f_frsize < counted + self._free_bytes_min:
            return False
        state = os.open(self._folder / _USED, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(state, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stored = os.pread(state, _STATE.size, 0)
            used, swept = _STATE.unpack(stored) if len(stored) == _STATE.size else (0, _NEVER)
            # Once in a round: what could go then went.
            if used + counted > self._bytes_max and swept != self._round:
                used, swept = self._sweep(counted), self._round
            has_room: bool = used + counted <= self._bytes_max
            os.pwrite(state, _STATE.pack(used + counted if has_room else used, swept), 0)
        finally:
            os.close(state)
        return has_room

    def _sweep(self, counted: int) -> int:
        """Removes what was used least recently, until so much fits and a quarter is free. Returns what the
        files that stay count.
        """
        files = sorted(_files(self._folder))
        used = sum(size for _, size, _ in files)
        aim = min(self._bytes_max - counted, self._bytes_max * 3 // 4)
        for last_used, size, path in files:
            if used <= aim or not self._may_go(last_used):
                break
            os.unlink(path)
            used -= size
        return used


def _files(folder: Path) -> Iterator[tuple[int, int, str]]:
    """The last round that used each file, what the file counts, and its path."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name == _USED:
                continue
            try:
                found = entry.stat()
            except FileNotFoundError:  # It has its name by now, or is removed.
                continue
            new, _, rest = entry.name.partition(".")
            last_used = int(rest.partition(".")[0]) if new == _NEW else int(found.st_mtime)
            yield last_used, found.st_size + FILE_BYTES, entry.path


def write_tables(sink: pa.NativeFile, tables: Sequence[pa.Table]) -> None:
    """Writes how many tables there are, the tables one after the other, and an end mark."""
    sink.write(_COUNT.pack(len(tables)))
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    sink.write(_END)


def read_tables(source: pa.NativeFile) -> list[pa.Table]:
    """All tables that `write_tables` wrote. Raises ArrowInvalid if not all of them are there."""
    count = source.read(_COUNT.size)
    tables = []
    if len(count) == _COUNT.size:
        tables = [pa.ipc.open_stream(source).read_all() for _ in range(*_COUNT.unpack(count))]
    # A stream that is cut off between two of its messages looks whole.
    if source.read(len(_END)) != _END:
        raise pa.ArrowInvalid("the tables end early")
    return tables
