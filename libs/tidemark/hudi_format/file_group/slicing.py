"""Sorts file names into file slices: which base file and which log files belong together.

The rule (FORMAT.md, section 6.1): a log file belongs to the slice with the newest base instant B such that
B <= completion time of the log's instant. Instants of pending compactions count as base instants. The
requested time in the log's name does not matter: a deltacommit that was requested before a compaction and
completed after it belongs to the new slice. Example: compaction 10:00, deltacommit requested 9:59 and
completed 10:01: its log is merged with the base file of 10:00.

Files of uncommitted instants are in no slice: a base file that a writer left behind without committing takes
no log file with it (in Hudi's readers without the metadata table it does). The rule is the same for the data
table and the metadata table.

Only `table_view` and `metadata_table.snapshot` use this module (a contract in pyproject.toml). All others ask
those two, which know what was replaced and what is planned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName, parse_data_file
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.timeline import Timeline


@dataclass(slots=True)
class _Group:
    """The committed files of a file group: what a name says, and the name itself."""

    bases: list[tuple[BaseFileName, str]] = field(default_factory=list)
    logs: list[tuple[LogFileName, str]] = field(default_factory=list)


def build_slices(
    files: Mapping[str, Iterable[str]],
    timeline: Timeline,
    *,
    pending_compactions: Mapping[FileGroupId, str],
    replaced: Mapping[FileGroupId, str],
    as_of: str | None = None,
) -> list[FileSlice]:
    """The slice of each file group that readers see, ordered by partition path and file id.

    `files`: partition path -> names of the files in it; names that are neither base nor log files are
    ignored. `as_of`: a completion time; whatever completed later is ignored. None: everything committed
    counts. `pending_compactions`: file group -> requested instant of the compaction that is scheduled for it,
    also when it completed after `as_of`. Log files after it are merged with the slice before it, as every
    snapshot reader must. `replaced`: file group -> completion time of the replacecommit that replaced it.
    Replaced groups, and groups without a visible file, are left out.
    """
    slices = all_slices(files, timeline, pending_compactions=pending_compactions, as_of=as_of)
    read: list[FileSlice] = []
    for group, of_group in slices.items():
        gone = replaced.get(group)
        if gone is not None and (as_of is None or gone <= as_of):
            continue
        read.append(_merged(of_group))
    return read


def all_slices(
    files: Mapping[str, Iterable[str]],
    timeline: Timeline,
    *,
    pending_compactions: Mapping[FileGroupId, str],
    as_of: str | None = None,
) -> dict[FileGroupId, list[FileSlice]]:
    """All slices of each file group, oldest first; parameters as `build_slices`.

    The slice of a pending compaction has no base file yet, and no log files until a later instant completes.
    """
    completions = _Completions(timeline, as_of)
    slices: dict[FileGroupId, list[FileSlice]] = {}
    for partition_path in sorted(files):
        groups = _grouped(files[partition_path], completions)
        for file_id in sorted(groups):
            group = (partition_path, file_id)
            pending = pending_compactions.get(group)
            slices[group] = _slices_of(group, groups[file_id], completions, pending)
    return slices


class _Completions:
    """What is committed as of `as_of`, and when it completed. The archive is asked about as few instants as
    possible, and about each of them once.

    An archived instant is committed as of every `as_of`: those that are in use are of the last minutes, and
    archivers leave many instants active. (If another writer's commit was archived within one epoch of ours,
    that epoch is not committed anyway.)
    """

    def __init__(self, timeline: Timeline, as_of: str | None) -> None:
        self._timeline, self._as_of = timeline, as_of
        self._committed: dict[str, bool] = {}
        self._archived: dict[str, str] = {}

    def has(self, instant: str) -> bool:
        """Whether the instant is committed as of `as_of`."""
        known = self._committed.get(instant)
        if known is None:
            known = self._committed[instant] = self._is_committed(instant)
        return known

    def _is_committed(self, instant: str) -> bool:
        active = self._timeline.find(instant)
        if active is None:
            return self._timeline.is_archived(instant)
        return active.completion is not None and (self._as_of is None or active.completion <= self._as_of)

    def of_log(self, instant: str, newest_base: str) -> str:
        """The completion time of a committed log file's instant; of an archived one a time that sorts the log
        file into the same slice, as long as no base instant of its group is greater than `newest_base`.
        """
        active = self._timeline.find(instant)
        if active is not None:
            return str(active.completion)
        # It completed after it was requested, and there is no base instant in between to compare with.
        if newest_base <= instant:
            return instant
        if instant not in self._archived:
            self._archived[instant] = self._timeline.completion_time(instant) or instant
        return self._archived[instant]


def _grouped(names: Iterable[str], completions: _Completions) -> dict[str, _Group]:
    groups: dict[str, _Group] = {}
    for name in names:
        parsed = parse_data_file(name)
        if parsed is None or not completions.has(parsed.instant):
            continue
        group = groups.setdefault(parsed.file_id, _Group())
        if isinstance(parsed, BaseFileName):
            group.bases.append((parsed, name))
        elif not (parsed.is_cdc or parsed.is_archive):
            group.logs.append((parsed, name))
    return {file_id: group for file_id, group in groups.items() if group.bases or group.logs}


def _slices_of(
    group: FileGroupId, members: _Group, completions: _Completions, pending: str | None
) -> list[FileSlice]:
    bases: dict[str, str | None] = {} if pending is None else {pending: None}
    # Several attempts of one task leave several base files of one instant; the last write token counts.
    for base, name in sorted(members.bases, key=lambda base: (base[0].instant, base[0].write_token)):
        bases[base.instant] = name
    logs: dict[str, list[str]] = {instant: [] for instant in bases}
    newest_base = max(bases, default="")
    for log, name in sorted(members.logs, key=lambda log: log[0].order):
        completion = completions.of_log(log.instant, newest_base)
        start = max((instant for instant in logs if instant <= completion), default=log.instant)
        logs.setdefault(start, []).append(name)
    partition_path, file_id = group
    return [
        FileSlice(partition_path, file_id, bases.get(start), start, tuple(logs[start]))
        for start in sorted(logs)
    ]


def _merged(slices: list[FileSlice]) -> FileSlice:
    """The newest slice with a base file, extended by the logs of all later slices (pending compactions).

    Where no slice has a base file (a group with only log files), it is the oldest slice instead.
    """
    with_base = [number for number, file_slice in enumerate(slices) if file_slice.base_file is not None]
    first = slices[with_base[-1] if with_base else 0]
    later = slices[(with_base[-1] if with_base else 0) :]
    if len(later) == 1:
        return first
    logs = sorted((log for file_slice in later for log in file_slice.log_files), key=_log_order)
    return FileSlice(first.partition_path, first.file_id, first.base_file, first.base_instant, tuple(logs))


def _log_order(name: str) -> tuple[str, int, str]:
    parsed = LogFileName.parse(name)
    assert parsed is not None
    return parsed.order
