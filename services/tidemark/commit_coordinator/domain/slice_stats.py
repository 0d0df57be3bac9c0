"""What is known of each file group's newest slice: the size of its base file, and its log files.

Pure. The stats say when a compaction is worth it, and when writing has run ahead of the compactions. They
are hints: a plan lists the groups that it takes. They come from listings and, since the last one, from our
own commits:

* a commit adds a log file to a slice, or begins a slice with a base file;
* a compaction with instant T puts one base file in the place of the old one and of the logs that it read.
  Logs that completed after T stay. The stats do not keep the times of single logs, so the oldest of those
  that stay counts as old as T.

Example: a group has a base file of 10 MB and logs of 1, 2 and 3 MB. A compaction reads the first two and
writes 11 MB. Then the group has a base file of 11 MB and a log of 3 MB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

GroupName: TypeAlias = tuple[str, str]
"""(partition path, file id)"""
_MERGED_AGAIN_MS: Final = 10 * 60_000
_MERGED_AGAIN_MS_MAX: Final = 6 * 3_600_000


@dataclass(frozen=True, slots=True)
class SliceStats:
    """The newest slice of one file group. Sizes are in bytes.

    ``oldest_log_ms``: requested time of its oldest log file (Unix epoch), 0 for one of the index's bootstrap;
    None without log files.
    """

    partition_path: str
    file_id: str
    base_bytes: int = 0
    log_count: int = 0
    log_bytes: int = 0
    oldest_log_ms: int | None = None

    @property
    def group(self) -> GroupName:
        """(partition path, file id)."""
        return self.partition_path, self.file_id

    @property
    def size(self) -> int:
        """Bytes of all files of the slice."""
        return self.base_bytes + self.log_bytes

    def with_log(self, size: int, at_ms: int) -> SliceStats:
        """The slice after a commit added a log file; ``at_ms``: requested time of the commit."""
        oldest = at_ms if self.oldest_log_ms is None else min(self.oldest_log_ms, at_ms)
        count, log_bytes = self.log_count + 1, self.log_bytes + size
        return SliceStats(self.partition_path, self.file_id, self.base_bytes, count, log_bytes, oldest)

    def with_base(self, size: int) -> SliceStats:
        """The slice that a commit began with a base file."""
        return SliceStats(self.partition_path, self.file_id, size)

    def compacted(self, base_bytes: int, log_count: int, log_bytes: int, at_ms: int) -> SliceStats:
        """The slice after a compaction with requested time ``at_ms`` read so many logs and bytes of it."""
        left = max(self.log_count - log_count, 0)
        if left == 0:
            return self.with_base(base_bytes)
        left_bytes = max(self.log_bytes - log_bytes, 0)
        return SliceStats(self.partition_path, self.file_id, base_bytes, left, left_bytes, at_ms)


@dataclass(frozen=True, slots=True)
class FailedMerge:
    """The merge of a file group failed so many times, last at ``at_ms`` (Unix epoch) because of ``reason``.
    ``oldest_log_ms``: that of its slice then.
    """

    tries: int
    at_ms: int
    reason: str
    oldest_log_ms: int | None = None

    @property
    def until_ms(self) -> int:
        """It is not tried again before this time (Unix epoch): the pause doubles from try to try."""
        pause_ms = _MERGED_AGAIN_MS << min(self.tries - 1, 16)
        return self.at_ms + min(pause_ms, _MERGED_AGAIN_MS_MAX)

    def is_of(self, stats: SliceStats) -> bool:
        """Whether the slice has still the log files that could not be merged. Another engine may have merged
        them: then its oldest log file is newer, or there is none.
        """
        oldest = stats.oldest_log_ms
        return oldest is not None and (self.oldest_log_ms is None or oldest <= self.oldest_log_ms)


@dataclass(frozen=True)
class TableSlices:
    """The newest slices of the whole table at one moment: of its data, and of its metadata table.

    ``is_listed``: False from a rewind until the files are listed anew. The stats are those of before then,
    and another writer may have changed every group. ``listing``: how often they were listed. ``held``: file
    groups of the data that another engine planned to rewrite, as of the last look at the timeline: we do not
    compact them. ``failed``: file groups of the data whose merges failed; they are left out of compactions,
    too, and tried again alone.
    """

    data: tuple[SliceStats, ...] = ()
    index: tuple[SliceStats, ...] = ()
    is_listed: bool = False
    listing: int = 0
    held: frozenset[GroupName] = frozenset()
    failed: Mapping[GroupName, FailedMerge] = field(default_factory=dict)

    @property
    def left_out(self) -> frozenset[GroupName]:
        """The groups that no compaction of ours takes with others."""
        return self.held.union(self.failed)


class SliceBook:
    """The newest slice of each file group of one table; not thread-safe."""

    def __init__(self, slices: Iterable[SliceStats] = ()) -> None:
        self._slices = {slice_.group: slice_ for slice_ in slices}
        self._listed: tuple[SliceStats, ...] | None = None

    def __iter__(self) -> Iterator[SliceStats]:
        return iter(self._slices.values())

    def of(self, partition_path: str, file_id: str) -> SliceStats:
        """The newest slice of the group; an empty one when it is not known."""
        group = (partition_path, file_id)
        return self._slices.get(group) or SliceStats(partition_path, file_id)

    def put(self, slice_: SliceStats) -> None:
        """The group's newest slice is this one."""
        self._slices[slice_.group] = slice_
        self._listed = None

    def listed(self) -> tuple[SliceStats, ...]:
        """All slices; the same tuple until something changes."""
        if self._listed is None:
            self._listed = tuple(self._slices.values())
        return self._listed
