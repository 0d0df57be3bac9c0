"""Which files a clean deletes, by policy.

Common to all: of a file group the newest committed slice stays, by commits and by hours the newest one before
the earliest instant to retain, too; slices from the one on that a scheduled
compaction starts from stay; a slice with a file that a savepoint names stays. What was replaced goes wholly,
once the replacecommit is old enough. A partition with no file group left is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tests.hudi_rules.slices import Group, Slice
from tests.hudi_rules.table import HudiTable
from tests.hudi_rules.timeline import Instant, Timeline

COMMITS, VERSIONS, HOURS = "KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS", "KEEP_LATEST_BY_HOURS"


@dataclass(frozen=True)
class CleanPlan:
    """``retained``: the earliest instant to retain, None where the policy counts versions. ``files``:
    partition path -> names. ``partitions``: those that are deleted.
    """

    policy: str
    retained: Instant | None
    files: dict[str, list[str]] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()


BLOCKING: Final = frozenset({"commit", "deltacommit", "replacecommit", "compaction", "clustering"})
"""Pending, these hold a clean back."""


def earliest_commit(timeline: Timeline, commits: int, blocking: frozenset[str] = BLOCKING) -> Instant | None:
    """The newest but ``commits`` completed write, or the newest one below the first pending one if that is
    older; None: there are not more than so many, or none below the pending one.
    """
    completed = timeline.writes()
    if len(completed) <= commits:
        return None
    nth = completed[len(completed) - commits]
    pending = timeline.pending(*blocking)[:1]
    if not pending or nth < pending[0]:
        return nth
    return max((each for each in completed if each < pending[0]), default=None)


def earliest_since(timeline: Timeline, time: str) -> Instant | None:
    """The first completed write that was requested at this time or later."""
    return min((each for each in timeline.writes() if each.requested >= time), default=None)


def plan_by_commits(table: HudiTable, commits: int) -> CleanPlan | None:
    """KEEP_LATEST_COMMITS; None: nothing to do."""
    retained = earliest_commit(table.timeline, commits)
    return None if retained is None else _plan(table, COMMITS, retained, 0)


def plan_by_time(table: HudiTable, time: str) -> CleanPlan | None:
    """KEEP_LATEST_BY_HOURS, ``time`` = so many hours ago."""
    retained = earliest_since(table.timeline, time)
    return None if retained is None else _plan(table, HOURS, retained, 0)


def plan_by_versions(table: HudiTable, versions: int) -> CleanPlan | None:
    """KEEP_LATEST_FILE_VERSIONS."""
    return _plan(table, VERSIONS, None, versions)


def _plan(table: HudiTable, policy: str, retained: Instant | None, versions: int) -> CleanPlan | None:
    starts = _compacted_from(table)
    files: dict[str, list[str]] = {}
    left: dict[str, int] = dict.fromkeys(table.files, 0)
    for group in sorted(table.groups):
        gone = table.replaced.get(group)
        slices = [each for each in table.slices(group) if _is_committed(table, each)]
        if gone is not None:
            unwanted = slices if retained is None or gone < retained.requested else []
            unwanted = [each for each in unwanted if not _is_kept(table, group, each)]
            left[group[0]] += len(slices) - len(unwanted)
        else:
            left[group[0]] += 1
            unwanted = list(_unwanted(table, group, slices, policy, retained, versions, starts.get(group)))
        for each in unwanted:
            files.setdefault(group[0], []).extend(each.files)
    pending = {partition for partition, names in table.files.items() if _has_pending(table, names)}
    partitions = tuple(p for p, count in left.items() if count == 0 and table.files[p] and p not in pending)
    return CleanPlan(policy, retained, files, partitions) if files or partitions else None


def _unwanted(
    table: HudiTable,
    group: Group,
    slices: list[Slice],
    policy: str,
    retained: Instant | None,
    versions: int,
    start: str | None,
) -> Iterable[Slice]:
    newest_first = slices[::-1]
    if policy == VERSIONS:
        counted = [each for each in newest_first if start is None or each.instant < start]
        # What a scheduled compaction needs counts as one version.
        rest = counted[versions if start is None else versions - 1 :]
        return [each for each in rest if not _is_kept(table, group, each)]
    assert retained is not None
    # Also the last slice before the instant to retain: a query that began then still reads it.
    before = [each.instant for each in newest_first if each.instant < retained.requested]
    kept = {each.instant for each in newest_first[:1]} | set(before[:1])
    return [
        each
        for each in newest_first
        if each.instant < retained.requested
        and each.instant not in kept
        and (start is None or each.instant < start)
        and not _is_kept(table, group, each)
    ]


def _is_committed(table: HudiTable, each: Slice) -> bool:
    return table.timeline.counts(each.instant) or (each.base is None and bool(each.logs))


def _is_kept(table: HudiTable, group: Group, each: Slice) -> bool:
    return any(set(each.files) & keeps.get(group[0], set()) for keeps in table.savepoints.values())


def _has_pending(table: HudiTable, names: Iterable[str]) -> bool:
    return any(f"_{each.requested}" in name for each in table.timeline.pending() for name in names)


def _compacted_from(table: HudiTable) -> dict[Group, str]:
    """File group -> the base instant that its scheduled compaction starts from."""
    found: dict[Group, str] = {}
    for each in table.timeline.pending("compaction"):
        for operation in table.plan(each).get("operations") or []:
            group = (operation["partitionPath"] or "", operation["fileId"])
            found[group] = operation["baseInstantTime"]
    return found
