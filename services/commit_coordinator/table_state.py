"""What the table's two timelines say that the coordinator must know before it plans or decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hudi_format.commit.instants import instant_path
from hudi_format.storage.base import Storage
from hudi_format.timeline import METADATA_TABLE_ROOT, Action, Instant, State, Timeline, load_timeline
from hudi_format.timeline.service_records import decode_rollback_metadata, decode_rollback_plan

# They move no key and no row (ARCHITECTURE.md, "Void and rewind").
_HARMLESS: Final = frozenset(
    {Action.COMPACTION, Action.LOG_COMPACTION, Action.CLEAN, Action.ROLLBACK, Action.SAVEPOINT}
)


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
        return self.data.latest_completion() or "0"

    def foreign_after(self, handled: str, own_instant: str | None) -> list[Instant]:
        """Completed instants after ``handled`` that may have moved keys, other than our own."""
        return [
            each
            for each in self.data.completed()
            if each.action not in _HARMLESS
            and each.requested != own_instant
            and each.completion is not None
            and each.completion > handled
        ]


def load_timelines(storage: Storage) -> Timelines:
    """Lists the data timeline first, then the metadata table's."""
    data = load_timeline(storage)
    return Timelines(data, load_timeline(storage, METADATA_TABLE_ROOT))


def rollback_naming(storage: Storage, timelines: Timelines, instant: str) -> str | None:
    """The rollback that names the instant, or None; pending ones by their plan, others by what they did."""
    rollbacks = [
        *timelines.data.pending(Action.ROLLBACK),
        *timelines.data.completed(Action.ROLLBACK),
    ]
    for each in rollbacks:
        if each.requested > instant and instant in _rolled_back(storage, each):
            return each.requested
    return None


def _rolled_back(storage: Storage, rollback: Instant) -> list[str]:
    if rollback.state is State.COMPLETED:
        metadata = decode_rollback_metadata(storage.read(instant_path(rollback)))
        return [instant for instant, _ in metadata.rolled_back]
    requested = Instant(rollback.requested, Action.ROLLBACK, State.REQUESTED)
    return [decode_rollback_plan(storage.read(instant_path(requested))).instant_to_rollback]
