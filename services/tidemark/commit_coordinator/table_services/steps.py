"""The steps of a service action that all kinds share; `domain.service_actions` has what each of them is for.

========== =================================== ==================================================
step       under the table's lock              durable after it
========== =================================== ==================================================
`plan`     choose the instant, plan            the plan as a document, `ServicePlanned`
`offer`    no                                  the action's folder, for its tasks
`decide`   rules B and C, completion times     the outcomes as a document, `ServiceDecided`
`commit`   the same hold as `decide`           everything that readers see
`sweep`    no, unless its kind needs it        deletions, at the end `ServiceCommitted`
`void`     only if the action is decided       `ServiceVoided`
========== =================================== ==================================================

Nothing of an action is on the table before it is decided. A commit that broke off, or whose lock was given up
or lost, takes the lock again and asks all rules again before it goes on. While nothing is completed, the
decision can be taken back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from tidemark.commit_coordinator.calls.service_handoff import ServiceReport
from tidemark.commit_coordinator.commit.attempt_effects import give_back
from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.own_services import DecidedService
from tidemark.commit_coordinator.commit.served_table import check_served, leave_stats_of_others
from tidemark.commit_coordinator.commit.stored_documents import STORE, load_document, store_document
from tidemark.commit_coordinator.commit.table_state import load_timelines
from tidemark.commit_coordinator.commit.timeline_look import look
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.commit_coordinator.table_services.handler import (
    DecidedAction,
    Dropped,
    LockedStep,
    ServiceHandler,
)
from tidemark.commit_coordinator.table_services.rules import (
    completion_of_instant,
    decided_time,
    half_committed,
    half_done_by_other,
    out_of_timeline,
    overtaken,
    taken_instant,
    timeline_of,
)
from tidemark.epoch_protocol.entries import TimelineSeen
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServiceKind,
    ServiceOutcome,
    ServicePlanned,
    ServiceVoided,
)
from tidemark.hudi_format.errors import FencedOutError
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT
from tidemark.stream_runtime.allocator import give_memory_back

NO_REPORT: Final = ServiceReport(b"", ())
_SLICE_MS: Final = 1_000
_ON_DATA_TIMELINE: Final = frozenset({ServiceKind.COMPACT_DATA, ServiceKind.ROLLBACK})
"""A clean is there, too, and nobody is asked to have seen it."""
_log = logging.getLogger("tidemark.coordinator")


@dataclass(frozen=True)
class Completed:
    """An action is in the table. ``completion``: of its instant, "" for a kind that completes none."""

    completion: str
    by_other: bool


def plan(
    context: Context, handler: ServiceHandler, number: int, asked: bool = False
) -> ServicePlanned | Dropped | None:
    """Plans an action; None when there is nothing to do, `Dropped` when nothing may be planned now."""
    handler.prepare(context, None)
    with _locked(context) as step:
        check_served(context)
        reason = _half_committed(step, handler)
        if reason is not None:
            return Dropped(reason)
        context.instants.observe([*step.timelines.times(), *context.rollbacks.named(step.timelines)])
        instant = context.instants.next()
        document = handler.plan(replace(step, asked=asked), instant)
        if document is None or isinstance(document, Dropped):
            return document
        path, sha256 = store_document(context.storage, document)
        planned = ServicePlanned(
            term=context.term,
            service=number,
            kind=handler.kind,
            instant=instant,
            plan_path=path,
            plan_sha256=sha256,
            planned_ms=context.clock.now_ms(),
        )
        context.hit(CoordinatorFailpoint.BEFORE_SERVICE_PLANNED)
        context.lock.check()
        context.log.append(planned)
        context.hit(CoordinatorFailpoint.AFTER_SERVICE_PLANNED)
    return planned


def decide(
    context: Context, handler: ServiceHandler, planned: ServicePlanned, report: ServiceReport
) -> Completed | Dropped:
    """Decides and commits under one hold of the lock.

    `Dropped`: the plan does not hold any more, and the action is to be voided. Raises ActionLostError when
    the action is decided and cannot be committed.
    """
    stored = load_document(context.storage, planned.plan_path, planned.plan_sha256)
    tickets = _prepared(context, planned, report.tickets)
    if isinstance(tickets, Dropped):
        return tickets
    handler.prepare(context, stored)
    with _locked(context) as step:
        check_served(context)
        standing = _standing(step, handler, planned, stored)
        if isinstance(standing, Dropped):
            return standing
        context.instants.observe(step.timelines.times())
        content = DecidedService(planned.kind, planned.instant, standing, report.outcomes, tickets)
        path, sha256 = store_document(context.storage, msgspec.json.encode(content))
        decided = ServiceDecided(
            term=context.term,
            service=planned.service,
            metadata_completion=context.instants.next(),
            data_completion=context.instants.next(),
            statuses_path=path,
            statuses_sha256=sha256,
            decided_ms=context.clock.now_ms(),
        )
        context.hit(CoordinatorFailpoint.BEFORE_SERVICE_DECIDED)
        context.lock.check()
        context.log.append(decided)
        context.hit(CoordinatorFailpoint.AFTER_SERVICE_DECIDED)
        action = _action(planned, decided, content, tickets)
        with _term_checked(context):
            handler.commit(step, action)
        return Completed(decided_time(decided, handler.timeline), by_other=False)


def commit(
    context: Context, handler: ServiceHandler, planned: ServicePlanned, decided: ServiceDecided
) -> Completed:
    """Commits what was decided, whatever an earlier commit of it has made.

    Raises ActionLostError when something came between, and nothing is completed yet.
    """
    action = decided_action(context, planned, decided)
    handler.prepare(context, action.plan)
    with _locked(context, ends_epoch=True) as step:
        context.instants.observe([decided.data_completion])
        found = completion_of_instant(step.timelines, planned, handler.timeline)
        if found is not None:
            return Completed(found, by_other=found != decided_time(decided, handler.timeline))
        with _term_checked(context):
            if not handler.is_past_return(step, action):
                _check_standing(step, handler, action)
            handler.commit(step, action)
        half_done = half_done_by_other(step.timelines, planned, decided, handler.timeline)
        found = completion_of_instant(load_timelines(context.storage), planned, handler.timeline)
        return Completed(found or "", by_other=half_done is not None)


def take_back(
    context: Context, handler: ServiceHandler, planned: ServicePlanned, decided: ServiceDecided, reason: str
) -> bool:
    """Takes a decision back. False when something is completed under it by now, so that it has to go on."""
    action = decided_action(context, planned, decided)
    with _locked(context, ends_epoch=True) as step:
        found = completion_of_instant(step.timelines, planned, handler.timeline)
        if found is not None or handler.is_past_return(step, action):
            return False
        context.publishing.revoke(list(action.tickets.values()))
        context.hit(CoordinatorFailpoint.AFTER_TICKETS_REVOKED)
        handler.take_back(step, action)
        context.lock.check()
        voided = ServiceVoided(context.term, planned.service, reason, decided.data_completion)
        _append_void(context, voided, *_told(context, planned.kind))
    return True


def void(context: Context, planned: ServicePlanned, reason: str) -> None:
    """Voids an action that is not decided. Nothing of it is on the table."""
    _append_void(context, ServiceVoided(context.term, planned.service, reason, ""))


def sweep(
    context: Context,
    handler: ServiceHandler,
    planned: ServicePlanned,
    decided: ServiceDecided,
    completed: Completed,
    slice_ms: int,
) -> bool:
    """One slice of the sweep; True when the action is ended by `ServiceCommitted`."""
    action = decided_action(context, planned, decided)
    swept = handler.sweep(context, action, completed.by_other, slice_ms)
    context.hit(CoordinatorFailpoint.IN_SWEEP)
    if not swept:
        return False
    context.hit(CoordinatorFailpoint.BEFORE_SERVICE_COMMITTED)
    context.log.append(
        *_told(context, planned.kind),
        ServiceCommitted(
            term=context.term,
            service=planned.service,
            instant=planned.instant,
            completion=completed.completion,
            outcome=ServiceOutcome.BY_OTHER if completed.by_other else ServiceOutcome.DONE,
            committed_ms=context.clock.now_ms(),
        ),
    )
    _close(context, planned.service)
    give_memory_back()
    return True


def _told(context: Context, kind: ServiceKind) -> list[TimelineSeen]:
    """What the fold has to know of the data timeline before an action ends that made something there: later
    nobody can tell it from another writer's, for instance once it is archived. A rollback whose last step
    failed, to delete markers, is there though it is taken back. With a rewind due it is no matter.
    """
    state = context.fold().state
    if kind not in _ON_DATA_TIMELINE or state.seen is None:
        return []
    timelines = load_timelines(context.storage)
    difference = look(context.storage, timelines, state)
    if difference.surprises:
        return []
    leave_stats_of_others(context, timelines, difference.moves_no_key)
    return difference.entries(context.term, handled=False)


def left_actions(context: Context) -> list[DecidedAction]:
    """The decided actions whose documents lie with the table, by instant: those of a former ledger. Their
    completion times are chosen anew.
    """
    found = []
    for info in context.storage.list(STORE):
        try:
            content = msgspec.json.decode(context.storage.read(info.path), type=DecidedService)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue  # a document of another kind
        planned = ServicePlanned(context.term, 0, content.kind, content.instant, info.path, "", 0)
        times = context.instants.next(), context.instants.next()
        decided = ServiceDecided(context.term, 0, *times, info.path, "", 0)
        tickets = {ticket.path: ticket for ticket in content.tickets}
        found.append(DecidedAction(planned, decided, content.plan, content.outcomes, tickets))
    return sorted(found, key=lambda action: action.planned.instant)


def end_left_action(context: Context, handler: ServiceHandler, action: DecidedAction) -> bool:
    """Ends an action without the decisions, under the lock that the caller holds: completes it if something
    of it is completed, else takes it back. False when nothing of it was pending.

    A kind without a timeline leaves nothing pending. What an archival that broke off left the next one finds.
    """
    step, planned = LockedStep(context, load_timelines(context.storage)), action.planned
    root = handler.timeline
    if root is None:
        return False
    is_pending = completion_of_instant(step.timelines, planned, root) is None
    if is_pending and not timeline_of(step.timelines, root).contains(planned.instant):
        return False
    action = _at_its_time(step, action)
    if is_pending and not handler.is_past_return(step, action):
        handler.take_back(step, action)
        return True
    if is_pending:
        handler.commit(step, action)
    while not handler.sweep(context, action, False, _SLICE_MS):
        pass
    return is_pending


def _at_its_time(step: LockedStep, action: DecidedAction) -> DecidedAction:
    """The action with the completion time that its deltacommit of the metadata table has already."""
    begun = step.timelines.metadata.find(action.planned.instant)
    if begun is None or begun.completion is None:
        return action
    decided = msgspec.structs.replace(action.decided, metadata_completion=begun.completion)
    return replace(action, decided=decided)


def decided_action(context: Context, planned: ServicePlanned, decided: ServiceDecided) -> DecidedAction:
    """The decided action with the tickets as this term publishes them."""
    document = load_document(context.storage, decided.statuses_path, decided.statuses_sha256)
    content = msgspec.json.decode(document, type=DecidedService)
    paths = [ticket.path for ticket in content.tickets]
    return _action(
        planned, decided, content, context.publishing.adopt(planned.service, paths) if paths else []
    )


def _action(
    planned: ServicePlanned, decided: ServiceDecided, content: DecidedService, adopted: Sequence[Ticket]
) -> DecidedAction:
    tickets = {ticket.path: ticket for ticket in (*content.tickets, *adopted)}
    return DecidedAction(planned, decided, content.plan, content.outcomes, tickets)


def _standing(
    step: LockedStep, handler: ServiceHandler, planned: ServicePlanned, stored: bytes
) -> bytes | Dropped:
    reason = (
        _half_committed(step, handler)
        or out_of_timeline(step.timelines, planned, handler.timeline)
        or taken_instant(step.timelines, planned, handler.timeline)
    )
    return handler.recheck(step, planned, stored) if reason is None else Dropped(reason)


def _half_committed(step: LockedStep, handler: ServiceHandler) -> str | None:
    """`half_committed`, for what the metadata table's timeline gets alone. No other kind merges what another
    writer may take back, and rollback is what ends it.
    """
    return half_committed(step.timelines) if handler.timeline == METADATA_TABLE_ROOT else None


def _check_standing(step: LockedStep, handler: ServiceHandler, action: DecidedAction) -> None:
    """Raises ActionLostError when a rule does not hold any more."""
    planned, root = action.planned, handler.timeline
    reason = out_of_timeline(step.timelines, planned, root)
    if reason is None and root is not None:
        reason = overtaken(step.timelines, planned, action.decided)
    if reason is not None:
        raise ActionLostError(reason)
    standing = handler.recheck(step, planned, action.plan)
    if isinstance(standing, Dropped):
        raise ActionLostError(standing.reason)
    if standing != action.plan:
        raise ActionLostError("other writers changed file groups of the plan after the decision")


def _prepared(
    context: Context, planned: ServicePlanned, reported: Sequence[Ticket]
) -> tuple[Ticket, ...] | Dropped:
    """The reported files as they are prepared now."""
    adopted = context.publishing.adopt(planned.service, [ticket.path for ticket in reported])
    there = {ticket.path: ticket for ticket in adopted}
    for ticket in reported:
        found = there.get(ticket.path)
        if found is None or (found.size, found.sha256) != (ticket.size, ticket.sha256):
            return Dropped(f"{ticket.path} was reported, and is not prepared any more")
    return tuple(there[ticket.path] for ticket in reported)


def _append_void(context: Context, voided: ServiceVoided, *told: TimelineSeen) -> None:
    context.hit(CoordinatorFailpoint.BEFORE_SERVICE_VOIDED)
    context.log.append(*told, voided)
    context.hit(CoordinatorFailpoint.AFTER_SERVICE_VOIDED)
    _close(context, voided.service)


def _close(context: Context, service: int) -> None:
    """Deletes the folder of an action that has ended. Whoever dies before it, or finds the storage refusing,
    leaves a folder that the next term deletes: the action has ended all the same.
    """
    try:
        context.publishing.close_service(service)
    except OSError as error:
        _log.warning("the folder of service action %d is left: %s", service, error)


@contextmanager
def _locked(context: Context, ends_epoch: bool = False) -> Iterator[LockedStep]:
    """A step under the lock; a later round tries again where another writer has it. Raises LockHeldError."""
    context.lock.acquire(0, ends_epoch=ends_epoch)
    try:
        generation = context.fold().state.generation
        yield LockedStep(context, context.hidden_bases.timelines(context.publishing, generation))
    finally:
        give_back(context)


@contextmanager
def _term_checked(context: Context) -> Iterator[None]:
    """What a coordinator that was frozen takes for a lost action may be the work of its successor: then
    SupersededError is raised instead.
    """
    try:
        yield
    except (ActionLostError, FencedOutError):
        context.log.check_term()
        raise
