"""What time it is where the age of a file decides: whether a heartbeat is old, or a file may be deleted."""

from __future__ import annotations

from typing import Protocol

from tidemark.hudi_format.ports import Clock


class StorageTime(Protocol):
    """A `Term` or a `Publication`."""

    def now_ms(self) -> int: ...


def file_time_ms(by: StorageTime, clock: Clock) -> int:
    """The time now (Unix epoch), to compare times of files with: the storage's, or this process's where that
    is earlier.

    Our clock may be ahead of the storage's: then what other engines wrote a moment ago would be old. The
    storage's may be ahead of what it said a moment before, if somebody sets it: then our clock is right.
    """
    return min(clock.now_ms(), by.now_ms())
