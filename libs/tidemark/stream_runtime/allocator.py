"""Memory that this process freed goes back to the system; and how much it has.

Arrow's usual pool and the C library keep what was freed. An assigner that staged a million entries would keep
150 MiB after they were promoted; so it keeps 30. A coordinator that merged ten archive files of 300 instants
would keep 50 MiB.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Final

import pyarrow as pa

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_ARENAS_MAX: Final = 2
_MAPPED_FROM: Final = 1 << 20
_KEPT_AT_THE_TOP: Final = 4 << 20
_STATUS: Final = Path("/proc/self/status")
_ANONYMOUS: Final = re.compile(rb"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


def use_system_allocator() -> None:
    """Arrow allocates by `malloc` from now on, as NumPy does: then `give_memory_back` covers both.

    Call it before threads begin: with glibc they share two arenas then, instead of one each of up to 64 MiB,
    which an assigner's 20 threads fill in turn. And what is larger than a MiB has a mapping of its own, which
    goes back at once: glibc moves that limit up to 32 MiB otherwise, and then holes of such arrays among
    RocksDB's small blocks stay resident, about 80 MiB of them in an assigner whose caches are full.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, _ARENAS_MAX)
        mallopt(_M_MMAP_THRESHOLD, _MAPPED_FROM)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_AT_THE_TOP)


def give_memory_back() -> None:
    """Gives freed memory back (`malloc_trim`); costs microseconds where there is none."""
    pa.default_memory_pool().release_unused()


def anonymous_bytes() -> int | None:
    """Resident memory that this process allocated itself (``RssAnon``), without pages of mapped files. None
    where the system does not say it: only Linux does.
    """
    try:
        found = _ANONYMOUS.search(_STATUS.read_bytes())
    except OSError:
        return None
    return int(found[1]) << 10 if found is not None else None
