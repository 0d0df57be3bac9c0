"""When a table service is worth it, by stats that are kept in memory: what a slice's log files weigh, and
how long ago the last action was.

Pure. The stats are hints: the plan lists what it takes (`compaction_planning`, `clean_planning`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Protocol

_MINUTE_MS: Final = 60_000
_MIB: Final = 1 << 20


class SliceLoad(Protocol):
    """What is known of a file group's newest slice. Sizes are in bytes.

    ``oldest_log_ms``: requested time of its oldest log file (Unix epoch), 0 where that is no date, None
    without log files.
    """

    @property
    def base_bytes(self) -> int: ...
    @property
    def log_count(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def oldest_log_ms(self) -> int | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DataCompactionRule:
    """A file group is due when one of the four values is reached: log bytes as a part of base bytes, log
    bytes, log files, age of the oldest log file. Log files of less than ``ratio_from_bytes`` are merged by
    readers in no time: their part does not count, or a table of small file groups would be compacted after
    every few commits. ``max_groups`` and ``max_bytes`` (read, base and log files) bound one action.
    """

    log_ratio: float = 0.5
    log_bytes: int = 64 * _MIB
    log_files: int = 40
    log_age_ms: int = 30 * _MINUTE_MS
    ratio_from_bytes: int = _MIB
    max_groups: int = 64
    max_bytes: int = 4096 * _MIB

    def score(self, load: SliceLoad, now_ms: int) -> float:
        """How many times the value that is reached most is reached; from 1.0 on the group is due. 0.0 without
        log files.
        """
        if not load.log_count:
            return 0.0
        age_ms = max(now_ms - (load.oldest_log_ms or now_ms), 0)
        return max(
            load.log_bytes / max(self.log_ratio * load.base_bytes, self.ratio_from_bytes),
            load.log_bytes / self.log_bytes,
            load.log_count / self.log_files,
            age_ms / self.log_age_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexCompactionRule:
    """The metadata table is due when its log bytes reach a part of its base bytes, or a shard has many log
    files, but not sooner than ``min_ms`` after the last action; ``max_ms`` after the first log file in any
    case, because archival waits for it. Log files of less than ``ratio_from_bytes`` together are read in no
    time: their part does not count, or a new or small table would be compacted at its first commit and then
    every minute.
    """

    log_ratio: float = 0.3
    ratio_from_bytes: int = _MIB
    log_files: int = 120
    min_ms: int = _MINUTE_MS
    max_ms: int = 15 * _MINUTE_MS

    def reason(self, loads: Collection[SliceLoad], now_ms: int, since_last_ms: int | None) -> str | None:
        """Why a compaction is due, or None. ``since_last_ms``: since the last one ended, None without one."""
        if since_last_ms is not None and since_last_ms < self.min_ms:
            return None
        log_bytes = sum(load.log_bytes for load in loads)
        base_bytes = sum(load.base_bytes for load in loads)
        most = max((load.log_count for load in loads), default=0)
        if not most:
            return None
        if log_bytes >= max(self.log_ratio * base_bytes, self.ratio_from_bytes):
            return f"log files have {log_bytes} bytes, base files {base_bytes}"
        if most >= self.log_files:
            return f"a shard has {most} log files"
        oldest = min((load.oldest_log_ms for load in loads if load.oldest_log_ms), default=now_ms)
        if now_ms - oldest >= self.max_ms:
            return f"the oldest log file is {(now_ms - oldest) // 1000} s old"
        return None
