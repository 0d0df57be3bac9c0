"""How much memory a child process may take before its parent, or the container, is in danger.

The kernel ends somebody when a container's memory is used up, and with it often all of the container. So a
child that reads what may be too large gets a limit of its own, below of what is left: what does not fit into
that would not have fitted into its parent either.
"""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path
from typing import Final

_MARGIN_BYTES: Final = 192 << 20
"""Of what is left, for the parent itself and for an interpreter with its libraries."""
_LEAST_BYTES: Final = 128 << 20
_STACKS_BYTES: Final = 64 << 20
"""Of a Kafka client's threads: address space that counts for the limit, and is hardly used."""
_STATUS: Final = Path("/proc/self/status")
_MEMORY: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup")


def spare_memory_bytes() -> int:
    """What a child of this process may take now, beyond an interpreter with its libraries: the least that
    process, container and machine have left, less a margin.
    """
    left = [_machine_bytes(), *_group_bytes(), *_process_bytes()]
    return max(min(left) - _MARGIN_BYTES, _LEAST_BYTES)


def limit_own_memory(bytes_max: int) -> None:
    """For a child that has loaded its libraries: so much more than now. An allocation above that ends it,
    without a core dump.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = _kilobytes(_STATUS, "VmData:") + _STACKS_BYTES + bytes_max
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # If it is the kernel that ends somebody after all, then this process.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _machine_bytes() -> int:
    return _kilobytes(_MEMORY, "MemAvailable:")


def _group_bytes() -> list[int]:
    """Of the container, as seen from inside (cgroups of version 2, or of 1); nothing where there is no limit.
    What the kernel keeps of files is free when it is wanted.
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
    """The figure of a line like `VmData:  1234 kB`, in bytes; a terabyte where the system has no such
    file."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return 1 << 40
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith(name)), 1 << 40)
