"""What the table's two timelines say that the coordinator must know before it plans or decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidemark.hudi_format.commit.instants import instant_path
from tidemark.hudi_format.commit.rollback import pending_plan
from tidemark.hudi_format.model import is_instant_time
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.timeline import (
    METADATA_TABLE_ROOT,
    Action,
    Instant,
    State,
    Timeline,
    load_timeline,
)
from tidemark.hudi_format.timeline.service_records import decode_rollback_metadata

# Already scheduling one begins new file slices: log files that complete before it are not in them.
_BEGIN_SLICES: Final = (Action.COMPACTION, Action.LOG_COMPACTION, Action.CLUSTERING)


@dataclass(frozen=True)
class Timelines:
    """Both timelines, data listed first."""

    data: Timeline
    metadata: Timeline

    def times(self) -> list[str]:
        """All requested and completion times."""
        return self.data.times() + self.metadata.times()

    def latest_completion(self) -> str:
        """Completion time of the newest completed data instant, "0" when there is none."""
        return self.data.newest_completion() or "0"

    def newer_than(self, time: str, own_instant: str) -> list[str]:
        """What other writers did that a commit completing at ``time`` would have to lie behind, by file name.

        Completions after that time on either timeline: readers that follow the table by completion time have
        passed it. Compactions scheduled after it: they replace the file slice that our log file lies in.
        """
        found = []
        for timeline in (self.data, self.metadata):
            others = [each for each in timeline.instants if each.requested != own_instant]
            found += [
                each.file_name for each in others if each.completion is not None and each.completion > time
            ]
            scheduled = [each for each in others if each.action in _BEGIN_SLICES and not each.is_completed]
            found += [each.file_name for each in scheduled if each.requested > time]
        return found

    def completed_at(self, instant: str) -> str | None:
        """Completion time of our instant, also when others archived it since; None when it has none."""
        found = self.data.find(instant)
        if found is not None:
            return found.completion
        archive = self.data.archive
        return archive.completion_times().get(instant) if archive is not None else None


def load_timelines(storage: Storage) -> Timelines:
    """Lists the data timeline first, then the metadata table's."""
    data = load_timeline(storage)
    return Timelines(data, load_timeline(storage, METADATA_TABLE_ROOT))


class Rollbacks:
    """What the rollbacks on the data timeline name; completed ones are read once."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._completed: dict[str, list[str]] = {}

    def naming(self, timelines: Timelines, instant: str) -> str | None:
        """The rollback that names the instant, or None; pending ones by their plan, others by what they did.

        Whatever their times are: another engine's clock may be behind the instant that it rolls back.
        """
        return next((by for by, named in self._read(timelines).items() if instant in named), None)

    def named(self, timelines: Timelines) -> set[str]:
        """All instants that rollbacks name. None of them may be chosen again: it would be rolled back
        already. Those of 14 digits, as Hudi before 0.10 had them, never are.
        """
        return {each for named in self._read(timelines).values() for each in named if is_instant_time(each)}

    def _read(self, timelines: Timelines) -> dict[str, list[str]]:
        """Requested time of a rollback -> what it names, pending ones first."""
        before, completed = self._completed, timelines.data.completed(Action.ROLLBACK)
        self._completed = {
            each.file_name: before.get(each.file_name) or rolled_back_by(self._storage, each)
            for each in completed
        }
        pending = timelines.data.pending(Action.ROLLBACK)
        named = {each.requested: rolled_back_by(self._storage, each) for each in pending}
        return named | {each.requested: self._completed[each.file_name] for each in completed}


def rolled_back_by(storage: Storage, rollback: Instant) -> list[str]:
    """Requested times of what a rollback names; of a pending one by its plan. Raises CorruptFileError that
    names the file of a completed one.
    """
    if rollback.state is State.COMPLETED:
        path = instant_path(rollback)
        return [instant for instant, _ in decode_rollback_metadata(storage.read(path), path).rolled_back]
    plan = pending_plan(storage, rollback)
    return [] if plan is None else [plan.instant_to_rollback]
