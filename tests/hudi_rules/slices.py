"""File slices: which files of a file group a Hudi reader merges.

Every base file begins a slice, also one of an instant that is not committed; so does a scheduled compaction.
A log file belongs to the slice with the greatest instant that is not after the completion time of the log's
own instant. A slice whose instant is not committed is passed over together with its log files, and the one
before it is read: what was committed into it is not seen. (Readers that list by the metadata table do not
have the base file in their list, and so do not have that slice.) A scheduled compaction's slice is read
together with the one before it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from tests.hudi_rules.timeline import Timeline

Group = tuple[str, str]
"""(partition path, file id)"""

_BASE: Final = re.compile(r"^([^_./]+)_([0-9-]+)_(\d+)\.(parquet|hfile)$")
_LOG: Final = re.compile(r"^\.([^_./]+)_(\d+)\.log\.(\d+)_([0-9-]+)$")


class DataFile(NamedTuple):
    """A base file (version 0) or a log file, by its name without folder."""

    name: str
    file_id: str
    instant: str
    is_log: bool
    version: int
    token: str


@lru_cache(maxsize=8192)
def parse_data_file(name: str) -> DataFile | None:
    """What a name stands for; None for what is no data file."""
    if match := _BASE.match(name):
        return DataFile(name, match[1], match[3], False, 0, match[2])
    if match := _LOG.match(name):
        return DataFile(name, match[1], match[2], True, int(match[3]), match[4])
    return None


@dataclass
class Slice:
    """``instant``: what it began with; ``base`` None: a scheduled compaction, or log files alone. ``logs``:
    in the order of merging.
    """

    instant: str
    base: str | None = None
    logs: list[str] = field(default_factory=list)

    @property
    def files(self) -> list[str]:
        """All names."""
        return ([self.base] if self.base is not None else []) + self.logs


def slices_of(names: Iterable[str], timeline: Timeline, compaction: str | None = None) -> list[Slice]:
    """The slices of one file group from its files' names, oldest first, those that are not committed among
    them. ``compaction``: the instant of the one that is scheduled for the group.
    """
    files = [file for name in names if (file := parse_data_file(name)) is not None]
    found: dict[str, Slice] = {}
    for base in sorted((f for f in files if not f.is_log), key=lambda f: (f.instant, f.token)):
        if base.instant == compaction:
            continue
        found[base.instant] = Slice(base.instant, base.name)
    if compaction is not None:
        found[compaction] = Slice(compaction)
    for log in sorted((f for f in files if f.is_log), key=lambda f: (f.instant, f.version, f.token)):
        completion = timeline.completion(log.instant)
        if completion is None:
            continue
        start = max((each for each in found if each <= completion), default=None)
        if start is None:
            start = log.instant
            found[start] = Slice(start)
        found[start].logs.append(log.name)
    return [found[instant] for instant in sorted(found)]


def read_slice(
    names: Iterable[str], timeline: Timeline, compaction: str | None = None
) -> tuple[str | None, list[str]] | None:
    """Base file and log files that a snapshot reader merges for one file group; None: it sees nothing."""
    slices = slices_of(names, timeline, compaction)
    shown = [
        each
        for each in slices
        if each.instant == compaction or timeline.counts(each.instant) or each.base is None
    ]
    if not shown:
        return None
    newest = shown[-1]
    if newest.instant == compaction and len(shown) > 1:
        before = shown[-2]
        return before.base, [*before.logs, *newest.logs]
    return (newest.base, newest.logs) if newest.files else None


def begins_with_uncommitted(names: Iterable[str], counts: Callable[[str], bool]) -> bool:
    """Whether a file group of the metadata table has no base file, and its first log file is of an instant
    that does not count. That log begins the group's only slice, and readers pass over it with all later logs.
    A writer that looks for the group's slice finds none, and fails.
    """
    files = [file for name in names if (file := parse_data_file(name)) is not None]
    logs = [file for file in files if file.is_log]
    if not logs or len(logs) < len(files):
        return False
    return not counts(min(logs, key=lambda file: (file.instant, file.version, file.token)).instant)


def groups_of(files: Mapping[str, Iterable[str]]) -> dict[Group, list[str]]:
    """Partition path -> names, by file group."""
    found: dict[Group, list[str]] = {}
    for partition, names in files.items():
        for name in names:
            file = parse_data_file(name)
            if file is not None:
                found.setdefault((partition, file.file_id), []).append(name)
    return found


def scheduled(plans: Mapping[str, Mapping[str, object]]) -> dict[Group, str]:
    """File group -> instant of the compaction that is scheduled for it; ``plans``: instant -> document."""
    found: dict[Group, str] = {}
    for instant, plan in plans.items():
        operations = plan.get("operations") or []
        assert isinstance(operations, list)
        for each in operations:
            found[each["partitionPath"] or "", each["fileId"]] = instant
    return found


def clustered(plans: Mapping[str, Mapping[str, object]]) -> dict[Group, str]:
    """File group -> instant of the clustering that is scheduled for it."""
    found: dict[Group, str] = {}
    for instant, document in plans.items():
        plan = document.get("clusteringPlan") or {}
        assert isinstance(plan, dict)
        for group in plan.get("inputGroups") or []:
            for each in group.get("slices") or []:
                found[each["partitionPath"] or "", each["fileId"]] = instant
    return found


def replaced_for_good(documents: Iterable[Mapping[str, object]]) -> frozenset[Group]:
    """File groups whose rows went with them: a clustering replaces some, too, and moves their rows."""
    done = {str(n): each for n, each in enumerate(documents) if each.get("operationType") != "CLUSTER"}
    return frozenset(replaced(done))


def replaced(documents: Mapping[str, Mapping[str, object]]) -> dict[Group, str]:
    """File group -> the completed replacecommit that took it away, for every reader and at once;
    ``documents``: instant -> its metadata.
    """
    found: dict[Group, str] = {}
    for instant in sorted(documents):
        by_partition = documents[instant].get("partitionToReplaceFileIds") or {}
        assert isinstance(by_partition, dict)
        for partition, file_ids in by_partition.items():
            found.update(dict.fromkeys(((partition, each) for each in file_ids), instant))
    return found
