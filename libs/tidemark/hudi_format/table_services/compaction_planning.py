"""Plans compactions from timelines and listings of now, and asks again later whether a plan still holds.

Pure. A plan with requested time T merges exactly what completed before T (TABLE_SERVICES.md, section 1). So
it is the same whenever it is made, unless another engine rolled back, compacted or cleaned meanwhile, or a
clock was wrong: whoever commits it makes it again, with the same T, and compares.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.file_group.slices import FileGroupId, FileSlice
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.metadata_table.snapshot import metadata_slices
from tidemark.hudi_format.metadata_table.stats_layout import StatsLayout
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import instant_from_ms, instant_to_ms, is_bootstrap_instant
from tidemark.hudi_format.table_services.operations import CompactionPlan, MergeOperation
from tidemark.hudi_format.table_services.triggers import DataCompactionRule
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action

SizedFiles: TypeAlias = Mapping[str, Mapping[str, int]]
"""Folder of a partition -> name of each file in it -> bytes."""

_PENDING_MERGES: Final = (Action.COMPACTION, Action.LOG_COMPACTION)


@dataclass(frozen=True, slots=True)
class NotNow:
    """Nothing can be planned, or a plan does not hold any more; ``reason`` is for the operator."""

    reason: str


@dataclass(frozen=True, slots=True)
class _Load:
    """A slice as `DataCompactionRule.score` looks at it."""

    base_bytes: int
    log_count: int
    log_bytes: int
    oldest_log_ms: int | None


def plan_index_compaction(
    validity: InstantValidity, files: SizedFiles, instant: str, slices: Sequence[FileSlice] | None = None
) -> CompactionPlan | NotNow | None:
    """A compaction of every file group of the metadata table that has log files; None when none has.

    All at once: an instant leaves both timelines only behind a compaction, and then log files of it that a
    partial compaction left out would count no more (TABLE_SERVICES.md, section 2.4). ``validity``: of the
    data timeline, and of the metadata table's listed after it. ``files``: its partitions. ``slices``: of what
    completed before the instant, where the caller has them: behind 15 000 commits that takes half a second.
    """
    reason = _why_index_waits(validity, instant)
    if reason is not None:
        return NotNow(reason)
    if slices is None:
        slices = index_slices_before(instant, validity, files)
    operations = tuple(_operation(file_slice, files) for file_slice in slices if file_slice.log_files)
    return CompactionPlan(instant, True, commit_schema(), operations) if operations else None


def index_slices_before(instant: str, validity: InstantValidity, files: SizedFiles) -> list[FileSlice]:
    """The metadata table's slices of what completed before the instant."""
    return metadata_slices(files, validity, as_of=before(instant))


def recheck_index_compaction(
    plan: CompactionPlan,
    validity: InstantValidity,
    files: SizedFiles,
    slices: Sequence[FileSlice] | None = None,
) -> CompactionPlan | NotNow:
    """The plan, if it would be made again (arguments: as `plan_index_compaction`). A compaction of the
    metadata table is whole or void.
    """
    again = plan_index_compaction(validity, files, plan.instant, slices)
    if isinstance(again, NotNow):
        return again
    if again is None or again.operations != plan.operations:
        return NotNow("the metadata table's files are no longer those of the plan")
    newer = _with_newer_base(metadata_slices(_base_files(files), validity), plan)
    if newer:
        return NotNow(f"file group {newer[0][1]} of the metadata table has a newer base file")
    return plan


def plan_data_compaction(
    view: TableView,
    slices: Sequence[FileSlice],
    files: SizedFiles,
    instant: str,
    schema: str,
    rule: DataCompactionRule,
    *,
    unlisted: Collection[str] = (),
    stats: StatsLayout | None = None,
) -> CompactionPlan | None:
    """A compaction of the file groups that need it most, by ``rule``; None when none is due.

    ``slices``: `slices_before` the instant. ``files``: the partitions that were listed. ``unlisted``: those
    that were not, and may have log files. File groups that another engine is about to rewrite are left out.
    ``stats``: the column stats that the table keeps.
    """
    now_ms = instant_to_ms(instant)
    due: list[tuple[float, MergeOperation]] = []
    behind: set[str] = set(unlisted)
    left_to_others = view.under_plans()
    for file_slice in slices:
        if not file_slice.log_files:
            continue
        operation = _operation(file_slice, files)
        score = rule.score(_load(operation), now_ms)
        if score >= 1.0 and _group(file_slice) not in left_to_others:
            due.append((score, operation))
        else:
            behind.add(operation.partition)
    taken, left = _most_urgent(due, rule)
    behind.update(operation.partition for operation in left)
    if not taken:
        return None
    return CompactionPlan(instant, False, schema, tuple(taken), tuple(sorted(behind)), stats=stats)


def slices_before(instant: str, view: TableView, files: SizedFiles) -> list[FileSlice]:
    """The slices of what completed before the instant: what a compaction of this instant may take."""
    return view.slices(files, as_of=before(instant))


def recheck_data_compaction(
    plan: CompactionPlan, view: TableView, files: SizedFiles
) -> CompactionPlan | NotNow:
    """The plan without the file groups that have other files than planned, a newer base file, or are
    replaced. Their partitions are among the missing ones then. Operations keep their numbers (`dropped`).
    """
    now = {_group(file_slice): file_slice for file_slice in slices_before(plan.instant, view, files)}
    newer = set(_with_newer_base(view.slices(_base_files(files)), plan))
    dropped = set(plan.dropped)
    for ordinal, operation in plan.kept():
        group = (operation.partition, operation.file_id)
        found = now.get(group)
        stands = found is not None and _operation(found, files) == operation
        if not stands or group in newer or group in view.replaced:
            dropped.add(ordinal)
    if len(dropped) == len(plan.operations):
        return NotNow("no file group has the planned files any more")
    missing = {plan.operations[ordinal].partition for ordinal in dropped} | set(plan.missing_partitions)
    return plan.without(sorted(dropped), sorted(missing))


def before(instant: str) -> str:
    """The latest completion time that lies before the instant."""
    return instant_from_ms(instant_to_ms(instant) - 1)


def _why_index_waits(validity: InstantValidity, instant: str) -> str | None:
    pending = {instant.requested for instant in validity.data.pending()}
    for commit in validity.metadata.completed(Action.DELTA_COMMIT):
        if commit.requested in pending:
            return f"instant {commit.requested} is completed in the metadata table and pending in the table"
        late = str(commit.completion) >= instant or is_bootstrap_instant(commit.requested)
        if not late and not validity.is_valid(commit.requested):
            return f"the metadata table has a commit of {commit.requested}, which the table does not have"
    merging = [merge for merge in validity.metadata.pending(*_PENDING_MERGES) if merge.requested != instant]
    if merging:
        return f"another engine is about to compact the metadata table ({merging[0].file_name})"
    # Its block would be merged on top of a base file that has a part of what it holds. In `files` an entry
    # and the tombstone that removed it are both missing in the block: the entry would be back.
    folded = validity.metadata.completed(Action.LOG_COMPACTION)
    crossing = [commit for commit in folded if instant <= str(commit.completion)]
    return f"log compaction {crossing[0].file_name} ran meanwhile" if crossing else None


def _base_files(files: SizedFiles) -> Mapping[str, Sequence[str]]:
    """The files without log files: which base file is the newest does not depend on these."""
    return {
        partition: [name for name in names if not name.startswith(".")] for partition, names in files.items()
    }


def _with_newer_base(slices: Sequence[FileSlice], plan: CompactionPlan) -> list[FileGroupId]:
    """The plan's groups whose newest base file is another one than planned."""
    planned = {(operation.partition, operation.file_id): operation.base_file for _, operation in plan.kept()}
    return [
        _group(file_slice)
        for file_slice in slices
        if _group(file_slice) in planned and file_slice.base_file != planned[_group(file_slice)]
    ]


def _most_urgent(
    due: list[tuple[float, MergeOperation]], rule: DataCompactionRule
) -> tuple[list[MergeOperation], list[MergeOperation]]:
    """(what one action takes, in order of partition and file id; what it leaves). The most urgent group is
    taken however large it is.
    """
    due.sort(key=lambda scored: (-scored[0], scored[1].partition, scored[1].file_id))
    taken: list[MergeOperation] = []
    left: list[MergeOperation] = []
    total = 0
    for _, operation in due:
        size = operation.base_bytes + operation.log_bytes
        fits = not taken or (len(taken) < rule.max_groups and total + size <= rule.max_bytes)
        (taken if fits else left).append(operation)
        total += size if fits else 0
    return sorted(taken, key=lambda operation: (operation.partition, operation.file_id)), left


def _operation(file_slice: FileSlice, files: SizedFiles) -> MergeOperation:
    sizes = files[file_slice.partition_path]
    return MergeOperation(
        partition=file_slice.partition_path,
        file_id=file_slice.file_id,
        base_instant=file_slice.base_instant,
        base_file=file_slice.base_file,
        log_files=file_slice.log_files,
        log_bytes=sum(sizes[name] for name in file_slice.log_files),
        base_bytes=sizes[file_slice.base_file] if file_slice.base_file else 0,
    )


def _load(operation: MergeOperation) -> _Load:
    # They are in the order of their instants.
    times = (ms for name in operation.log_files if (ms := _requested_ms(name)) is not None)
    oldest = next(times, None)
    return _Load(operation.base_bytes, len(operation.log_files), operation.log_bytes, oldest)


def _requested_ms(log_file: str) -> int | None:
    parsed = LogFileName.parse(log_file)
    try:
        return None if parsed is None else instant_to_ms(parsed.instant)
    except HudiFormatError:
        return None


def _group(file_slice: FileSlice) -> FileGroupId:
    return file_slice.partition_path, file_slice.file_id
