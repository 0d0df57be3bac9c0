"""Effects around an attempt: plan and open it, close an empty epoch, void, clean, rewind.

Each is named by an action of `domain.actions`, where it says what a crash in the middle means.
"""

from __future__ import annotations

import logging

from tidemark.commit_coordinator.commit.agreement import check_not_undone
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.commit.taken_groups import refuse_awaited
from tidemark.commit_coordinator.commit.timeline_look import TimelineLook, look
from tidemark.commit_coordinator.domain.actions import (
    CleanVoided,
    CloseEmpty,
    OpenAttempt,
    Plan,
    Rewind,
    VoidAttempt,
)
from tidemark.commit_coordinator.domain.next_action import AwaitedPlan
from tidemark.commit_coordinator.errors import AttemptLostError, DivergedError
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    Decision,
    EpochCommitted,
    EpochPlanned,
    Rewound,
    TimelineSeen,
)
from tidemark.epoch_protocol.state import VoidedAttempt
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.errors import LockLostError
from tidemark.hudi_format.metadata_table.restored_index import check_index_is_of_the_rows
from tidemark.hudi_format.publication.tickets import NotBefore, Settled
from tidemark.hudi_format.timeline import Instant, State, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.hudi_format.validation import check_still_servable

_log = logging.getLogger("tidemark.coordinator")


def plan_epoch(context: Context, action: Plan, awaited: AwaitedPlan | None = None) -> str:
    """Chooses the instant under the lock, says so, and opens the attempt. Returns the token that its writers
    need, "" for an epoch without rows.

    Raises AttemptLostError when the awaited clustering is pending still, and (rewind) when another writer
    committed something that was not handled yet, DivergedError when one undid our last commit,
    UnsupportedTableError when one changed the table's indexes, properties or schema in a way that is not
    served, built the record index anew with another number of shards, or restored the table and left the
    index behind.
    """
    if not action.has_rows:
        # What changes nothing was judged by the table, too: a delete of a key that was not there is lost for
        # good if another engine had just inserted it.
        found = _refuse_outdated(context, load_timelines(context.storage))
        context.log.append(*found, _planned(context, action, None, "0", ""))
        return ""
    if awaited is not None:
        # Before the lock is taken: who clusters needs it to complete.
        refuse_awaited(load_timeline(context.storage), awaited)
    with context.steps.step("plan_lock"):
        context.lock.acquire(context.lock_wait_ms)
    keep = False
    try:
        timelines = load_timelines(context.storage)
        check_still_servable(context.storage, context.table.accepted_properties)
        found = _refuse_outdated(context, timelines)
        context.instants.observe([*timelines.times(), *context.rollbacks.named(timelines)])
        schema = context.table.schema(_schema_ids(context, action), timelines.data)
        planned = _planned(context, action, context.instants.next(), timelines.latest_completion(), schema)
        context.hit("before_epoch_planned")
        with context.steps.step("plan_append"):
            context.log.append(*found, planned)
        context.hit("after_epoch_planned")
        with context.steps.step("plan_open"):
            token = open_planned(context, OpenAttempt(planned))
        keep = action.hold_lock
        return token
    finally:
        if not keep:
            with context.steps.step("plan_unlock"):
                give_back(context)


def open_planned(context: Context, action: OpenAttempt) -> str:
    """Opens the attempt for its writers, then heartbeat, requested, inflight; repeatable under any term.
    Returns the token that writers need.

    Raises AttemptLostError when the instant was rolled back while no coordinator kept its heartbeat: made
    again it would be a commit that a rollback names.
    """
    planned, publishing = action.planned, context.publishing
    assert planned.instant is not None
    # All of it is made in the term: a coordinator that was frozen here opens nothing any more.
    token = publishing.open_attempt(planned.epoch, planned.attempt)
    heartbeat.begin(publishing, planned.instant)
    timelines = load_timelines(context.storage)
    refuse_rolled_back(context, timelines, planned.instant)
    if timelines.data.find(planned.instant) is None and timelines.data.is_archived(planned.instant):
        raise AttemptLostError(f"instant {planned.instant} lies before the timeline's start", rewind=False)
    requested = create_requested(publishing, planned.instant, context.table.action)
    context.hit("after_requested")
    nothing_yet = encode_commit_metadata(CommitMetadata())
    create_inflight(publishing, requested, nothing_yet)
    context.hit("after_inflight")
    return token


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
    voided = AttemptVoided(
        context.term, planned.epoch, planned.attempt, action.reason, undecides=action.revokes
    )
    rewound = _rewound(context, action.reason, planned.instant) if action.rewind else []
    context.log.append(voided, *rewound)
    # One that was held from the plan on: tagging anew may take long, and others want to write.
    if context.lock.is_held:
        give_back(context)
    context.hit("after_voided")


def clean_voided(context: Context, action: CleanVoided) -> dict[VoidedAttempt, int]:
    """Rolls every voided instant back: fence first, then rollback, files, heartbeat. Returns those that are
    not settled yet, with the time (Unix epoch) at which to ask again: they stay pending.
    """
    waiting: dict[VoidedAttempt, int] = {}
    for voided in action.voided:
        settled = _close(context, voided)
        if isinstance(settled, NotBefore):
            waiting[voided] = settled.ms
            continue
        if voided.instant is not None:
            _roll_back(context, voided.instant)
        context.hit("after_rolled_back")
    return waiting


def _close(context: Context, voided: VoidedAttempt) -> Settled | NotBefore:
    return context.publishing.close_attempt(voided.epoch, voided.attempt)


def rewind(context: Context, action: Rewind) -> None:
    """All lanes back to the last committed epoch; what other writers did is taken into account.

    Raises UnsupportedTableError where it was a restore that left the record index behind, or built it with
    another number of shards: what is tagged anew would rest on that, so the rewind waits until the index is
    built anew.
    """
    timelines = load_timelines(context.storage)
    check_index_is_of_the_rows(context.storage, timelines.data, timelines.metadata)
    _check_entries(context, timelines)
    context.shards.check(timelines.metadata, anew=True)
    if not action.hold_lock:
        context.log.append(*_rewound(context, action.reason, None))
        return
    context.lock.acquire(context.lock_wait_ms)
    try:
        context.log.append(*_rewound(context, action.reason, None))
    except BaseException:
        give_back(context)
        raise


def tick_lock(context: Context) -> None:
    """Gives a released lock back when others' clocks have passed ours; that it was lost is only said."""
    try:
        context.lock.tick()
    except (LockLostError, OSError) as error:
        _log.warning("%s", error)


def free_kept_lock(context: Context) -> None:
    """Gives the lock back that a rewind kept, if it is held still."""
    if context.lock.is_held:
        give_back(context)


def _refuse_outdated(context: Context, timelines: Timelines) -> list[TimelineSeen]:
    """Raises AttemptLostError, DivergedError, UnsupportedTableError (a restore left the record index
    behind, or it has another number of shards); returns what the fold has to learn of the timeline.
    """
    check_not_undone(timelines, context.fold().state.committed)
    found = refuse_surprises(context, timelines, None)
    check_index_is_of_the_rows(context.storage, timelines.data, timelines.metadata)
    _check_entries(context, timelines)
    context.shards.check(timelines.metadata)
    return found.entries(context.term, handled=False)


def _check_entries(context: Context, timelines: Timelines) -> None:
    """What is found right is kept at once: what tells it is there for some commits only."""
    context.replaced_entries.check(timelines.data, timelines.metadata)
    context.replaced_entries.keep(context.publishing)


def refuse_surprises(context: Context, timelines: Timelines, own_instant: str | None) -> TimelineLook:
    """Raises AttemptLostError (rewind) naming what another writer did that no rewind took into account."""
    found = look(context.storage, timelines, context.fold().state, own_instant)
    if found.surprises:
        raise AttemptLostError(found.reason(), rewind=True)
    return found


def refuse_rolled_back(context: Context, timelines: Timelines, instant: str) -> None:
    """Raises AttemptLostError (rewind) when a rollback, pending or completed, names the instant."""
    rollback = context.rollbacks.naming(timelines, instant)
    if rollback is not None:
        raise AttemptLostError(f"rollback {rollback} names instant {instant}", rewind=True)


def give_back(context: Context) -> None:
    """Releases the lock; that it was lost is only said, for what was done under it stands or has failed."""
    try:
        context.lock.release(context.instants.taken_ms)
    except (LockLostError, OSError) as error:
        _log.warning("%s", error)


def _roll_back(context: Context, instant: str) -> None:
    context.lock.acquire(context.lock_wait_ms)
    try:
        timelines = load_timelines(context.storage)
        found = timelines.data.find(instant)
        if found is not None and found.state is State.COMPLETED:
            raise DivergedError(
                f"instant {instant} of a voided attempt is completed: somebody else completed it, or the "
                "decisions are another table's"
            )
        # Another engine that rolled it back took the markers; its writer may have made files since.
        search = found is None and context.rollbacks.naming(timelines, instant) is not None
        rollback_pending(context.publishing, instant, context.instants, search=search)
    finally:
        give_back(context)


def _rewound(context: Context, reason: str, own_instant: str | None) -> list[Decision]:
    """The rewind first: alone it is made again by the next look, what was seen alone would not be."""
    state = context.fold().state
    timelines = load_timelines(context.storage)
    found = look(context.storage, timelines, state, own_instant)
    rewound = Rewound(
        term=context.term,
        generation=state.generation + 1,
        to=state.committed.through,
        handled=timelines.latest_completion(),
        reason=reason,
        starts=context.fold().rewind_starts(),
        forget_stamps=found.forget_stamps,
    )
    return [rewound, *found.entries(context.term, handled=True)]


def _schema_ids(context: Context, action: Plan) -> list[str]:
    manifest = context.fold().manifest(action.through)
    return list(dict.fromkeys(counted.entry.schema_id for counted in manifest))


def _planned(context: Context, action: Plan, instant: str | None, as_of: str, schema: str) -> EpochPlanned:
    fold = context.fold()
    return EpochPlanned(
        term=context.term,
        epoch=action.epoch,
        attempt=action.attempt,
        generation=fold.state.generation,
        through=action.through,
        instant=instant,
        as_of=as_of,
        schema=schema,
        planned_ms=context.clock.now_ms(),
    )


def planned_instant(context: Context, planned: EpochPlanned, state: State) -> Instant:
    """The attempt's instant in a state of its life."""
    assert planned.instant is not None
    return Instant(planned.instant, context.table.action, state)
