"""Memory that this process freed goes back to the system.

Arrow's usual pool and the C library keep what was freed. An assigner that staged a million entries would keep
150 MiB after they were promoted; so it keeps 30. A coordinator that merged ten archive files of 300 instants
would keep 50 MiB.
"""

from __future__ import annotations

import pyarrow as pa


def use_system_allocator() -> None:
    """Arrow allocates by `malloc` from now on, as NumPy does: then `give_memory_back` covers both."""
    pa.set_memory_pool(pa.system_memory_pool())


def give_memory_back() -> None:
    """Gives freed memory back (`malloc_trim`); costs microseconds where there is none."""
    pa.default_memory_pool().release_unused()
