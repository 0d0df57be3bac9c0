"""Actions of table services, and which of them is next: the part of `next_action` for them.

Whatever may be lost is in `SeenServices`: a successor hands an open action out again, and its files are there
already. Services never hold up epochs: `next_action` asks here when there is nothing to do for an epoch, and
once before each plan of an epoch; once more where a compaction of data is due, which is planned between two
epochs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.service_status import OpenService, decided_services
from tidemark.epoch_protocol.state import FoldState

RETRY_MS: Final = 2_000
RETRY_MS_MAX: Final = 600_000
"""Of a kind whose actions fail: the pause doubles from one to the other."""
BETWEEN_EPOCHS: Final = ServiceKind.COMPACT_DATA
"""The kind that waits for the end of an open attempt before it is planned, for at most `ATTEMPT_MS`.

A write that is open when its file groups' compaction is planned cannot be archived before their next one
(`archive_planning`): of nearly every compaction a write would hold archival back. A compaction of the
metadata table need not wait: what holds writes of its timeline back is that log files are not compacted.
"""
ATTEMPT_MS: Final = 120_000
TASK_TRIES_MAX: Final = 3
"""An action whose tasks failed so often is void."""


@dataclass(frozen=True)
class PlanService:
    """Choose an instant under the table's lock, store the kind's plan, append `ServicePlanned`."""

    kind: ServiceKind
    number: int
    reason: str


@dataclass(frozen=True)
class OfferService:
    """Open the action for its tasks and hand it out. Appends no entry: a successor does it again."""

    planned: ServicePlanned


@dataclass(frozen=True)
class DecideService:
    """Check the plan under the lock, choose the completion times, append `ServiceDecided`, and commit."""

    planned: ServicePlanned


@dataclass(frozen=True)
class CompleteService:
    """Make what was decided, after a commit that broke off. Appends no entry: the sweep comes first."""

    planned: ServicePlanned
    decided: ServiceDecided


@dataclass(frozen=True)
class SweepService:
    """Delete a slice of what the action made useless; append `ServiceCommitted` when nothing is left."""

    planned: ServicePlanned
    decided: ServiceDecided


@dataclass(frozen=True)
class VoidService:
    """Append `ServiceVoided`. If the action is decided, first delete what its commit has made."""

    planned: ServicePlanned
    reason: str
    decided: ServiceDecided | None = None


ServiceAction: TypeAlias = (
    PlanService | OfferService | DecideService | CompleteService | SweepService | VoidService
)


@dataclass
class SeenAction:
    """What this coordinator has seen of one open action. Times: Unix epoch.

    ``offered``, ``reported``: its tasks were handed out; their report is held. ``decide_at_ms``: when other
    writers' clocks have passed its instant. ``lost``: why it is void. ``completed``: it is in the table, by
    ``by_other`` or by us at the time ``completion``. ``failures``: of its tasks or steps, in a row; the next
    step is tried at ``retry_at_ms``, because of ``problem``. ``of_left_out``: it is void because of file
    groups, or of a dead write, that are left out from now on.
    """

    offered: bool = False
    reported: bool = False
    decide_at_ms: int = 0
    lost: str | None = None
    completed: bool = False
    by_other: bool = False
    completion: str = ""
    failures: int = 0
    retry_at_ms: int = 0
    problem: str = ""
    of_left_out: bool = False


@dataclass
class SeenKind:
    """What this coordinator has seen of a kind. ``failures``: actions that failed in a row, the last one
    because of ``problem``; nothing is planned before ``not_before_ms``. ``ended_ms``: when the last action
    ended (Unix epoch). ``found_nothing``: an action was due, and there was nothing to plan: others hold the
    files, or the stats are old.
    """

    failures: int = 0
    problem: str = ""
    not_before_ms: int = 0
    ended_ms: int = 0
    found_nothing: bool = False


@dataclass
class SeenServices:
    """What this coordinator has seen of table services since it started; safety never rests on it.

    ``due``: kind -> why an action is to be begun, in the order in which they are planned. ``tasks``: the
    kinds that have tasks. ``locked_sweeps``: the kinds whose sweep takes the table's lock. ``lock_kept``: an
    epoch keeps the lock, so services leave it alone.
    ``had_turn``: a service has acted since the last epoch was planned.
    """

    due: Mapping[ServiceKind, str] = field(default_factory=dict)
    tasks: Collection[ServiceKind] = ()
    locked_sweeps: Collection[ServiceKind] = ()
    lock_kept: bool = False
    had_turn: bool = False
    actions: dict[int, SeenAction] = field(default_factory=dict)
    kinds: dict[ServiceKind, SeenKind] = field(default_factory=dict)

    def action(self, number: int) -> SeenAction:
        """What was seen of the action with this number."""
        return self.actions.setdefault(number, SeenAction())

    def kind(self, kind: ServiceKind) -> SeenKind:
        """What was seen of the kind."""
        return self.kinds.setdefault(kind, SeenKind())

    def step_failed(self, number: int, problem: str, now_ms: int) -> None:
        """A step of an open action failed: it is tried again, later after each such failure."""
        seen = self.action(number)
        seen.failures += 1
        seen.problem, seen.retry_at_ms = problem, now_ms + pause_ms(seen.failures)

    def kind_failed(self, kind: ServiceKind, problem: str, now_ms: int) -> None:
        """An action could not be planned, or is void: the next one waits, longer after each such failure."""
        seen = self.kind(kind)
        seen.failures += 1
        seen.problem, seen.not_before_ms = problem, now_ms + pause_ms(seen.failures)

    def lose(self, number: int, reason: str, of_left_out: bool = False) -> None:
        """The action is void. If steps of it failed before, that is the reason: what else the table did
        meanwhile came between only because of it.
        """
        noted = self.action(number)
        if of_left_out:
            noted.lost, noted.of_left_out = reason, True
            return
        noted.lost = f"{noted.problem}; meanwhile {reason}" if noted.failures else reason

    def void(self, planned: ServicePlanned, reason: str, now_ms: int) -> None:
        """The action is void. What is the fault of something that is left out from now on is not the kind's:
        the next action comes at once.
        """
        of_left_out = self.action(planned.service).of_left_out
        self.ended(planned, now_ms)
        if not of_left_out:
            self.kind_failed(planned.kind, reason, now_ms)

    def ended(self, planned: ServicePlanned, now_ms: int) -> None:
        """The action is committed or void."""
        self.actions.pop(planned.service, None)
        self.kind(planned.kind).ended_ms = now_ms

    def succeeded(self, kind: ServiceKind) -> None:
        """An action of the kind is committed: forgets its failures."""
        seen = self.kind(kind)
        seen.failures, seen.problem, seen.not_before_ms = 0, "", 0


def pause_ms(failures: int) -> int:
    """How long to wait after so many failures in a row, at least one."""
    return int(min(RETRY_MS * 2 ** min(failures - 1, 16), RETRY_MS_MAX))


def service_to_finish(state: FoldState, seen: SeenServices, now_ms: int) -> ServiceAction | None:
    """The commit or the void of a decided action, which no epoch may overtake; None when there is none to be
    made now.
    """
    if seen.lock_kept:
        return None
    for held in decided_services(state.services):
        noted = seen.action(held.planned.service)
        assert held.decided is not None
        if noted.completed or now_ms < noted.retry_at_ms:
            continue
        if noted.lost is not None:
            return VoidService(held.planned, noted.lost, held.decided)
        return CompleteService(held.planned, held.decided)
    return None


def next_service(
    state: FoldState, seen: SeenServices, now_ms: int, others_until_ms: int
) -> ServiceAction | None:
    """The next step of any service that is not to be finished first; None when there is nothing to do.

    Sweeps that delete under the lock come last, and leave it to others as all other steps do. They take it
    for slice after slice, for seconds where the disk is slow: a slice that took it at once would begin the
    time anew that the next epoch's plan leaves to other writers, and neither they nor the epoch would get a
    turn before the last file is deleted.
    """
    is_our_turn = now_ms >= others_until_ms
    may_lock = is_our_turn and not seen.lock_kept
    waiting = []
    for held in sorted(state.services.values(), key=lambda action: action.planned.service):
        for action in _steps(held, seen, now_ms, may_lock):
            if not isinstance(action, SweepService) or action.planned.kind not in seen.locked_sweeps:
                return action
            waiting.append(action)
    for kind in seen.due if may_lock else ():
        if (planned := _to_plan(kind, state, seen, now_ms)) is not None:
            return planned
    return waiting[0] if waiting and is_our_turn else None


def compaction_between_epochs(
    state: FoldState, seen: SeenServices, now_ms: int, others_until_ms: int
) -> PlanService | None:
    """The plan of a compaction of data that is due, before an epoch is planned; None when there is none.

    Beside an open attempt it has no turn (`BETWEEN_EPOCHS`), and where epochs follow one upon the other an
    attempt is nearly always open. A plan that fails is tried again after a pause: no epoch waits for a second
    one.
    """
    if seen.lock_kept or now_ms < others_until_ms:
        return None
    return _to_plan(BETWEEN_EPOCHS, state, seen, now_ms)


def _to_plan(kind: ServiceKind, state: FoldState, seen: SeenServices, now_ms: int) -> PlanService | None:
    """The plan of an action of the kind, if it is due and may be made now."""
    if kind not in seen.due or kind in state.services or now_ms < seen.kind(kind).not_before_ms:
        return None
    # Perhaps no writer takes the attempt for days, while other engines write. Where the clock was set back
    # nobody knows for how long it is open.
    open_ms = now_ms - state.planned.planned_ms if state.planned is not None else ATTEMPT_MS
    if kind is BETWEEN_EPOCHS and 0 <= open_ms < ATTEMPT_MS:
        return None
    return PlanService(kind, state.next_service, seen.due[kind])


def _steps(held: OpenService, seen: SeenServices, now_ms: int, may_lock: bool) -> Iterator[ServiceAction]:
    planned, noted = held.planned, seen.action(held.planned.service)
    if now_ms < noted.retry_at_ms:
        return
    if held.decided is not None:
        if noted.completed:
            yield SweepService(planned, held.decided)
    elif noted.lost is not None:
        yield VoidService(planned, noted.lost)
    elif planned.kind in seen.tasks and not noted.reported:
        if not noted.offered:
            yield OfferService(planned)
    elif may_lock and now_ms >= noted.decide_at_ms:
        yield DecideService(planned)


def planned_of(action: ServiceAction) -> ServicePlanned | None:
    """The action of which this is a step; None where it is not planned yet."""
    return None if isinstance(action, PlanService) else action.planned


def words_of(action: ServiceAction) -> str:
    """What did not work, for people."""
    if isinstance(action, PlanService):
        return f"no service action ({action.kind}) could be planned"
    return f"a step of service action {action.planned.service} ({action.planned.kind}) failed"
