"""Plans which files a clean deletes: those of slices and replaced file groups that nobody reads any more.

Pure. The horizon H is a moment: every reader that listed the table at or after it keeps its files. A slice is
superseded by the first later base file of its group that readers saw at or before H. Never deleted, whatever
H is:

* the newest slice with a base file, and everything after it;
* the slices that a pending plan names (`CleanBounds.plans`): those that were the newest when it was made;
* slices that a savepoint names a file of, and in the metadata table the newest slice that began at or before
  the oldest savepoint, with everything after it: without it Hudi's restore fails after it has deleted files
  (TABLE_SERVICES.md, section 3.4). So that the newest write can get a savepoint, however long ago it was, the
  metadata table keeps the same for it.

Replaced groups go wholly, and only then may their replacecommit be archived, or they would be rows again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidemark.hudi_format.file_group.names import BaseFileName
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.model import is_bootstrap_instant
from tidemark.hudi_format.table_services.operations import CleanPlan
from tidemark.hudi_format.timeline import Action, Instant, Timeline

FILES_MAX: Final = 2_000
"""How many files one clean deletes at most."""

Slices: TypeAlias = Mapping[FileGroupId, Sequence[FileSlice]]
ListedNames: TypeAlias = Mapping[str, Collection[str]]
"""Folder of a partition -> names of files in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanBounds:
    """What a clean has to leave. ``horizon``: H as an instant time.

    ``plans``: file group -> requested time of the oldest pending plan that names it, of any engine.
    ``savepoints``: requested time -> partition -> names of the files that it keeps. ``first_pending``:
    requested time of the oldest pending write of anybody, None without one. ``last_write``: that of the data
    table's newest completed write, None without one.
    """

    horizon: str
    plans: Mapping[FileGroupId, str] = field(default_factory=dict)
    savepoints: Mapping[str, Mapping[str, Collection[str]]] = field(default_factory=dict)
    first_pending: str | None = None
    last_write: str | None = None

    def of(self, group: FileGroupId) -> str:
        """The horizon of one file group."""
        return min(self.horizon, self.plans.get(group, self.horizon))

    def savepointed(self, group: FileGroupId) -> frozenset[str]:
        """The names of files that savepoints keep in the group's partition."""
        kept = [partitions.get(group[0], ()) for partitions in self.savepoints.values()]
        return frozenset(name for names in kept for name in names)


def superseded_groups(names: Iterable[str]) -> frozenset[str]:
    """The ids of file groups in a folder that may have a superseded slice: those with several base files, or
    with log files that were requested before the only one. Most groups of a table are none of them.
    """
    bases: dict[str, list[str]] = {}
    oldest_log: dict[str, str] = {}
    for name in names:
        if name.startswith("."):
            file_id, _, rest = name[1:].partition("_")
            if ".log." in rest:
                instant = rest.partition(".")[0]
                oldest_log[file_id] = min(instant, oldest_log.get(file_id, instant))
        elif name.count("_") == 2:
            file_id, _, rest = name.partition("_")
            bases.setdefault(file_id, []).append(rest.partition("_")[2].partition(".")[0])
    return frozenset(
        file_id
        for file_id, instants in bases.items()
        if len(instants) > 1 or oldest_log.get(file_id, instants[0]) < instants[0]
    )


def horizon(
    now: str,
    retained_since: str,
    as_of: str | None,
    timelines: Sequence[Timeline],
    own: Collection[str],
    builds: Collection[str] = (),
) -> str:
    """H: readers that listed since ``retained_since`` (an instant time) keep their files, and so do the
    writers of the open epoch, who read ``as_of`` (a completion time), and other engines' pending writes.

    ``now`` bounds it: a time that another engine's clock made larger than ours says nothing about readers.
    ``own``: requested times of our own pending instants, which read ``as_of``. ``builds``: of the indexing
    instants whose builder may live, who reads the table as it was then. The metadata table's `0000…N`, in
    which it writes, is no time: a dead one would end all cleans.
    """
    foreign = [
        instant.requested
        for timeline in timelines
        for instant in timeline.pending()
        if holds_cleans(instant) and instant.requested not in own
    ]
    return min([now, retained_since, *([as_of] if as_of is not None else []), *foreign, *builds])


def holds_cleans(pending: Instant) -> bool:
    """Whether files that the instant's writer may read stay: it is a write, whose time is one."""
    return pending.action.is_write and not is_bootstrap_instant(pending.requested)


def plan_data_clean(
    slices: Slices,
    files: ListedNames,
    timeline: Timeline,
    replaced: Mapping[FileGroupId, str],
    bounds: CleanBounds,
    instant: str,
    *,
    seen_at: Callable[[str], str | None],
    files_max: int = FILES_MAX,
    is_whole_table: bool = True,
) -> CleanPlan | None:
    """A clean of the data table; None when nothing can go.

    ``slices``: all slices of each file group that may have superseded ones, oldest first
    (`TableView.every_slice`). ``files``: the files of these groups, and perhaps of others, by each partition
    that was looked at. ``replaced``: as `TableView.replaced`, with all files of its groups. ``seen_at``:
    requested time of a committed instant -> when readers saw it first, None for one that is not committed.
    ``is_whole_table``: no other group may have superseded slices; else no instant is named, which would keep
    Hudi's clean from looking there.
    """
    listed = _Listed(files)
    goes: dict[FileGroupId, list[str]] = {}
    left: dict[FileGroupId, list[FileSlice]] = {}
    for group, of_group in sorted(slices.items()):
        if group in replaced:
            whole = _replaced_group_goes(group, of_group, replaced[group], bounds)
            kept = len(of_group) if not whole else 0
            gone: Sequence[FileSlice] = of_group if whole else ()
        else:
            kept = _first_kept(of_group, bounds.of(group), seen_at)
            named = bounds.savepointed(group)
            gone = [file_slice for file_slice in of_group[:kept] if not _is_named(file_slice, named)]
        left[group] = [file_slice for file_slice in of_group if file_slice not in gone]
        names = [name for file_slice in gone for name in listed.of_slice(file_slice)]
        if names:
            goes[group] = names
    taken, all_taken = _bounded(goes, files_max)
    if not taken:
        return None
    complete = all_taken and is_whole_table
    retained = _retained(timeline, left, replaced, bounds) if complete else None
    another = any(
        pending.action is Action.CLEAN and pending.requested != instant for pending in timeline.pending()
    )
    stays = {completed for group, completed in replaced.items() if another or not listed.has_none_of(group)}
    retained = _not_behind(retained, timeline, stays)
    return _plan(instant, False, taken, timeline, retained, bounds)


def plan_index_clean(
    slices: Slices,
    files: ListedNames,
    timeline: Timeline,
    bounds: CleanBounds,
    instant: str,
    *,
    seen_at: Callable[[str], str | None],
    files_max: int = FILES_MAX,
) -> CleanPlan | None:
    """A clean of the metadata table; None when nothing can go. Parameters as `plan_data_clean`, all of the
    metadata table but the savepoints.
    """
    listed = _Listed(files)
    last = [bounds.last_write] if bounds.last_write is not None else []
    oldest = min([*bounds.savepoints, *last], default=None)
    goes: dict[FileGroupId, list[str]] = {}
    for group, of_group in sorted(slices.items()):
        kept = _first_kept(of_group, bounds.of(group), seen_at)
        if oldest is not None:
            with_base = [
                n
                for n, file_slice in enumerate(of_group)
                if file_slice.base_file and file_slice.base_instant <= oldest
            ]
            kept = min(kept, max(with_base, default=0))
        names = [name for file_slice in of_group[:kept] for name in listed.of_slice(file_slice)]
        if names:
            goes[group] = names
    taken, _ = _bounded(goes, files_max)
    return _plan(instant, True, taken, timeline, None, bounds) if taken else None


def recheck_clean(plan: CleanPlan, again: CleanPlan | None) -> CleanPlan | None:
    """What of the plan may still be deleted, by a plan that was made ``again`` without a limit of files; None
    when nothing may.
    """
    if again is None:
        return None
    may = {partition: set(names) for partition, names in again.files.items()}
    files = {
        partition: kept
        for partition, names in plan.files.items()
        if (kept := tuple(name for name in names if name in may.get(partition, ())))
    }
    if not files:
        return None
    retained = plan.retained if files == plan.files else again.retained
    return CleanPlan(
        plan.instant, plan.is_index, files, plan.last_completed, retained, again.savepoints, plan.leftovers
    )


class _Listed:
    """The files of folders. Of a slice it also finds base files with other write tokens, which attempts of
    one task left, and which are in no slice.
    """

    def __init__(self, files: ListedNames) -> None:
        # Thousands of log files are looked up in each folder, under the lock.
        self._files = {partition: frozenset(names) for partition, names in files.items()}
        self._bases: dict[tuple[str, str, str], list[str]] = {}
        self._groups: set[FileGroupId] = set()
        for partition, names in files.items():
            for name in names:
                # Of a log file only its file group counts, and there are many of them under the lock. So the
                # rest of its name is not parsed: `.f1-0_20260101000000000.log.1_0-1-2` is of f1-0.
                if name.startswith("."):
                    if ".log." in name:
                        self._groups.add((partition, name[1:].partition("_")[0]))
                elif (parsed := BaseFileName.parse(name)) is not None:
                    self._groups.add((partition, parsed.file_id))
                    key = (partition, parsed.file_id, parsed.instant)
                    self._bases.setdefault(key, []).append(name)

    def has_none_of(self, group: FileGroupId) -> bool:
        """Whether no file of the group is there; False where nobody looked."""
        return group[0] in self._files and group not in self._groups

    def of_slice(self, file_slice: FileSlice) -> Iterator[str]:
        """The names of the slice's files that are there."""
        partition, file_id = file_slice.partition_path, file_slice.file_id
        yield from self._bases.get((partition, file_id, file_slice.base_instant), ())
        names = self._files.get(partition, ())
        yield from (log for log in file_slice.log_files if log in names)


def _first_kept(of_group: Sequence[FileSlice], limit: str, seen_at: Callable[[str], str | None]) -> int:
    """The number of the oldest slice that a reader since ``limit`` may use; those before it may go."""
    for number in range(len(of_group) - 1, 0, -1):
        if of_group[number].base_file is not None:
            seen = seen_at(of_group[number].base_instant)
            if seen is not None and seen <= limit:
                return number
    return 0


def _is_named(file_slice: FileSlice, names: Collection[str]) -> bool:
    return file_slice.base_file in names or any(log in names for log in file_slice.log_files)


def _replaced_group_goes(
    group: FileGroupId, of_group: Sequence[FileSlice], completed: str, bounds: CleanBounds
) -> bool:
    named = bounds.savepointed(group)
    is_kept = group in bounds.plans or any(_is_named(file_slice, named) for file_slice in of_group)
    return completed <= bounds.horizon and not is_kept


def _bounded(
    goes: Mapping[FileGroupId, list[str]], files_max: int
) -> tuple[dict[str, tuple[str, ...]], bool]:
    """(partition -> names of at most so many files, of whole groups where they fit; whether that is all)."""
    taken: dict[str, list[str]] = {}
    count = 0
    for (partition, _), names in goes.items():
        room = files_max - count
        if room <= 0:
            break
        taken.setdefault(partition, []).extend(names[:room])
        count += len(names[:room])
    everything = sum(len(names) for names in goes.values())
    return {partition: tuple(sorted(names)) for partition, names in taken.items()}, count == everything


def _retained(
    timeline: Timeline,
    left: Mapping[FileGroupId, Sequence[FileSlice]],
    replaced: Mapping[FileGroupId, str],
    bounds: CleanBounds,
) -> tuple[str, str] | None:
    """The first completed write at or after H, the last one where the table was not written since; None if
    Hudi's rule would delete more for it.

    Hudi keeps of each group the newest slice that began before that instant and all later ones, and replaced
    groups of later replacecommits; what savepoints name it looks for by itself. Its next clean looks only at
    partitions that were written since the instant, so what was left behind would stay for good. It refuses a
    savepoint of an earlier write, and time travel to before it: without an instant it would do either with
    what is left.
    """
    writes = [instant for instant in timeline.completed() if instant.action.is_write]
    if not writes:
        return None
    earliest = next((instant for instant in writes if instant.requested >= bounds.horizon), writes[-1])
    if bounds.first_pending is not None and earliest.requested > bounds.first_pending:
        return None
    for group, of_group in left.items():
        named = bounds.savepointed(group)
        older = [file_slice for file_slice in of_group if file_slice.base_instant < earliest.requested]
        hidden = older if group in replaced else older[:-1]
        is_replaced_later = group in replaced and replaced[group] >= earliest.requested
        if not is_replaced_later and any(not _is_named(file_slice, named) for file_slice in hidden):
            return None
    return earliest.requested, earliest.action.completed_word


def _not_behind(
    retained: tuple[str, str] | None, timeline: Timeline, stays: Collection[str]
) -> tuple[str, str] | None:
    """An instant that is not behind a replacecommit whose file groups are there; ``stays``: when those
    completed.

    Hudi's archival takes all replacecommits before this instant for cleaned, and those before the clean when
    it names none. Archived, they hide their groups from nobody any more, and old rows are there again. This
    clean deletes after it completes, so only the next one may name an instant behind what it takes itself.

    Where no instant should be named it is the timeline's first write: from when that is archived on, Hudi
    looks everywhere.
    """
    writes = [instant for instant in timeline.completed() if instant.action.is_write]
    held = [instant for instant in writes if instant.completion in stays]
    if not held:
        return retained
    if retained is None:
        return writes[0].requested, writes[0].action.completed_word
    return min(retained, (held[0].requested, held[0].action.completed_word))


def _plan(
    instant: str,
    is_index: bool,
    files: dict[str, tuple[str, ...]],
    timeline: Timeline,
    retained: tuple[str, str] | None,
    bounds: CleanBounds,
) -> CleanPlan:
    writes = [instant.requested for instant in timeline.completed() if instant.action.is_write]
    last = max(writes, default="")
    savepoints = tuple(sorted(bounds.savepoints)) if not is_index else ()
    return CleanPlan(instant, is_index, files, last, retained, savepoints)
