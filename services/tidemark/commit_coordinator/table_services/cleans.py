"""The handlers of cleans: of the data table, and of the metadata table.

A clean is committed first and deletes afterwards, in the sweep: from the commit on readers open no file that
it names. A sweep that is repeated finds files gone already, which is no error (hudi_format/TABLE_SERVICES.md,
section 3.2). The order of a commit:

1. the requested file with the plan, the inflight file
2. of the data table: the metadata table's deltacommit, which takes the files off its list,
   and their records out of the column stats
3. the completed file
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.commit.builds_of_others import living_builds
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.commit.unwritten_plans import settled_view
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.clean_looks import Looked, looked_again, looked_at
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.instant_steps import (
    begin_instant,
    complete_instant,
    completion_of,
    is_completed,
    kept_stats,
    metadata_deltacommit,
    slice_lock,
    slice_time,
    take_back_instant,
)
from tidemark.commit_coordinator.table_services.listings import (
    first_seen,
    open_plans,
    own_pending,
    savepoints,
)
from tidemark.commit_coordinator.table_services.rules import half_done_by_other
from tidemark.commit_coordinator.table_services.side_files import (
    delete_dead_commands,
    delete_side_file,
    delete_side_files,
    left_side_files,
)
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.metadata_table.compaction import pending_compactions
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.partitions_in_use import partitions_in_use
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, every_metadata_slice
from tidemark.hudi_format.metadata_table.stats_layout import StatsLayout
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.model import instant_from_ms, instant_to_ms
from tidemark.hudi_format.storage.base import parent_of
from tidemark.hudi_format.table_services.clean_planning import (
    CleanBounds,
    horizon,
    plan_data_clean,
    plan_index_clean,
    recheck_clean,
)
from tidemark.hudi_format.table_services.operations import CleanPlan, decode_clean, encode_plan
from tidemark.hudi_format.table_services.records import (
    clean_metadata,
    cleaned_files,
    cleaned_stats,
    requested_clean,
)
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.clean_records import encode_clean_metadata, encode_clean_plan
from tidemark.stream_runtime.retry import Deadline

LOOK_S: Final = 0.04
"""How long one look through the folders may take, in seconds."""
STATS_KEYS: Final = 32_000
"""How many keys of column stats one clean may delete, by log files that are written under the lock."""
_NO_LIMIT: Final = 1 << 40


class _Clean:
    """What both cleans share. ``folder``: that of the table's partitions."""

    has_tasks: Final = False
    sweeps_with_lock: bool = False
    stats_are_old: Final = False

    def __init__(
        self, kind: ServiceKind, root: str, folder: str, config: TableServicesConfig, retain_ms: int
    ) -> None:
        self._kind, self._root, self._folder = kind, root, folder
        self._is_on = config.clean.enabled
        self._interval_ms, self._files_max = config.clean.interval_ms, config.clean.max_files
        self._retain_ms = retain_ms
        self._not_before_ms = 0
        self._next_partition = ""
        # Whether the last plan left files that may go, by its limit of files or of time.
        self._left_files = False
        # Number of the action whose files are being deleted, and how many files and leftovers are.
        self._swept = (0, 0)

    @property
    def kind(self) -> ServiceKind:
        return self._kind

    @property
    def timeline(self) -> str | None:
        return self._root

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        """A clean that left files that may go is followed by the next one at once, whatever the interval.

        Else a table that supersedes more than `max_files` files in an interval would grow for ever: 8 file
        groups with a log file a second each make 2 400 in five minutes. The groups with the last names would
        keep all of theirs.
        """
        if not self._is_on:
            return None
        if self._left_files:
            return "the last clean left files that may be deleted"
        ended_ms = facts.ended_ms.get(self._kind)
        too_soon = ended_ms is not None and now_ms - ended_ms < self._interval_ms
        if too_soon or now_ms < self._not_before_ms:
            return None
        return f"the last look was {self._interval_ms // 1000} s ago"

    def plan(self, step: LockedStep, instant: str) -> bytes | None:
        looked = self._look(step)
        stats = self._stats(step)
        files_max = _bounded_by_stats(self._files_max, stats)
        plan = self._planned(step, instant, looked, files_max)
        self._left_files = plan is not None and self._leaves(plan, looked, files_max)
        if plan is not None:
            return encode_plan(plan.with_stats(stats))
        if looked.next_partition == "":
            self._not_before_ms = step.context.clock.now_ms() + self._interval_ms
        return None

    def _leaves(self, plan: CleanPlan, looked: Looked, files_max: int) -> bool:
        """Whether files are left that may be deleted. The next look then begins where this one ended; when
        the limit of files was reached, where this one began: what this plan takes is gone by then.
        """
        if len(plan.paths(self._folder)) < files_max:
            return looked.next_partition != ""
        self._next_partition = looked.first_partition
        return True

    def prepare(self, context: Context, plan: bytes | None) -> None:
        """Nothing: a clean has no files of its own but those of its instant."""

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        document = decode_clean(plan, planned.plan_path)
        _, replaced = self._partitions(step)
        looked = looked_again(step.context.storage, self._folder, document, replaced)
        kept = recheck_clean(document, self._planned(step, planned.instant, looked, _NO_LIMIT))
        if kept is None:
            # Whoever took the files has looked at the table: the next look has its usual time.
            self._left_files = False
        return (
            Dropped("none of the files may be deleted any more")
            if kept is None
            else encode_plan(kept.with_stats(self._stats(step)))
        )

    def _look(self, step: LockedStep) -> Looked:
        """Goes on where the last look ended, for as long as one step may take."""
        storage = step.context.storage
        partitions, replaced = self._partitions(step)
        deadline = Deadline(step.context.clock, LOOK_S)
        files: dict[str, Collection[str]] = {}
        ahead = [partition for partition in partitions if partition >= self._next_partition] or partitions
        first = self._next_partition
        taken = 0
        for partition in ahead:
            if taken and deadline.is_over:
                break
            taken += 1
            files |= looked_at(storage, self._folder, [partition], replaced).files
        self._next_partition = ahead[taken] if taken < len(ahead) else ""
        return Looked(files, taken == len(partitions), first, self._next_partition)

    def _stats(self, step: LockedStep) -> StatsLayout | None:
        """The column stats that the files' records go from; None where there are none, and for the metadata
        table.
        """
        return None

    def _partitions(self, step: LockedStep) -> tuple[list[str], Mapping[str, Collection[str]]]:
        """(the table's partitions, in order; partition -> ids of its replaced file groups)."""
        raise NotImplementedError

    def _planned(self, step: LockedStep, instant: str, looked: Looked, files_max: int) -> CleanPlan | None:
        raise NotImplementedError

    def _bounds(self, step: LockedStep, instant: str, plans: Mapping[FileGroupId, str]) -> CleanBounds:
        context, timelines = step.context, step.timelines
        # A time that is ahead, by another engine's clock or by ours, says nothing about readers.
        now_ms = min(context.file_time_ms(), instant_to_ms(instant))
        planned = context.fold().state.planned
        as_of = planned.as_of if planned is not None and planned.instant is not None else None
        writes = [instant for instant in timelines.data.instants if instant.action.is_write]
        pending = [instant.requested for instant in writes if not instant.is_completed]
        completed = [instant.requested for instant in writes if instant.is_completed]
        return CleanBounds(
            horizon=horizon(
                instant_from_ms(now_ms),
                instant_from_ms(max(now_ms - self._retain_ms, 0)),
                as_of,
                [timelines.data, timelines.metadata],
                own_pending(context),
                living_builds(context, timelines),
            ),
            plans=plans,
            savepoints=savepoints(context.storage, timelines.data),
            first_pending=min(pending, default=None),
            last_write=max(completed, default=None),
        )

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        plan = self._plan_of(action)
        requested = encode_clean_plan(requested_clean(plan, step.context.storage.base_uri))
        inflight = begin_instant(step, plan.instant, Action.CLEAN, requested, self._root)
        self._commit_metadata(step, action, plan)
        completion = completion_of(step, action, self._root)
        content = encode_clean_metadata(clean_metadata(plan, completion))
        complete_instant(step, inflight, completion, content, self._root)

    def _is_half_done(self, step: LockedStep, action: DecidedAction) -> bool:
        """Whether another engine made the instant's deltacommit of the metadata table, and nothing else."""
        reason = half_done_by_other(step.timelines, action.planned, action.decided, self._root)
        return reason is not None

    def _commit_metadata(self, step: LockedStep, action: DecidedAction, plan: CleanPlan) -> None:
        """Makes what the metadata table gets of the clean; nothing for its own."""

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        return is_completed(step.timelines, action.planned.instant, self._root)

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        take_back_instant(step, action.planned.instant, Action.CLEAN, self._root)

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        return self._delete(context, action, slice_time(context.clock, slice_ms), context.storage.delete)

    def _delete(
        self,
        context: Context,
        action: DecidedAction,
        is_over: Callable[[], bool],
        delete: Callable[[str], bool],
    ) -> bool:
        """One slice of the deletions; True at their end."""
        plan = self._plan_of(action)
        paths = plan.paths(self._folder)
        service, done = self._swept
        if service != action.planned.service:
            done = 0
        for number in range(done, len(paths) + len(plan.leftovers)):
            if is_over():
                self._swept = (action.planned.service, number)
                return False
            if number < len(paths):
                delete(paths[number])
                context.hit(CoordinatorFailpoint.IN_SWEEP)
            else:
                # One may be the markers of a write, and name all its files.
                delete_side_file(context, plan.leftovers[number - len(paths)])
        for folder in sorted({parent_of(path) for path in paths}):
            context.storage.sync_dir(folder)
        self._swept = (0, 0)
        return True

    def _plan_of(self, action: DecidedAction) -> CleanPlan:
        return decode_clean(action.plan, action.planned.plan_path)


class CleanData(_Clean):
    """`clean-data`: superseded slices and replaced file groups of the data table, side files that belong to
    no instant, and what killed commands prepared.
    """

    sweeps_with_lock = True

    def __init__(self, config: TableServicesConfig, placement: Placement) -> None:
        super().__init__(ServiceKind.CLEAN_DATA, DATA_ROOT, "", config, config.clean.retain_ms)
        self._placement = placement

    def plan(self, step: LockedStep, instant: str) -> bytes | None:
        plan = super().plan(step, instant)
        delete_dead_commands(step, LOOK_S)
        if plan is None:
            delete_side_files(step, LOOK_S)
        return plan

    def _stats(self, step: LockedStep) -> StatsLayout | None:
        # Records that stay behind are only waste, so stats that cannot be written hold back no clean.
        found = kept_stats(step)
        return None if isinstance(found, Dropped) else found

    def _partitions(self, step: LockedStep) -> tuple[list[str], Mapping[str, Collection[str]]]:
        replaced: dict[str, set[str]] = {}
        for partition, file_id in settled_view(step.context, step.timelines).replaced:
            replaced.setdefault(partition, set()).add(file_id)
        known = {stats.partition_path for stats in self._placement.snapshot().data}
        return sorted(known | set(replaced)), replaced

    def _planned(self, step: LockedStep, instant: str, looked: Looked, files_max: int) -> CleanPlan | None:
        context, timeline = step.context, step.timelines.data
        view = settled_view(context, step.timelines)
        plans = dict(open_plans(context, ServiceKind.COMPACT_DATA))
        for pending in (view.compacting, view.log_compacting, view.clustering):
            for group, planned in pending.items():
                plans[group] = min(planned, plans.get(group, planned))
        plan = plan_data_clean(
            view.every_slice(looked.files),
            looked.files,
            timeline,
            view.replaced,
            self._bounds(step, instant, plans),
            instant,
            seen_at=first_seen(context.publishing, timeline),
            files_max=files_max,
            is_whole_table=looked.is_whole_table,
        )
        return None if plan is None else plan.with_leftovers(left_side_files(step))

    def _commit_metadata(self, step: LockedStep, action: DecidedAction, plan: CleanPlan) -> None:
        if self._is_half_done(step, action):
            # It executed our plan: its deltacommit removes the same files from the list, and stays.
            return
        logs = metadata_deltacommit(step, action, cleaned_files(plan), cleaned_stats(plan))
        self._placement.wrote_index(logs, instant_to_ms(plan.instant))

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        """Deletes under the lock, and only what the metadata table does not list: a restore lists again what
        was not deleted yet, and so does who builds the metadata table anew.
        """
        is_over = slice_time(context.clock, slice_ms)
        with slice_lock(context) as delete:
            if not _listed_anew(load_timelines(context.storage), action.planned.instant):
                return self._delete(context, action, is_over, delete)
            listed = MetadataTableSnapshot.load(context.storage).files

            def delete_unlisted(path: str) -> bool:
                partition = parent_of(path)
                is_listed = path.removeprefix(f"{partition}/") in listed.files(partition)
                return not is_listed and delete(path)

            return self._delete(context, action, is_over, delete_unlisted)


class CleanIndex(_Clean):
    """`clean-index`: superseded slices of the metadata table."""

    def __init__(self, config: TableServicesConfig) -> None:
        root, folder = METADATA_TABLE_ROOT, METADATA_TABLE_PATH
        super().__init__(ServiceKind.CLEAN_INDEX, root, folder, config, config.retained_index_ms)

    def _partitions(self, step: LockedStep) -> tuple[list[str], Mapping[str, Collection[str]]]:
        return sorted(partition.name for partition in partitions_in_use(step.context.storage)), {}

    def _planned(self, step: LockedStep, instant: str, looked: Looked, files_max: int) -> CleanPlan | None:
        context, timeline = step.context, step.timelines.metadata
        plans = dict(open_plans(context, ServiceKind.COMPACT_INDEX))
        for group, planned in pending_compactions(context.storage, timeline).items():
            plans[group] = min(planned, plans.get(group, planned))
        return plan_index_clean(
            every_metadata_slice(looked.files, InstantValidity(step.timelines.data, timeline)),
            looked.files,
            timeline,
            self._bounds(step, instant, plans),
            instant,
            seen_at=first_seen(context.publishing, timeline, METADATA_TABLE_ROOT),
            files_max=files_max,
        )


def _bounded_by_stats(files_max: int, stats: StatsLayout | None) -> int:
    """How many files a clean may take at once, one at least: each has a key for each column."""
    return files_max if stats is None else max(min(files_max, STATS_KEYS // len(stats.columns)), 1)


def _listed_anew(timelines: Timelines, clean: str) -> bool:
    """Whether the metadata table may list again what the clean took off its list."""
    both = (*timelines.data.instants, *timelines.metadata.instants)
    is_restored = any(instant.action is Action.RESTORE and instant.requested > clean for instant in both)
    return is_restored or not timelines.metadata.is_committed(clean)
