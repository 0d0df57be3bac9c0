"""The commits that an earlier run has checked, and whether the timelines have only been continued since.

They have if every write of that time still exists or was archived, and no instant since completed before
the newest of that time. Otherwise (rollback, restore, a writer without the lock) every commit is checked
again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemark.hudi_format.timeline import Timeline, parse_file_name


@dataclass(frozen=True)
class OurCommit:
    """A commit of ours. ``ranges``: metadata key -> lane -> half-open range of offsets that the epoch
    covers.
    """

    instant: str
    epoch: int
    ranges: Mapping[str, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True)
class SeenCommits:
    """Names of the completed files on both timelines, and the newest commit of ours."""

    data: frozenset[str]
    metadata: frozenset[str]
    last: OurCommit | None

    @classmethod
    def of(cls, data: Timeline, metadata: Timeline, last: OurCommit | None) -> SeenCommits:
        """The commits that are completed now."""
        return cls(_names(data), _names(metadata), last)

    def still_holds(self, data: Timeline, metadata: Timeline) -> bool:
        """Whether both timelines have only been continued since."""
        return _went_on(self.data, data) and _went_on(self.metadata, metadata)


def _names(timeline: Timeline) -> frozenset[str]:
    return frozenset(instant.file_name for instant in timeline.completed())


def _went_on(before: frozenset[str], timeline: Timeline) -> bool:
    now = _names(timeline)
    for name in before - now:
        instant = parse_file_name(name)
        if instant is not None and instant.action.is_write and not timeline.is_archived(instant.requested):
            return False
    newest = max((_completion(name) for name in before), default="")
    return all(_completion(name) > newest for name in now - before)


def _completion(name: str) -> str:
    instant = parse_file_name(name)
    return str(instant.completion) if instant is not None else ""
