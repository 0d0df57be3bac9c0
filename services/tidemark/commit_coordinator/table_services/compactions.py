"""The handlers of compactions: of the metadata table, and of the data table's file groups (MERGE_ON_READ).

A commit makes its files in this order (hudi_format/TABLE_SERVICES.md, sections 1 and 2):

1. the requested file with the plan, the inflight file
2. base files of the same instant that are not ours are deleted, and markers: an executor of another engine
   that died may have made them
3. our base files
4. of the data table: the metadata table's deltacommit
5. the completed file

Before 1 nothing may be in the partitions: a base file of an instant that is on no timeline hides later log
files. To take back: base files, then inflight, then requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from tidemark.commit_coordinator.calls.placement import CompactedSlice, Placement
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.listed_slices import listed_stats
from tidemark.commit_coordinator.commit.unwritten_plans import settled_view
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.chosen_groups import GroupChoice, due_groups
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.index_look import IndexLook, look, look_ahead
from tidemark.commit_coordinator.table_services.instant_steps import (
    begin_instant,
    committed_names,
    complete_instant,
    completion_of,
    delete_markers,
    is_completed,
    kept_stats,
    lost_on_conflict,
    metadata_deltacommit,
    take_back_instant,
    ticket_of,
)
from tidemark.commit_coordinator.table_services.listings import (
    group_files,
    unseen_partitions,
)
from tidemark.commit_coordinator.table_services.rules import half_done_by_other
from tidemark.config.table_services_model import DataCompactionConfig, IndexCompactionConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.file_group.names import BaseFileName, parse_data_file
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions_in_use import unserved_partition
from tidemark.hudi_format.model import instant_to_ms
from tidemark.hudi_format.storage.base import join_path
from tidemark.hudi_format.table_services.compaction_planning import (
    NotNow,
    SizedFiles,
    plan_data_compaction,
    plan_index_compaction,
    recheck_data_compaction,
    recheck_index_compaction,
    slices_before,
)
from tidemark.hudi_format.table_services.operations import (
    CompactionPlan,
    MergeOutcome,
    decode_outcomes,
    decode_plan,
    encode_plan,
    output_path,
)
from tidemark.hudi_format.table_services.records import (
    compacted_files,
    compacted_stats,
    compaction_metadata,
    kept_outcomes,
    requested_compaction,
)
from tidemark.hudi_format.table_services.triggers import DataCompactionRule, IndexCompactionRule
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import encode_commit_metadata
from tidemark.hudi_format.timeline.service_records import encode_compaction_plan

# How often the stats of all file groups are looked through, and how long to wait after a look under the
# lock that found nothing to do.
LOOK_EVERY_MS: Final = 1_000
RETRY_AFTER_MS: Final = 10_000
STATS_RECORDS: Final = 8_000
"""How many records of column stats a compaction may have, which the coordinator writes under the lock."""
PUBLISHED_AT_ONCE: Final = 128
"""Base files that get their names together: a folder is synced once for all of them."""


@dataclass(frozen=True, slots=True)
class _Merged:
    """A decided compaction: its plan, and the outcomes of the operations that are committed."""

    plan: CompactionPlan
    outcomes: Sequence[MergeOutcome]
    folder: str

    def path(self, outcome: MergeOutcome) -> str:
        """The path of the outcome's base file."""
        return output_path(self.plan, outcome.ordinal, self.folder)


class _Compaction:
    """What both compactions share. ``folder``: that of the table's partitions."""

    has_tasks: Final = True
    sweeps_with_lock: Final = False
    stats_are_old: Final = True

    def __init__(
        self, kind: ServiceKind, root: str, folder: str, placement: Placement, *, is_on: bool
    ) -> None:
        self._kind, self._root, self._folder = kind, root, folder
        self._placement, self._is_on = placement, is_on
        self._not_before_ms = 0
        self._reason: str | None = None

    @property
    def kind(self) -> ServiceKind:
        return self._kind

    @property
    def timeline(self) -> str | None:
        return self._root

    def _looked(self, now_ms: int, groups: int, look: Callable[[], str | None]) -> str | None:
        """What ``look`` finds in the stats of so many ``groups``, about a microsecond for each. It looks once
        a second, and keeps the answer until the next look or plan.

        The loop asks in every round, and most rounds have no turn for a plan: an epoch is planned, or the
        lock is left to other writers. An answer for one round alone was lost in those while an archive action
        deleted files: a compaction waited 36 s.
        """
        if not self._is_on:
            return None
        if now_ms >= self._not_before_ms:
            self._not_before_ms = now_ms + LOOK_EVERY_MS + groups // 10
            self._reason = look()
        return self._reason

    def _document(self, context: Context, plan: CompactionPlan | NotNow | None) -> bytes | Dropped | None:
        """The plan as a document. Without one the next look is later."""
        self._reason = None
        if isinstance(plan, CompactionPlan):
            return encode_plan(plan)
        self._not_before_ms = context.clock.now_ms() + RETRY_AFTER_MS
        return None if plan is None else Dropped(plan.reason)

    def prepare(self, context: Context, plan: bytes | None) -> None:
        """The tasks have prepared everything."""

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        merged, context = self._merged(action), step.context
        half_done = half_done_by_other(step.timelines, action.planned, action.decided, self._root)
        if half_done is not None:
            raise ActionLostError(half_done)
        content = encode_compaction_plan(requested_compaction(merged.plan))
        inflight = begin_instant(step, action.planned.instant, Action.COMPACTION, content, self._root)
        _delete_other_outputs(step, merged, action.planned.instant)
        delete_markers(step, action.planned.instant, self._root)
        tickets = [ticket_of(action, merged.path(outcome)) for outcome in merged.outcomes]
        for first in range(0, len(tickets), PUBLISHED_AT_ONCE):
            with lost_on_conflict("a base file cannot be published"):
                context.publishing.publish(tickets[first : first + PUBLISHED_AT_ONCE], step.lease())
            context.hit(CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE)
        self._commit_metadata(step, action, merged)
        metadata = encode_commit_metadata(compaction_metadata(merged.plan, merged.outcomes))
        complete_instant(step, inflight, completion_of(step, action, self._root), metadata, self._root)
        self._tell_placement(merged)

    def _commit_metadata(self, step: LockedStep, action: DecidedAction, merged: _Merged) -> None:
        """Makes what the metadata table gets of the compaction; nothing for its own."""

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        # Nobody knows whether base files of an engine that died are whole: they are taken back.
        if half_done_by_other(step.timelines, action.planned, action.decided, self._root) is not None:
            return False
        return is_completed(step.timelines, action.planned.instant, self._root)

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        merged, storage = self._merged(action), step.context.storage
        _delete_other_outputs(step, merged, action.planned.instant)
        for outcome in merged.outcomes:
            step.delete(merged.path(outcome))
        for partition in sorted({operation.partition for _, operation in merged.plan.kept()}):
            storage.sync_dir(join_path(self._folder, partition))
        take_back_instant(step, action.planned.instant, Action.COMPACTION, self._root)

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        if by_other:
            self._delete_unnamed(context, action)
        return True

    def _delete_unnamed(self, context: Context, action: DecidedAction) -> None:
        """Deletes our base files that the other engine's commit of the instant does not name."""
        merged = self._merged(action)
        named = committed_names(context, action.planned.instant, self._root)
        for outcome in merged.outcomes:
            if named is not None and outcome.name not in named:
                context.storage.delete(merged.path(outcome))

    def _merged(self, action: DecidedAction) -> _Merged:
        plan = decode_plan(action.plan, action.planned.plan_path)
        outcomes = decode_outcomes(action.outcomes, action.decided.statuses_path)
        return _Merged(plan, kept_outcomes(plan, outcomes), self._folder)

    def _tell_placement(self, merged: _Merged) -> None:
        done = [
            CompactedSlice(
                operation.partition,
                operation.file_id,
                outcome.size,
                len(operation.log_files),
                operation.log_bytes,
            )
            for outcome in merged.outcomes
            for operation in (merged.plan.operations[outcome.ordinal],)
        ]
        at_ms = instant_to_ms(merged.plan.instant)
        self._placement.compacted(done, at_ms, is_index=merged.plan.is_index)


class CompactIndex(_Compaction):
    """`compact-index`: the metadata table, all file groups with log files at once."""

    def __init__(self, config: IndexCompactionConfig, placement: Placement) -> None:
        root, folder = METADATA_TABLE_ROOT, METADATA_TABLE_PATH
        super().__init__(ServiceKind.COMPACT_INDEX, root, folder, placement, is_on=config.enabled)
        self._ahead: IndexLook | None = None
        self._rule = IndexCompactionRule(
            log_ratio=config.log_ratio,
            ratio_from_bytes=config.ratio_from_bytes,
            log_files=config.log_files,
            min_ms=config.min_interval_ms,
            max_ms=config.max_age_ms,
        )

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        slices, since_last_ms = self._placement.snapshot(), facts.since_last_ms(self.kind, now_ms)
        look = partial(self._rule.reason, slices.index, now_ms, since_last_ms)
        return self._looked(now_ms, len(slices.index), look) if slices.is_listed else None

    def prepare(self, context: Context, plan: bytes | None) -> None:
        instant = None if plan is None else decode_plan(plan, "the plan").instant
        self._ahead = look_ahead(context.storage, instant)

    def plan(self, step: LockedStep, instant: str) -> bytes | Dropped | None:
        storage = step.context.storage
        plan: CompactionPlan | NotNow | None
        if (unserved := unserved_partition(storage)) is not None:
            plan = NotNow(f"the metadata table has a partition {unserved}, which is unknown")
        else:
            seen = self._look(step, instant)
            # As for data: the newest, and another engine may have compacted what the stats show as due.
            self._placement.listed(seen.stats(), is_index=True)
            plan = plan_index_compaction(seen.validity, seen.files, instant, seen.slices)
        return self._document(step.context, plan)

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        seen = self._look(step, planned.instant)
        document = decode_plan(plan, planned.plan_path)
        found = recheck_index_compaction(document, seen.validity, seen.files, seen.slices)
        return Dropped(found.reason) if isinstance(found, NotNow) else encode_plan(found)

    def _look(self, step: LockedStep, instant: str) -> IndexLook:
        seen, self._ahead = look(step.context.storage, step.timelines, instant, self._ahead), None
        return seen


class CompactData(_Compaction):
    """`compact-data`: the file groups of the data table that need it most."""

    def __init__(self, config: DataCompactionConfig, placement: Placement) -> None:
        super().__init__(ServiceKind.COMPACT_DATA, DATA_ROOT, "", placement, is_on=config.enabled)
        self._min_ms, self._choice = config.min_interval_ms, GroupChoice()
        self._rule = DataCompactionRule(
            log_ratio=config.log_ratio,
            log_bytes=config.log_bytes,
            log_files=config.log_files,
            log_age_ms=config.log_age_ms,
            max_groups=config.max_groups,
            max_bytes=config.max_bytes,
        )
        # The files of the plan's groups, found before the lock was taken.
        self._found: SizedFiles = {}

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        slices, since_last_ms = self._placement.snapshot(), facts.since_last_ms(self.kind, now_ms)
        too_soon = since_last_ms is not None and since_last_ms < self._min_ms

        def look() -> str | None:
            due = due_groups(slices, self._rule, now_ms)
            return f"{due} file groups have many log files" if due else None

        if too_soon or not slices.is_listed:
            return None
        return self._looked(now_ms, len(slices.data), look)

    def plan(self, step: LockedStep, instant: str) -> bytes | Dropped | None:
        context, slices = step.context, self._placement.snapshot()
        rule = replace(self._rule, log_files=1) if step.asked else self._rule
        stats = kept_stats(step)
        if isinstance(stats, Dropped):
            return self._document(context, NotNow(stats.reason))
        if stats is not None:
            rule = replace(rule, max_groups=min(rule.max_groups, STATS_RECORDS // len(stats.columns) or 1))
        view = settled_view(context, step.timelines)
        held = view.under_plans()
        self._placement.hold(held)
        groups = self._choice.groups(slices, rule, context.clock.now_ms(), held, step.asked)
        if not groups:
            return self._document(context, None)
        left = (stats for stats in slices.data if stats.log_count and stats.group not in groups)
        unlisted = {stats.partition_path for stats in left}
        unlisted |= unseen_partitions(context, step.timelines.data)
        files = group_files(context.storage, groups, step.names)
        # Nothing completed after the new instant. Another engine may have compacted what the stats still
        # show as due.
        newest = slices_before(instant, view, files)
        listed = (listed_stats(file_slice, files[file_slice.partition_path]) for file_slice in newest)
        self._placement.listed(listed, is_index=False)
        plan = plan_data_compaction(
            view,
            newest,
            files,
            instant,
            context.table.schema((), step.timelines.data),
            rule,
            unlisted=unlisted,
            stats=stats,
        )
        return self._document(context, plan)

    def prepare(self, context: Context, plan: bytes | None) -> None:
        """Looks up how large the files of the plan's groups are, and parses their names, which are kept."""
        if plan is None:
            return
        groups = _groups_of(decode_plan(plan, "the plan"))
        self._found = group_files(context.storage, groups, context.storage.names)
        for name in (name for names in self._found.values() for name in names):
            parse_data_file(name)

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        document = decode_plan(plan, planned.plan_path)
        if kept_stats(step) != document.stats:
            return Dropped("the table's column stats were changed since the plan")
        files = group_files(step.context.storage, _groups_of(document), step.names, self._found)
        found = recheck_data_compaction(document, settled_view(step.context, step.timelines), files)
        self._found = {}
        return Dropped(found.reason) if isinstance(found, NotNow) else encode_plan(found)

    def _commit_metadata(self, step: LockedStep, action: DecidedAction, merged: _Merged) -> None:
        plan, outcomes = merged.plan, merged.outcomes
        changes, stats = compacted_files(plan, outcomes), compacted_stats(plan, outcomes)
        logs = metadata_deltacommit(step, action, changes, stats)
        self._placement.wrote_index(logs, instant_to_ms(plan.instant))


def _groups_of(plan: CompactionPlan) -> set[FileGroupId]:
    return {(operation.partition, operation.file_id) for _, operation in plan.kept()}


def _delete_other_outputs(step: LockedStep, merged: _Merged, instant: str) -> None:
    """Deletes base files of the instant in the plan's groups that are not ours (step 2)."""
    ours = {merged.path(outcome) for outcome in merged.outcomes}
    groups = _groups_of(merged.plan)
    for partition in sorted({partition for partition, _ in groups}):
        folder = join_path(merged.folder, partition)
        for name in [name for name in step.names(folder) if f"_{instant}." in name]:
            found, path = BaseFileName.parse(name), join_path(folder, name)
            if found is not None and (partition, found.file_id) in groups and path not in ours:
                step.delete(path)
