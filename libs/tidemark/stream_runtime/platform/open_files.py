"""Raises the limit of open files and connections of this process and of those that it starts.

Many systems begin with a soft limit of 1024, and let a process raise it up to the hard limit. Kafka clients
(sockets and pipes for each broker), RocksDB and Spark open many files. A Kafka client that reaches the limit
does not fail: it stops answering.
"""

from __future__ import annotations

import resource
from typing import Final

WANTED: Final = 65_536
"""Not higher, because some programs loop over all file numbers that the limit allows."""


def allow_open_files() -> int:
    """Raises the soft limit to `WANTED`, or to the hard limit if that is less. Never lowers it. Returns the
    soft limit in effect.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = WANTED if hard == unlimited else min(WANTED, hard)
    if soft == unlimited or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # The system has another rule. `tidemark doctor` reports the limit.
        return soft
    return wanted
