"""Effects around an attempt: plan and open it, close an empty epoch, void, clean, rewind.

Each is named by an action of `domain.actions`, where it says what a crash in the middle means.
"""

from __future__ import annotations

from commit_coordinator.context import Context
from commit_coordinator.domain.actions import CleanVoided, CloseEmpty, OpenAttempt, Plan, Rewind, VoidAttempt
from commit_coordinator.errors import AttemptLostError
from commit_coordinator.staging import close_attempt, open_attempt
from commit_coordinator.table_state import Timelines, load_timelines
from epoch_protocol.entries import AttemptVoided, Decision, EpochCommitted, EpochPlanned, Rewound
from hudi_format.commit import heartbeat
from hudi_format.commit.instants import create_inflight, create_requested
from hudi_format.commit.rollback import rollback_pending
from hudi_format.timeline import Instant, State
from hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata


def plan_epoch(context: Context, action: Plan) -> None:
    """Chooses the instant under the lock, says so, and opens the attempt.

    Raises AttemptLostError (rewind) when another writer committed something that was not handled yet.
    """
    if not action.has_rows:
        context.log.append(_planned(context, action, None, "0"))
        return
    context.lock.acquire(context.lock_wait_ms)
    keep = False
    try:
        timelines = load_timelines(context.storage)
        refuse_foreign(timelines, context.fold().state.handled, None)
        context.instants.observe(timelines.times())
        planned = _planned(context, action, context.instants.next(), timelines.latest_completion())
        context.hit("before_epoch_planned")
        context.log.append(planned)
        context.hit("after_epoch_planned")
        open_planned(context, OpenAttempt(planned))
        keep = action.hold_lock
    finally:
        if not keep:
            context.lock.release()


def open_planned(context: Context, action: OpenAttempt) -> None:
    """Staging folder, heartbeat, requested, inflight; repeatable under any term."""
    planned, storage = action.planned, context.storage
    assert planned.instant is not None
    open_attempt(storage, context.term, planned.epoch, planned.attempt, context.ids.uuid())
    heartbeat.beat(storage, planned.instant)
    timelines = load_timelines(storage)
    if timelines.data.find(planned.instant) is None and timelines.data.is_archived(planned.instant):
        raise AttemptLostError(f"instant {planned.instant} lies before the timeline's start", rewind=False)
    requested = create_requested(storage, planned.instant, context.table.action)
    context.hit("after_requested")
    create_inflight(storage, requested, encode_commit_metadata(CommitMetadata()))
    context.hit("after_inflight")


def close_empty(context: Context, action: CloseEmpty) -> None:
    """An epoch without rows is committed by the decisions alone."""
    planned = action.planned
    context.log.append(
        EpochCommitted(
            term=context.term,
            epoch=planned.epoch,
            attempt=planned.attempt,
            instant=None,
            completion=None,
            committed_ms=context.clock.now_ms(),
        )
    )


def void_attempt(context: Context, action: VoidAttempt) -> None:
    """Says that the attempt will never commit; with a rewind in the same transaction where tags fell too."""
    planned = action.planned
    voided = AttemptVoided(context.term, planned.epoch, planned.attempt, action.reason)
    context.log.append(*([voided, _rewound(context, action.reason)] if action.rewind else [voided]))
    context.hit("after_voided")


def clean_voided(context: Context, action: CleanVoided) -> None:
    """Rolls every voided instant back: fence first, then rollback, files, heartbeat."""
    for voided in action.voided:
        close_attempt(context.storage, context.term, voided.epoch, voided.attempt)
        if voided.instant is not None:
            _roll_back(context, voided.instant)
        context.hit("after_rolled_back")


def rewind(context: Context, action: Rewind) -> None:
    """All lanes back to the last committed epoch; what other writers committed counts as handled."""
    context.log.append(_rewound(context, action.reason))


def refuse_foreign(timelines: Timelines, handled: str, own_instant: str | None) -> None:
    """Raises AttemptLostError (rewind) naming the first unhandled commit of another writer."""
    foreign = timelines.foreign_after(handled, own_instant)
    if foreign:
        raise AttemptLostError(f"another writer committed {foreign[0].file_name}", rewind=True)


def _roll_back(context: Context, instant: str) -> None:
    held = context.lock.is_held
    context.lock.acquire(context.lock_wait_ms)
    try:
        found = load_timelines(context.storage).data.find(instant)
        if found is not None and found.state is State.COMPLETED:
            raise AttemptLostError(f"voided instant {instant} was completed by somebody else", rewind=True)
        rollback_pending(context.storage, instant, context.instants)
    finally:
        if not held:
            context.lock.release()


def _rewound(context: Context, reason: str) -> Decision:
    state = context.fold().state
    return Rewound(
        term=context.term,
        generation=state.generation + 1,
        to=state.committed.through,
        handled=load_timelines(context.storage).latest_completion(),
        reason=reason,
    )


def _planned(context: Context, action: Plan, instant: str | None, as_of: str) -> EpochPlanned:
    fold = context.fold()
    manifest = fold.manifest(action.through)
    schema_ids = list(dict.fromkeys(counted.entry.schema_id for counted in manifest))
    return EpochPlanned(
        term=context.term,
        epoch=action.epoch,
        attempt=action.attempt,
        generation=fold.state.generation,
        through=action.through,
        instant=instant,
        as_of=as_of,
        schema=context.table.schema(schema_ids) if instant is not None else "",
        planned_ms=context.clock.now_ms(),
    )


def planned_instant(context: Context, planned: EpochPlanned, state: State) -> Instant:
    """The attempt's instant in a state of its life."""
    assert planned.instant is not None
    return Instant(planned.instant, context.table.action, state)
