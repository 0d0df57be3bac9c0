"""How many files and connections this process, and what it starts, may have open.

Systems often give a process 1024 to begin with, for programs of former times, and let it take more by itself:
this takes them. Kafka clients (sockets and pipes for each broker), RocksDB and Spark hold many, and a client
that gets no more goes silent rather than fail.
"""

from __future__ import annotations

import resource
from typing import Final

WANTED: Final = 65_536
"""No more than that: some programs walk over all that they may have."""


def allow_open_files() -> int:
    """Raises the soft limit as far as the hard one lets it; returns what holds. Never lowers it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    wanted = WANTED if hard == unlimited else min(WANTED, hard)
    if soft == unlimited or soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        # A system with a rule of its own: `tidemark doctor` says what there is.
        return soft
    return wanted
