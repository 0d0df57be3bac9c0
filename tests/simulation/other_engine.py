"""What another engine does to the table beside us, by the format library's own steps."""

from __future__ import annotations

from hudi_format.commit.instants import complete, create_inflight, create_requested, instant_path
from hudi_format.commit.rollback import rollback_pending
from hudi_format.metadata_table.delta_commit import (
    begin_delta_commit,
    complete_delta_commit,
    delta_commit_metadata,
    publish_files_log,
)
from hudi_format.model import InstantGenerator
from hudi_format.storage.base import Storage
from hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, Instant, State, load_timeline
from hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, encode_commit_metadata
from hudi_format.timeline.service_records import (
    CompactionPlan,
    RollbackPlan,
    encode_compaction_plan,
    encode_rollback_plan,
)
from stream_runtime.clock import Clock
from tests.simulation.scripted_tagger import SCHEMA


class OtherEngine:
    """Writes nothing into the rows: that it committed is what has to be noticed."""

    def __init__(self, storage: Storage, clock: Clock, action: Action, follows: bool = True) -> None:
        """``follows``: its times lie above both timelines; Hudi's own writers look at their clocks alone."""
        self._storage, self._follows = storage, follows
        self._instants = InstantGenerator(clock)
        self._action = action

    def commit(self) -> str:
        """A commit on both timelines; returns its completion time."""
        self._look()
        instant = self._instants.next()
        nothing = encode_commit_metadata(CommitMetadata(extra_metadata={SCHEMA_KEY: SCHEMA.avro_json}))
        requested = create_requested(self._storage, instant, self._action)
        inflight = create_inflight(self._storage, requested, nothing)
        begun = begin_delta_commit(self._storage, instant)
        log = publish_files_log(self._storage, instant, [])
        metadata = delta_commit_metadata(instant, [log])
        complete_delta_commit(self._storage, begun, self._instants.next(), metadata)
        completion = self._instants.next()
        complete(self._storage, inflight, completion, nothing)
        return completion

    def roll_back(self, instant: str) -> None:
        """Rolls a pending instant back, whatever its heartbeat says."""
        self._look()
        rollback_pending(self._storage, instant, self._instants)

    def schedule_rollback(self, instant: str) -> None:
        """Leaves a rollback of the instant pending."""
        self._look()
        plan = RollbackPlan(instant_to_rollback=instant, action=self._action.value, requests=())
        create_requested(self._storage, self._instants.next(), Action.ROLLBACK, encode_rollback_plan(plan))

    def schedule_compaction(self, root: str) -> str:
        """Leaves a compaction (of nothing) pending on the timeline below ``root``; returns its instant."""
        self._look()
        instant = self._instants.next()
        plan = encode_compaction_plan(CompactionPlan(operations=()))
        create_requested(self._storage, instant, Action.COMPACTION, plan, root=root)
        return instant

    def clean(self) -> str:
        """A clean that found nothing to delete; returns its completion time."""
        self._look()
        requested = create_requested(self._storage, self._instants.next(), Action.CLEAN)
        inflight = create_inflight(self._storage, requested)
        completion = self._instants.next()
        complete(self._storage, inflight, completion, b"")
        return completion

    def pending(self) -> list[Instant]:
        """Pending writes of anybody."""
        timeline = load_timeline(self._storage)
        return [each for each in timeline.pending(self._action) if each.state is not State.COMPLETED]

    def undo(self, instant: str) -> None:
        """Rolls a completed commit back, as Hudi's `rollback_to_instant` does: it is pending again first."""
        self._look()
        for root in (METADATA_TABLE_ROOT, DATA_ROOT):
            found = load_timeline(self._storage, root).find(instant)
            assert found is not None
            assert found.is_completed
            self._storage.delete(instant_path(found, root))
        rollback_pending(self._storage, instant, self._instants)

    def _look(self) -> None:
        if not self._follows:
            return
        for timeline in (load_timeline(self._storage), load_timeline(self._storage, METADATA_TABLE_ROOT)):
            self._instants.observe(timeline.times())
