"""A limit for the memory that a block of code may take on top of what the process has."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_DATA: Final = 5


@contextmanager
def memory_bound(more: int) -> Iterator[None]:
    """Within the block an allocation that takes the process `more` bytes above what it has now fails, in any
    thread of it. Allocators of C++ raise as Python's do; a library that cannot bear it ends the process.

    What is limited is memory that can be written (RLIMIT_DATA), whether it was touched or not. Address space
    (RLIMIT_AS) would count what allocators set aside and do not use: pyarrow's mimalloc and each new thread
    reserve 64 MiB at once. Memory that an allocator kept of what was freed before comes on top.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _data_bytes() + more
    resource.setrlimit(resource.RLIMIT_DATA, (limit if soft < 0 else min(limit, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, even if a reader made another error of it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        if isinstance(found, MemoryError):
            return True
        seen.add(id(found))
        found = found.__cause__ or found.__context__
    return False


def _data_bytes() -> int:
    return int(_STATM.read_text("ascii").split()[_DATA]) * resource.getpagesize()
