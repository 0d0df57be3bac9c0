"""The table's two timelines: what the coordinator has to read from them before it plans or decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import pending_plan
from tidemark.hudi_format.model import is_instant_time
from tidemark.hudi_format.storage.base import Storage, join_path, written_ms
from tidemark.hudi_format.timeline import (
    DATA_ROOT,
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    Timeline,
    load_timeline,
)
from tidemark.hudi_format.timeline.archive_files import VERSION_NAME
from tidemark.hudi_format.timeline.service_records import decode_rollback_metadata

# Scheduling one of these begins new file slices. A log file whose commit completes before that is not in
# them.
_BEGIN_SLICES: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


@dataclass(frozen=True)
class Timelines:
    """Both timelines. The data timeline was listed first, so it is never newer than the metadata table's."""

    data: Timeline
    metadata: Timeline

    def times(self) -> list[str]:
        """All requested and completion times."""
        return self.data.times() + self.metadata.times()

    def latest_completion(self) -> str:
        """Completion time of the newest completed data instant, "0" when there is none."""
        return self.data.newest_completion() or "0"

    def newer_than(self, time: str, own_instant: str) -> list[str]:
        """Timeline files of other writers that forbid a commit of ours with the completion time ``time``.

        - Instants completed after ``time``, on either timeline. A reader that follows the table by completion
          time has passed ``time`` already, and would miss our commit.
        - Compactions and clusterings scheduled after ``time``. Their plans do not have our log file, but it
          would belong to a file slice that they replace.
        """
        file_names = []
        for timeline in (self.data, self.metadata):
            others = [other for other in timeline.instants if other.requested != own_instant]
            file_names += [
                other.file_name
                for other in others
                if other.completion is not None and other.completion > time
            ]
            plans = [other for other in others if other.action in _BEGIN_SLICES and not other.is_completed]
            file_names += [plan.file_name for plan in plans if plan.requested > time]
        return file_names

    def completed_at(self, instant: str) -> str | None:
        """Completion time of our instant on the data timeline or in its archive; None if it has none."""
        active = self.data.find(instant)
        if active is not None:
            return active.completion
        archive = self.data.archive
        return archive.completion_time(instant) if archive is not None else None


def last_archived_ms(storage: Storage) -> int | None:
    """When a timeline was archived last (Unix epoch, by the storage's clock), by whom ever; None if none ever
    was. Raises OSError.
    """
    paths = (join_path(root, "timeline/history", VERSION_NAME) for root in (DATA_ROOT, METADATA_TABLE_ROOT))
    times = [written_ms(storage, path) for path in paths]
    return max((time for time in times if time is not None), default=None)


def load_timelines(storage: Storage) -> Timelines:
    """Lists the data timeline first, then the metadata table's."""
    data = load_timeline(storage)
    return Timelines(data, load_timeline(storage, METADATA_TABLE_ROOT))


class Rollbacks:
    """Which instants the rollbacks on the data timeline name. Completed rollbacks are read only once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._completed: dict[str, list[str]] = {}

    def naming(self, timelines: Timelines, instant: str) -> str | None:
        """Requested time of the rollback that names the instant, or None.

        All rollbacks are searched, whatever their times: a rollback may have a lower time than the instant
        that it names, because another engine's clock is behind ours.
        """
        return next((by for by, named in self._read(timelines).items() if instant in named), None)

    def named(self, timelines: Timelines) -> set[str]:
        """All instants that rollbacks name. A new instant must be none of them: it would be rolled back
        already.

        Instants of 14 digits (Hudi before 0.10) are left out, because a new instant has 17.
        """
        return {name for names in self._read(timelines).values() for name in names if is_instant_time(name)}

    def _read(self, timelines: Timelines) -> dict[str, list[str]]:
        """Requested time of a rollback -> requested times that it names; pending rollbacks first."""
        before, completed = self._completed, timelines.data.completed(Action.ROLLBACK)
        self._completed = {
            rollback.file_name: before.get(rollback.file_name) or rolled_back_by(self._storage, rollback)
            for rollback in completed
        }
        pending = timelines.data.pending(Action.ROLLBACK)
        named = {rollback.requested: rolled_back_by(self._storage, rollback) for rollback in pending}
        return named | {rollback.requested: self._completed[rollback.file_name] for rollback in completed}


def rolled_back_by(storage: Storage, rollback: Instant) -> list[str]:
    """Requested times of the instants that a rollback names: a pending one in its plan, a completed one in
    its metadata. Empty while a pending one has no plan. Raises CorruptFileError.
    """
    if rollback.state is State.COMPLETED:
        path = instant_path(rollback)
        return undone_by(storage.read(path), path)
    plan = pending_plan(storage, rollback)
    return [] if plan is None else [plan.instant_to_rollback]


def undone_by(metadata: bytes, path: str) -> list[str]:
    """Requested times of the instants that a completed rollback with this metadata names. Raises
    CorruptFileError, which names ``path``.
    """
    return [instant for instant, _ in decode_rollback_metadata(metadata, path).rolled_back]
