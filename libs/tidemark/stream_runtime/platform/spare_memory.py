"""How much memory a child process may use without danger for its parent or the container.

When a container's memory is used up, the kernel kills one of its processes, and often the whole container. So
a child that reads data which may be too large gets a limit, below the memory that is left. Data that exceeds
this limit would not have fitted into the parent either.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Final

_MARGIN_BYTES: Final = 192 << 20
"""Kept free for the parent, and for the child's interpreter with its libraries."""
_LEAST_BYTES: Final = 128 << 20
_STACKS_BYTES: Final = 64 << 20
"""Stacks of a Kafka client's threads: address space that counts for the limit but is hardly used."""
_STATUS: Final = Path("/proc/self/status")
_MEMORY: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


def spare_memory_bytes() -> int:
    """The bytes that a child of this process may use now, in addition to its interpreter and libraries.

    It is what is left of the limits of process, container and machine (the least of them), less a margin; at
    least 128 MiB.
    """
    left = [_machine_bytes(), *_group_bytes(), *_process_bytes()]
    return max(min(left) - _MARGIN_BYTES, _LEAST_BYTES)


def limit_own_memory(bytes_max: int) -> None:
    """Limits the memory of this process to what it uses now and `bytes_max` more. Called by a child that has
    loaded its libraries. An allocation beyond the limit fails, and if the process aborts then, it writes no
    core dump.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _kilobytes(_STATUS, "VmData:") + _STACKS_BYTES + bytes_max
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Should the kernel have to kill a process, it is this one.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _machine_bytes() -> int:
    return _kilobytes(_MEMORY, "MemAvailable:")


def _group_bytes() -> list[int]:
    """What is left of the container's limit, as seen from inside (cgroups version 2, else 1); [] without a
    limit. The page cache counts as free, since the kernel gives it up when memory is needed.
    """
    names = [
        ("memory.max", "memory.current", "memory.stat", "inactive_file ", "active_file "),
        (
            "memory/memory.limit_in_bytes",
            "memory/memory.usage_in_bytes",
            "memory/memory.stat",
            "total_inactive_file ",
            "total_active_file ",
        ),
    ]
    for limit, used, stat, *cached in names:
        with contextlib.suppress(OSError, ValueError):
            lines = (_GROUP / stat).read_text().splitlines()
            files = sum(int(line.split()[1]) for line in lines if line.startswith(tuple(cached)))
            return [int((_GROUP / limit).read_text()) - int((_GROUP / used).read_text()) + files]
    return []


def _process_bytes() -> list[int]:
    limits = {resource.RLIMIT_DATA: "VmData:", resource.RLIMIT_AS: "VmSize:"}
    softs = {kind: resource.getrlimit(kind)[0] for kind in limits}
    return [
        soft - _kilobytes(_STATUS, limits[kind])
        for kind, soft in softs.items()
        if soft != resource.RLIM_INFINITY
    ]


def _kilobytes(file: Path, name: str) -> int:
    """The value of a line like `VmData:  1234 kB`, in bytes. A terabyte if the system has no such file or
    line, which means: no limit is known.
    """
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 1 << 40
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 1 << 40)
