"""The handler of archival: instants of the data table's timeline, or of the metadata table's, go to its
archive. One action takes one timeline, the data table's first.

1. plan, decide: which instants; asked again before the commit, like every plan. Their rows are read and
   packed before the lock is taken (`prepare`): the files of completed instants do not change
2. commit, under the lock: the archive's file, its manifest, `_version_`. From here on the instants are in the
   archive and on the active timeline; a reader that finds one in both takes it once
3. sweep, in slices that take the lock: the instants' files are deleted; files of a level of the archive
   become one of the next; manifests and files that are superseded are deleted

After each step readers find every instant in one place at least, so a coordinator may die behind any of them.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Collection
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceFacts,
)
from tidemark.commit_coordinator.table_services.held_back import ARCHIVE_LOOKS_MS
from tidemark.commit_coordinator.table_services.index_slices import (
    in_slices,
    under_slices,
)
from tidemark.commit_coordinator.table_services.instant_steps import slice_lock, slice_time
from tidemark.commit_coordinator.table_services.late_writes import LateWrites
from tidemark.commit_coordinator.table_services.listings import log_instant, own_pending
from tidemark.config.table_services_model import ArchiveConfig
from tidemark.epoch_protocol.service_entries import ServiceKind, ServicePlanned
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.errors import (
    FencedOutError,
    FileMissingError,
    HudiFormatError,
    LockHeldError,
    LockLostError,
)
from tidemark.hudi_format.file_group.names import parse_data_file
from tidemark.hudi_format.metadata_table.partitions_in_use import partition_files
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.metadata_table.validity import InstantValidity
from tidemark.hudi_format.publication.locate import service_files_of
from tidemark.hudi_format.publication.port import GrowingFile
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services import archiving
from tidemark.hudi_format.table_services.archive_planning import (
    Archivable,
    ArchiveBounds,
    ArchivedName,
    ArchivePlan,
    decode_archive_plan,
    left_behind,
    plan_data_archive,
    plan_metadata_archive,
)
from tidemark.hudi_format.table_services.archiving import Merge
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Instant
from tidemark.hudi_format.timeline.archive_rows import encode_archive_file
from tidemark.hudi_format.timeline.avro_records import decode_replaced_file_ids

INSTANTS_MAX: Final = 500
"""Instants of one action."""
BYTES_MAX: Final = 8 << 20
"""Bytes of the completed files that one action archives: they are read and packed in one step."""
_MERGED_AT_ONCE_BYTES: Final = 512 << 10
_LOOK_MS: Final = 30_000
_HITS: Final = {
    archiving.AFTER_ARCHIVE_FILE: CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE,
    archiving.AFTER_ARCHIVE_MANIFEST: CoordinatorFailpoint.AFTER_SERVICE_METADATA,
    archiving.AFTER_ARCHIVE_VERSION: CoordinatorFailpoint.AFTER_SERVICE_COMPLETED,
}
_log = logging.getLogger("tidemark.coordinator")


@dataclass
class _Sweep:
    """How far the sweep of an action is. What a successor does not know of it does again."""

    service: int
    deleted: bool = False
    merges_left: bool = True
    merging: tuple[Merge, Future[Ticket]] | None = None


class Archive:
    """`archive`. ``executor``: where archive files are merged that are too large for a step of the loop."""

    kind: Final = ServiceKind.ARCHIVE
    has_tasks: Final = False
    sweeps_with_lock: Final = True
    timeline: Final = None

    def __init__(self, config: ArchiveConfig, executor: Executor) -> None:
        self._config, self._executor = config, executor
        self._known_writes: tuple[int, int] | None = None
        self._index_next = self.stats_are_old = False
        self._not_before_ms = self._looked_ms = 0
        self._gone: set[str] = set()
        self._late_writes = LateWrites()
        self._sweep: _Sweep | None = None
        self._ready: tuple[bytes, bytes] | None = None

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        if not self._config.enabled or now_ms < self._not_before_ms:
            return None
        if self._known_writes is None or now_ms - self._looked_ms >= ARCHIVE_LOOKS_MS:
            return "the timelines were not looked at for a while"
        if self._index_next:
            return "the data table's timeline was archived"
        writes, known = self._known_writes
        writes += _instants_known(facts.state) - known
        return f"{writes} writes are on the timeline" if writes > self._config.max else None

    def plan(self, step: LockedStep, instant: str) -> bytes | None:
        context, data = step.context, step.timelines.data
        writes = sum(instant.action.is_write for instant in data.completed())
        self._known_writes = writes, _instants_known(context.fold().state)
        self._looked_ms = context.clock.now_ms()
        is_due = step.asked or writes > self._config.max
        if is_due and (plan := self._plan(step, False)) is not None:
            self._index_next = True
            return plan.encode()
        # While no epoch is made nobody looks at what other engines write, and the metadata table's log files
        # that hold archival back are not known.
        self.stats_are_old = is_due and _has_unseen(step)
        plan = self._plan(step, True)
        self._index_next = False
        if plan is None:
            self._not_before_ms = self._looked_ms + _LOOK_MS
            return None
        return plan.encode()

    def _plan(self, step: LockedStep, is_index: bool) -> ArchivePlan | None:
        found = self._archivable(step, is_index)
        if len(found.instants) < (1 if step.asked else self._config.batch):
            if not is_index:
                _log.info("archival of the timeline is held back by %s", found.held_by)
            return None
        taken = _bounded(step.context.storage, METADATA_TABLE_ROOT if is_index else DATA_ROOT, found.instants)
        names = (
            ArchivedName(instant.requested, str(instant.completion), instant.action.value)
            for instant in taken
        )
        return ArchivePlan(is_index, tuple(names))

    def _archivable(self, step: LockedStep, is_index: bool) -> Archivable:
        context, timelines = step.context, step.timelines
        storage = context.storage
        bounds = ArchiveBounds(
            least=self._config.min,
            open_instants=own_pending(context),
            last_commit=context.fold().state.committed.instant,
        )
        if is_index:
            files = partition_files(storage)
            validity = InstantValidity(timelines.data, timelines.metadata)
            return plan_metadata_archive(
                timelines.metadata,
                timelines.data,
                bounds,
                in_slices=lambda instants: in_slices(files, validity, instants),
                under_slices=lambda: under_slices(files, validity),
                with_logs=lambda: {time for names in files.values() for time in map(log_instant, names)},
            )
        return plan_data_archive(
            timelines.data,
            timelines.metadata,
            bounds,
            is_gone=lambda instant: self._is_gone(storage, instant),
            lies_behind=lambda write: self._late_writes.lies_behind(step, write),
            with_logs=lambda: _with_logs(storage),
        )

    def _is_gone(self, storage: Storage, replacing: Instant) -> bool:
        """Whether neither a partition's folder nor the metadata table has a file of the groups that the
        instant replaced. Which clean did it does not matter, and whether it has ended its deletions does.
        """
        if replacing.file_name in self._gone:
            return True
        path = instant_path(replacing)
        replaced = decode_replaced_file_ids(storage.read(path), path)
        if any(_has_any(storage.names(partition), ids) for partition, ids in replaced.items()):
            return False
        listed = MetadataTableSnapshot.load(storage).files
        if any(_has_any(listed.files(partition), ids) for partition, ids in replaced.items()):
            return False
        self._gone.add(replacing.file_name)
        return True

    def prepare(self, context: Context, plan: bytes | None) -> None:
        if plan is None:
            return
        document = decode_archive_plan(plan, "the plan")
        try:
            self._ready = plan, encode_archive_file(archiving.archived_rows(context.storage, document))
        except FileMissingError:
            self._ready = None  # some are archived already, or one was undone: the commit tells which

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        document = decode_archive_plan(plan, planned.plan_path)
        found = self._archivable(step, document.is_index)
        allowed = {instant.file_name for instant in found.instants}
        for name in document.instants:
            if name.instant().file_name not in allowed:
                return Dropped(f"{name.instant().file_name} must stay by now: {found.held_by}")
        if (older := left_behind(document, found)) is not None:
            return Dropped(f"{older.file_name}, which is older, was written meanwhile")
        return plan

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        plan = decode_archive_plan(action.plan, action.planned.plan_path)
        hit = step.context.hit
        ready = self._ready[1] if self._ready is not None and self._ready[0] == action.plan else None
        self._ready = None
        try:
            archiving.publish_rows(
                step.context.publishing, plan, step.lease(), step.delete, lambda at: hit(_HITS[at]), ready
            )
        except FileMissingError as error:
            raise ActionLostError(f"an instant was undone: {error}") from error

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        plan = decode_archive_plan(action.plan, action.planned.plan_path)
        return archiving.is_archived(step.context.storage, plan)

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        plan = decode_archive_plan(action.plan, action.planned.plan_path)
        archiving.take_back(step.context.storage, plan, step.delete)

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        plan = decode_archive_plan(action.plan, action.planned.plan_path)
        if self._sweep is None or self._sweep.service != action.planned.service:
            self._sweep = _Sweep(action.planned.service)
        doing, storage = self._sweep, context.storage
        is_over = slice_time(context.clock, slice_ms)
        if doing.merging is not None and not doing.merging[1].done():
            return False
        with slice_lock(context) as delete:
            if not doing.deleted:
                hit = context.hit
                doing.deleted = archiving.delete_instants(
                    storage, plan, delete, lambda _: hit(CoordinatorFailpoint.IN_SWEEP), is_over
                )
                return False
        if doing.merges_left:
            self._merge(context, plan.root, doing)
            return False
        with slice_lock(context) as delete:
            if not archiving.delete_superseded(storage, plan.root, delete, is_over):
                return False
        self._sweep = None
        return True

    def _merge(self, context: Context, root: str, doing: _Sweep) -> None:
        """One step of merging the archive's files: begins a merge, or publishes the merged file. A merge that
        fails is left to the next archival.
        """
        try:
            if doing.merging is not None:
                merge, future = doing.merging
                self._publish(context, merge, future.result())
                doing.merging = None
                return
            merge_due = archiving.merge_plan(archiving.newest_manifest(context.storage, root), root)
            if merge_due is None:
                doing.merges_left = False
            elif merge_due.size <= _MERGED_AT_ONCE_BYTES:
                self._publish(context, merge_due, _merged_in_memory(context, merge_due))
            else:
                doing.merging = merge_due, self._begin(context, merge_due, doing.service)
        except (LockHeldError, LockLostError, FencedOutError):
            raise
        except (OSError, HudiFormatError) as error:
            _log.warning("files of the archive are merged later: %s", error)
            doing.merging, doing.merges_left = None, False

    def _begin(self, context: Context, merge: Merge, service: int) -> Future[Ticket]:
        storage = context.storage
        files = service_files_of(storage, context.publishing.open_service(service))

        def write() -> Ticket:
            growing = files.grow(merge.path)
            try:
                archiving.write_merged(storage, merge, _Growing(growing))
                return growing.finish()
            finally:
                growing.discard()

        return self._executor.submit(write)

    def _publish(self, context: Context, merge: Merge, ticket: Ticket) -> None:
        with slice_lock(context) as delete:
            publishing, lease, hit = context.publishing, context.lock.lease(), context.hit
            if not archiving.publish_merged(
                publishing, merge, ticket, lease, delete, lambda _: hit(CoordinatorFailpoint.IN_SWEEP)
            ):
                publishing.revoke([ticket])


class _Growing(io.RawIOBase):
    """A growing file as pyarrow writes to it."""

    def __init__(self, file: GrowingFile) -> None:
        self._file = file

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._file.write(bytes(data))
        return len(data)


def _merged_in_memory(context: Context, merge: Merge) -> Ticket:
    sink = io.BytesIO()
    archiving.write_merged(context.storage, merge, sink)
    return context.publishing.prepare(merge.path, sink.getvalue())


def _instants_known(state: FoldState) -> int:
    """How many instants of the data table's timeline an epoch's plan has seen, whoever made them."""
    return len(state.seen.names) if state.seen is not None else state.committed.epoch


def _has_unseen(step: LockedStep) -> bool:
    """Whether another engine has written since the fold was told of the timeline."""
    known = step.context.fold().state.known()
    writes = (instant for instant in step.timelines.data.completed() if instant.action.is_write)
    return any(not known.has_seen(instant.file_name) for instant in writes)


def _bounded(storage: Storage, root: str, instants: tuple[Instant, ...]) -> list[Instant]:
    taken: list[Instant] = []
    size = 0
    for instant in instants[:INSTANTS_MAX]:
        info = storage.stat(instant_path(instant, root))
        size += info.size if info is not None else 0
        if taken and size > BYTES_MAX:
            break
        taken.append(instant)
    return taken


def _with_logs(storage: Storage) -> set[str]:
    listed = MetadataTableSnapshot.load(storage).files
    return {log_instant(name) for _, name, _ in listed} - {""}


def _has_any(names: Collection[str], file_ids: Collection[str]) -> bool:
    parsed = (parse_data_file(name) for name in names)
    return any(data_file is not None and data_file.file_id in file_ids for data_file in parsed)
