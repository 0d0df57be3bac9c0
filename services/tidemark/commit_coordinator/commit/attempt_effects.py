"""Effects around an attempt: plan and open it, close an empty epoch, void, clean, rewind.

Each effect carries out one action of `domain.actions`; the action's docstring says what a crash leaves.

An epoch with rows is planned in these steps, under the table's lock:

1. check what other writers may have changed: properties, commits, the record index, other indexes
2. choose the instant and the schema, append `EpochPlanned`
3. open the attempt for its writers; make the heartbeat, the requested and the inflight file
4. release the lock
"""

from __future__ import annotations

import logging

from tidemark.commit_coordinator.commit.agreement import check_not_undone
from tidemark.commit_coordinator.commit.begun_partitions import delete_left, forget_prepared, take_back_voided
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.index_at_rest import refuse_during_rest
from tidemark.commit_coordinator.commit.kept_indexes import NO_INDEXES, KeptIndexes
from tidemark.commit_coordinator.commit.served_table import leave_stats_of_others
from tidemark.commit_coordinator.commit.table_state import Timelines, load_timelines
from tidemark.commit_coordinator.commit.taken_groups import refuse_awaited
from tidemark.commit_coordinator.commit.timeline_look import TimelineLook, look
from tidemark.commit_coordinator.commit.unfinished_index import check_commits
from tidemark.commit_coordinator.domain.actions import (
    CleanVoided,
    CloseEmpty,
    OpenAttempt,
    Plan,
    RewindLanes,
    VoidAttempt,
)
from tidemark.commit_coordinator.domain.next_action import AwaitedPlan
from tidemark.commit_coordinator.errors import AttemptLostError, DivergedError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    Decision,
    EpochCommitted,
    EpochPlanned,
    Rewound,
)
from tidemark.epoch_protocol.state import VoidedAttempt
from tidemark.hudi_format.commit import heartbeat
from tidemark.hudi_format.commit.instants import create_inflight, create_requested
from tidemark.hudi_format.commit.rollback import rollback_pending
from tidemark.hudi_format.errors import LockLostError
from tidemark.hudi_format.metadata_table.restored_index import check_index_is_of_the_rows
from tidemark.hudi_format.publication.tickets import NotBefore, Settled
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.timeline import Instant, State, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata

_log = logging.getLogger("tidemark.coordinator")


def plan_epoch(context: Context, action: Plan, awaited: AwaitedPlan | None = None) -> str:
    """Plans the epoch and opens its attempt. Returns the token that its writers make files with, "" for an
    epoch without rows.

    Raises AttemptLostError when the awaited clustering is still pending, while a command that makes an index
    asks for rest, and (with rewind) when another writer committed something that no rewind has taken into
    account; DivergedError when another writer undid our last commit; UnsupportedTableError when another
    writer changed the table's indexes, properties or schema in a way that is not served, built the record
    index anew with another number of shards, or restored the table without its record index.
    """
    if not action.has_rows:
        # Epochs without rows check for other writers' commits as well: dropping a delete of an unknown key
        # already depends on the table. If another engine has just inserted that key, the delete must be kept.
        timelines = load_timelines(context.storage)
        difference = _refuse_outdated(context, timelines)
        if context.hidden_bases.is_due(timelines.metadata):
            _look_for_hidden_bases(context)
        leave_stats_of_others(context, timelines, difference.moves_no_key)
        newly_seen = difference.entries(context.term, handled=False)
        context.log.append(*newly_seen, _planned(context, action, None, "0", ""))
        return ""
    if awaited is not None and awaited.index is None:
        # Before the lock is taken, because the clustering needs the lock to complete; and before a command's
        # rest, which would take the clustering's place.
        refuse_awaited(load_timeline(context.storage), awaited)
    refuse_during_rest(context)
    with context.steps.step("plan_lock"):
        context.lock.acquire(context.lock_wait_ms)
    keep = False
    try:
        timelines = load_timelines(context.storage)
        config = check_commits(context, timelines)
        difference = _refuse_outdated(context, timelines)
        refuse_hidden_bases(context, timelines)
        delete_left(context, timelines)
        if leave_stats_of_others(context, timelines, difference.moves_no_key):
            config = check_commits(context, timelines)
        context.instants.observe([*timelines.times(), *context.rollbacks.named(timelines)])
        schema = context.table.schema(_schema_ids(context, action), timelines.data)
        kept = context.indexes.current(config, timelines)
        kept.check_schema(TableSchema.from_avro(schema, context.table.name))
        instant, as_of = context.instants.next(), timelines.latest_completion()
        planned = _planned(context, action, instant, as_of, schema, kept)
        context.hit(CoordinatorFailpoint.BEFORE_EPOCH_PLANNED)
        with context.steps.step("plan_append"):
            context.log.append(*difference.entries(context.term, handled=False), planned)
        context.hit(CoordinatorFailpoint.AFTER_EPOCH_PLANNED)
        with context.steps.step("plan_open"):
            token = open_planned(context, OpenAttempt(planned))
        keep = action.hold_lock
        return token
    finally:
        if not keep:
            with context.steps.step("plan_unlock"):
                give_back(context)


def _look_for_hidden_bases(context: Context) -> None:
    """As a plan with rows does, in a hold of the lock of its own."""
    context.lock.acquire(context.lock_wait_ms)
    try:
        refuse_hidden_bases(context, load_timelines(context.storage))
    finally:
        give_back(context)


def open_planned(context: Context, action: OpenAttempt) -> str:
    """Opens the attempt for its writers, then makes heartbeat, requested and inflight file. Repeatable, also
    by a successor. Returns the token that writers make files with.

    Raises AttemptLostError when another engine rolled the instant back while no coordinator kept its
    heartbeat. Its files made again would become a commit that a rollback names.
    """
    planned, publishing = action.planned, context.publishing
    assert planned.instant is not None
    # All files are made in the term, so a coordinator that was frozen here and has a successor makes none.
    token = publishing.open_attempt(planned.epoch, planned.attempt)
    heartbeat.begin(publishing, planned.instant)
    timelines = load_timelines(context.storage)
    refuse_rolled_back(context, timelines, planned.instant)
    if timelines.data.find(planned.instant) is None and timelines.data.is_archived(planned.instant):
        raise AttemptLostError(
            f"instant {planned.instant} lies before the timeline's start: readers would take it as archived",
            rewind=False,
        )
    requested = create_requested(publishing, planned.instant, context.table.action)
    context.hit(CoordinatorFailpoint.AFTER_REQUESTED)
    nothing_yet = encode_commit_metadata(CommitMetadata())
    create_inflight(publishing, requested, nothing_yet)
    context.hit(CoordinatorFailpoint.AFTER_INFLIGHT)
    return token


def close_empty(context: Context, action: CloseEmpty) -> None:
    """Commits an epoch without rows by an entry on the decisions alone; the table gets no commit.

    Releases the lock if the rewind before kept it for this epoch.
    """
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
    free_kept_lock(context)


def void_attempt(context: Context, action: VoidAttempt) -> None:
    """Appends that the attempt will never commit; with ``rewind`` the rewind is in the same transaction."""
    planned = action.planned
    if planned.partitioned is not None and action.revokes:
        # What a decision published in groups that it begins goes under the lock.
        context.lock.acquire(context.lock_wait_ms)
    voided = AttemptVoided(
        context.term, planned.epoch, planned.attempt, action.reason, undecides=action.revokes
    )
    rewound = _rewound(context, action.reason, planned.instant) if action.rewind else []
    context.log.append(voided, *rewound)
    # A lock that was kept since the plan (`hold_lock`) is released: tagging anew may take long.
    if context.lock.is_held:
        give_back(context)
    context.hit(CoordinatorFailpoint.AFTER_VOIDED)
    forget_prepared(context)


def clean_voided(context: Context, action: CleanVoided) -> dict[VoidedAttempt, int]:
    """Rolls back the instants of void attempts: closes the attempt, then rollback, files, heartbeat.

    Returns the attempts of which a file might still appear, with the time to ask again (Unix epoch). Their
    instants stay pending.
    """
    waiting: dict[VoidedAttempt, int] = {}
    for voided in action.voided:
        settled = _close(context, voided)
        if isinstance(settled, NotBefore):
            waiting[voided] = settled.ms
            continue
        if voided.instant is not None:
            _roll_back(context, voided.instant)
        context.hit(CoordinatorFailpoint.AFTER_ROLLED_BACK)
    return waiting


def _close(context: Context, voided: VoidedAttempt) -> Settled | NotBefore:
    return context.publishing.close_attempt(voided.epoch, voided.attempt)


def rewind(context: Context, action: RewindLanes) -> None:
    """Appends that all lanes go back to the last committed epoch, and which instants are seen from now on.

    Raises UnsupportedTableError when another engine restored the table without its record index, or built
    the index with another number of shards. Tagging anew reads that index, so the rewind waits until the
    index is built anew.
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
    """Gives a released lock back once other writers' clocks have passed our last time.

    A lock that was lost meanwhile is only logged: what was done under it has long ended.
    """
    try:
        context.lock.tick()
    except (LockLostError, OSError) as error:
        _log.warning("%s", error)


def free_lock(context: Context) -> None:
    """Releases the lock that a coordinator holds or left, unless an epoch or a service action is decided;
    others need not wait.

    First waits for the clocks' skew, because a coordinator that died may have taken a time a moment ago.
    """
    holder = context.lock.holder()
    state = context.fold().state
    decided = state.decided is not None or any(held.decided for held in state.services.values())
    if holder is None or holder.is_foreign or decided:
        return
    try:
        if context.lock.is_held or context.lock.try_acquire():
            take_back_voided(context)
            context.lock.release(context.instants.taken_ms or context.clock.now_ms())
        context.lock.free()
    except LockLostError as error:
        _log.warning("%s", error)


def free_kept_lock(context: Context) -> None:
    """Releases the lock that a rewind kept, if it is still held."""
    if context.lock.is_held:
        give_back(context)


def _refuse_outdated(context: Context, timelines: Timelines) -> TimelineLook:
    """Checks what other writers did; returns what is new and no surprise.

    Raises AttemptLostError, DivergedError, or UnsupportedTableError (the record index was not restored
    together with the rows, or has another number of shards).
    """
    check_not_undone(timelines, context.fold().state.committed)
    difference = refuse_surprises(context, timelines, None)
    check_index_is_of_the_rows(context.storage, timelines.data, timelines.metadata)
    _check_entries(context, timelines)
    context.shards.check(timelines.metadata)
    return difference


def _check_entries(context: Context, timelines: Timelines) -> None:
    """Checks the index after other engines' log compactions and replacecommits, and stores at once which of
    the latter were right.

    Later it could not be checked again: the files that show it are compacted, cleaned and archived.
    """
    context.folded_entries.check(timelines.data, timelines.metadata)
    context.replaced_entries.check(timelines.data, timelines.metadata)
    context.replaced_entries.keep(context.publishing)


def refuse_surprises(context: Context, timelines: Timelines, own_instant: str | None) -> TimelineLook:
    """Raises AttemptLostError (rewind) if another writer did something that no rewind took into account."""
    difference = look(context.storage, timelines, context.fold().state, own_instant)
    if difference.surprises:
        raise AttemptLostError(difference.reason(), rewind=True)
    return difference


def refuse_hidden_bases(context: Context, timelines: Timelines) -> None:
    """As `HiddenBases.check`. Hold the table's lock."""
    context.hidden_bases.check(context.publishing, timelines.metadata, context.fold().state.generation)


def refuse_rolled_back(context: Context, timelines: Timelines, instant: str) -> None:
    """Raises AttemptLostError (rewind) when a pending or completed rollback names the instant."""
    rollback = context.rollbacks.naming(timelines, instant)
    if rollback is not None:
        raise AttemptLostError(f"rollback {rollback} names instant {instant}", rewind=True)


def give_back(context: Context) -> None:
    """Releases the lock, after what void attempts published is gone that must not outlive it. A lock that was
    lost is only logged: what was done under it is over already.
    """
    try:
        take_back_voided(context)
        context.lock.release(context.instants.taken_ms)
    except (LockLostError, OSError) as error:
        _log.warning("%s", error)


def _roll_back(context: Context, instant: str) -> None:
    context.lock.acquire(context.lock_wait_ms)
    try:
        timelines = load_timelines(context.storage)
        ours = timelines.data.find(instant)
        if ours is not None and ours.state is State.COMPLETED:
            raise DivergedError(
                f"instant {instant} of a voided attempt is completed: somebody else completed it, or the "
                "decisions are another table's"
            )
        # Another engine that rolled it back deleted the markers, and our writer may have made files since:
        # then the files are found by listing.
        search = ours is None and context.rollbacks.naming(timelines, instant) is not None
        rollback_pending(context.publishing, instant, context.instants, search=search)
    finally:
        give_back(context)


def _rewound(context: Context, reason: str, own_instant: str | None) -> list[Decision]:
    """The entries of a rewind: `Rewound`, then which instants are seen from now on.

    The order matters if the transaction breaks off and only its first entries remain. A `Rewound` alone
    leaves the surprises unseen, so the next look rewinds once more. Seen instants alone would hide them.
    """
    state = context.fold().state
    timelines = load_timelines(context.storage)
    difference = look(context.storage, timelines, state, own_instant)
    leave_stats_of_others(context, timelines, difference.foreign + difference.moves_no_key)
    rewound = Rewound(
        term=context.term,
        generation=state.generation + 1,
        to=state.committed.through,
        handled=timelines.latest_completion(),
        reason=reason,
        starts=context.fold().rewind_starts(),
        forget_stamps=difference.forget_stamps,
    )
    return [rewound, *difference.entries(context.term, handled=True)]


def _schema_ids(context: Context, action: Plan) -> list[str]:
    manifest = context.fold().manifest(action.through)
    return list(dict.fromkeys(counted.entry.schema_id for counted in manifest))


def _planned(
    context: Context,
    action: Plan,
    instant: str | None,
    as_of: str,
    schema: str,
    kept: KeptIndexes = NO_INDEXES,
) -> EpochPlanned:
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
        column_stats=kept.column_stats,
        secondary=kept.entries,
        partitioned=kept.partitioned,
    )


def planned_instant(context: Context, planned: EpochPlanned, state: State) -> Instant:
    """The attempt's instant on the data timeline, in the given state."""
    assert planned.instant is not None
    return Instant(planned.instant, context.table.action, state)
