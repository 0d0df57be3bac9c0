"""The handlers of cleans: of the data table, and of the metadata table.

A clean is committed first and deletes afterwards, in the sweep: readers never open what it names, and
whoever repeats the sweep finds files gone, which is as good (hudi_format/TABLE_SERVICES.md, section 3.2). The
order of a commit:

1. the requested file with the plan, the inflight file
2. of the data table: the metadata table's deltacommit, which takes the files off its list
3. the completed file
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.instant_steps import (
    begin_instant,
    complete_instant,
    is_completed,
    metadata_deltacommit,
    take_back_instant,
)
from tidemark.commit_coordinator.table_services.listings import (
    first_seen,
    index_files,
    open_plans,
    own_pending,
    savepoints,
    view_of,
)
from tidemark.config.table_services_model import TableServicesConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.hudi_format.file_group.slices import FileGroupId
from tidemark.hudi_format.metadata_table.compaction import pending_compactions
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot, every_metadata_slice
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
from tidemark.hudi_format.table_services.dead_instants import leftovers
from tidemark.hudi_format.table_services.operations import CleanPlan, decode_clean, encode_plan
from tidemark.hudi_format.table_services.records import clean_metadata, cleaned_files, requested_clean
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.clean_records import encode_clean_metadata, encode_clean_plan

_NO_LIMIT: Final = 1 << 40
_SIDE_FOLDERS: Final = (".hoodie/.temp", ".hoodie/.heartbeat")


class _Clean:
    """What both cleans share. ``folder``: that of the table's partitions."""

    has_tasks: Final = False

    def __init__(
        self, kind: ServiceKind, root: str, folder: str, config: TableServicesConfig, retain_ms: int
    ) -> None:
        self._kind, self._root, self._folder = kind, root, folder
        self._is_on = config.clean.enabled
        self._interval_ms, self._files_max = config.clean.interval_ms, config.clean.max_files
        self._retain_ms = retain_ms
        self._not_before_ms = 0
        # Number of the action whose files are being deleted, and how many of them are.
        self._swept = (0, 0)

    @property
    def kind(self) -> ServiceKind:
        return self._kind

    @property
    def timeline(self) -> str | None:
        return self._root

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        ended_ms = facts.ended_ms.get(self._kind)
        too_soon = ended_ms is not None and now_ms - ended_ms < self._interval_ms
        if not self._is_on or too_soon or now_ms < self._not_before_ms:
            return None
        return f"the last look was {self._interval_ms // 1000} s ago"

    def plan(self, step: LockedStep, instant: str) -> bytes | None:
        plan = self._planned(step, instant, self._files_max)
        if plan is None:
            self._not_before_ms = step.context.clock.now_ms() + self._interval_ms
            return None
        return encode_plan(plan)

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        document = decode_clean(plan, planned.plan_path)
        kept = recheck_clean(document, self._planned(step, planned.instant, _NO_LIMIT))
        return Dropped("none of the files may be deleted any more") if kept is None else encode_plan(kept)

    def _planned(self, step: LockedStep, instant: str, files_max: int) -> CleanPlan | None:
        raise NotImplementedError

    def _bounds(self, step: LockedStep, instant: str, plans: Mapping[FileGroupId, str]) -> CleanBounds:
        context, timelines = step.context, step.timelines
        # A time that another engine's clock pushed ahead says nothing about readers.
        now_ms = min(context.clock.now_ms(), instant_to_ms(instant))
        planned = context.fold().state.planned
        as_of = planned.as_of if planned is not None and planned.instant is not None else None
        writes = [each.requested for each in timelines.data.pending() if each.action.is_write]
        return CleanBounds(
            horizon=horizon(
                instant_from_ms(now_ms),
                instant_from_ms(max(now_ms - self._retain_ms, 0)),
                as_of,
                [timelines.data, timelines.metadata],
                own_pending(context),
            ),
            plans=plans,
            savepoints=savepoints(context.storage, timelines.data),
            first_pending=min(writes, default=None),
        )

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        plan = self._plan_of(action)
        requested = encode_clean_plan(requested_clean(plan, step.context.storage.base_uri))
        inflight = begin_instant(step, plan.instant, Action.CLEAN, requested, self._root)
        self._commit_metadata(step, action, plan)
        completion = self._completion(action)
        content = encode_clean_metadata(clean_metadata(plan, completion))
        complete_instant(step, inflight, completion, content, self._root)

    def _commit_metadata(self, step: LockedStep, action: DecidedAction, plan: CleanPlan) -> None:
        """Makes what the metadata table gets of the clean; nothing for its own."""

    def _completion(self, action: DecidedAction) -> str:
        raise NotImplementedError

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        return is_completed(step.timelines, action.planned.instant, self._root)

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        take_back_instant(step, action.planned.instant, Action.CLEAN, self._root)

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, until_ms: int) -> bool:
        plan = self._plan_of(action)
        paths = plan.paths(self._folder)
        service, done = self._swept
        if service != action.planned.service:
            done = 0
        for number in range(done, len(paths)):
            if context.clock.now_ms() >= until_ms and number > done:
                self._swept = (action.planned.service, number)
                return False
            context.storage.delete(paths[number])
            context.hit("in_sweep")
        for left in plan.leftovers:
            context.storage.delete_tree(left)
            context.storage.delete(left)
        for folder in sorted({parent_of(path) for path in paths}):
            context.storage.sync_dir(folder)
        self._swept = (0, 0)
        return True

    def _plan_of(self, action: DecidedAction) -> CleanPlan:
        return decode_clean(action.plan, action.planned.plan_path)


class CleanData(_Clean):
    """`clean-data`: superseded slices and replaced file groups of the data table, and side files that belong
    to no instant.
    """

    def __init__(self, config: TableServicesConfig) -> None:
        super().__init__(ServiceKind.CLEAN_DATA, DATA_ROOT, "", config, config.clean.retain_ms)

    def _planned(self, step: LockedStep, instant: str, files_max: int) -> CleanPlan | None:
        context = step.context
        storage, timeline = context.storage, step.timelines.data
        listed = MetadataTableSnapshot.load(storage).files
        files = {partition: listed.files(partition) for partition in listed.partitions}
        view = view_of(context, timeline)
        plans = dict(open_plans(context, ServiceKind.COMPACT_DATA))
        for pending in (view.compacting, view.log_compacting, view.clustering):
            for group, planned in pending.items():
                plans[group] = min(planned, plans.get(group, planned))
        plan = plan_data_clean(
            view.every_slice(files),
            files,
            timeline,
            view.replaced,
            self._bounds(step, instant, plans),
            instant,
            seen_at=first_seen(storage, timeline),
            files_max=files_max,
        )
        return None if plan is None else plan.with_leftovers(self._leftovers(step))

    def _leftovers(self, step: LockedStep) -> tuple[str, ...]:
        storage = step.context.storage
        side_files = [info for folder in _SIDE_FOLDERS for info in storage.list(folder)]
        return leftovers(side_files, step.timelines.data, step.context.clock.now_ms())

    def _commit_metadata(self, step: LockedStep, action: DecidedAction, plan: CleanPlan) -> None:
        metadata_deltacommit(step, action, cleaned_files(plan))

    def _completion(self, action: DecidedAction) -> str:
        return action.decided.data_completion


class CleanIndex(_Clean):
    """`clean-index`: superseded slices of the metadata table."""

    def __init__(self, config: TableServicesConfig) -> None:
        root, folder = METADATA_TABLE_ROOT, METADATA_TABLE_PATH
        super().__init__(ServiceKind.CLEAN_INDEX, root, folder, config, config.retained_index_ms)

    def _planned(self, step: LockedStep, instant: str, files_max: int) -> CleanPlan | None:
        context, timeline = step.context, step.timelines.metadata
        files = index_files(context.storage)
        plans = dict(open_plans(context, ServiceKind.COMPACT_INDEX))
        for group, planned in pending_compactions(context.storage, timeline).items():
            plans[group] = min(planned, plans.get(group, planned))
        return plan_index_clean(
            every_metadata_slice(files, InstantValidity(step.timelines.data, timeline)),
            files,
            timeline,
            self._bounds(step, instant, plans),
            instant,
            seen_at=first_seen(context.storage, timeline, METADATA_TABLE_ROOT),
            files_max=files_max,
        )

    def _completion(self, action: DecidedAction) -> str:
        return action.decided.metadata_completion
