"""The coordinator's next action, as a pure function of the fold and of what it has seen since it started.

Everything that must survive a crash is in the fold. `Observed` may be lost at any moment: a successor starts
with an empty one, opens the planned attempt again, asks for its report again, and cleans void attempts again.

The first of these that applies is the next action:

1. An epoch is decided: finish it, or void it if its decision has to be taken back.
2. A service action is decided and not committed: commit it, or take it back.
3. An attempt is planned: void it if it cannot commit; else open it, wait for its report, and decide. Without
   rows it is closed at once.
4. Attempts are void and not cleaned: clean them, or wait while files of theirs might still appear.
5. A rewind has kept the lock for too long, or while halted: free it.
6. The coordinator has halted: wait. (An epoch that was given up is tried again after a while.)
7. A rewind is due: make it.
8. Plan the next epoch as soon as it is due.

While 3 to 8 only wait, service actions are planned, decided, swept and voided (`service_actions`). An epoch
that is due leaves them one step, and a compaction of data its plan, so neither side waits for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemark.commit_coordinator.domain.actions import (
    CleanVoided,
    CloseEmpty,
    Decide,
    Finish,
    FreeLock,
    NextAction,
    OpenAttempt,
    Plan,
    RewindLanes,
    VoidAttempt,
    Wait,
)
from tidemark.commit_coordinator.domain.attempt import AttemptStatus
from tidemark.commit_coordinator.domain.service_actions import (
    SeenServices,
    compaction_between_epochs,
    next_service,
    service_to_finish,
)
from tidemark.epoch_protocol.committing import source_positions, untagged_records
from tidemark.epoch_protocol.entries import CommitDecided, EpochPlanned, Topic
from tidemark.epoch_protocol.state import CountedTagged, FoldState, VoidedAttempt

HOLD_LOCK_AFTER_ATTEMPTS: Final = 3
# After so many rewinds without a commit in between, the next one keeps the lock until its epoch is committed.
HOLD_LOCK_AFTER_REWINDS: Final = 2
# A rewind keeps the lock for so long at most, while lanes are claimed and tagged anew. Other writers stop
# waiting for the lock after a minute (docs/hudi-beside.md).
KEEP_LOCK_MS_MAX: Final = 20_000
RETRY_MS_MAX: Final = 30_000
# An epoch that was given up is tried once more so long after each attempt.
TRY_AGAIN_MS: Final = 600_000
# No store needs longer to tell whether a file will appear. If the time to ask again is further ahead, our
# clock was set back since: then it is asked at once.
SETTLE_MS_MAX: Final = 3_600_000
# A plan waits a little if the records that are still being tagged are at least this share of the tagged ones.
_WORTH_WAITING_SHARE: Final = 0.25
_REPORT_S: Final = 0.02


@dataclass(frozen=True)
class Limits:
    """From the configuration: when to plan, how many bytes, and after how many attempts to halt.

    ``gather_ms``: how long a plan that is due waits at most for records that are shuffled and being tagged.
    ``retry_ms``: the wait after an attempt that failed; it doubles with each failure in a row.
    """

    interval_ms: int
    bytes_max: int
    attempts_max: int
    gather_ms: int = 0
    retry_ms: int = 0


@dataclass(frozen=True)
class AttemptProblem:
    """Why the open attempt cannot commit. ``rewind``: its rows have to be tagged anew, too."""

    reason: str
    rewind: bool


@dataclass(frozen=True)
class AwaitedPlan:
    """Another writer's pending clustering that covers file groups which waiting updates go to, or an index
    that it has not finished: ``instant`` is the clustering's, or the index's name.

    ``look_at_ms``: when to look whether it has ended (Unix epoch).
    """

    instant: str
    reason: str
    look_at_ms: int

    @property
    def index(self) -> str | None:
        """The index's name; None for a clustering."""
        return None if self.instant.isdigit() else self.instant


@dataclass
class Observed:
    """What this coordinator has seen since it started; safety never rests on it. All times: Unix epoch.

    ``opened``, ``reported``: the (epoch, attempt) that was opened, and the one whose report is held.
    ``problem``: the (epoch, attempt) that cannot commit, and why.
    ``cleaned``: void attempts that were rolled back. ``unsettled``: void attempts of which a file might still
    appear, and when to ask again. ``rewind_due``: the reason of a rewind to make.
    ``tried_before``: at the start, or at the last `tidemark epoch retry`: the last committed epoch, and how
    many attempts the next one had had.
    ``counts_since_ms``: since when a transaction counts that no plan covers, None while there is none.
    ``taken_back``: the data completion time of a decision that cannot be carried out, and why.
    ``failures``: attempts in a row that failed; ``retry_at_ms``: when the next one is due;
    ``last_problem``: why the last attempt was lost.
    ``halted``: why nothing is planned until `tidemark epoch retry`; ``stopped``: until a new start.
    ``given_up``: why the epoch was given up, until it is committed or `tidemark epoch retry`; at
    ``try_again_ms`` it is tried once more, and ``halted`` is None meanwhile; ``tried_again``: how often.
    ``trouble``: which refusal of the storage or, with ``trouble_of_kafka``, of Kafka is being tried again
    without an operator.
    ``lock_held``: the text about another holder of the table's lock, from when it was last needed.
    ``awaited``: the clustering or index that has to be finished before the next epoch is planned.
    ``others_until_ms``: until then the table's lock is left to other writers.
    ``keeps_lock_until_ms``: a rewind has kept the lock for the epoch that follows, until then at most.
    ``services``: what was seen of table services.
    """

    planned_at_ms: int = 0
    counts_since_ms: int | None = None
    opened: tuple[int, int] | None = None
    reported: tuple[int, int] | None = None
    problem: tuple[tuple[int, int], AttemptProblem] | None = None
    cleaned: set[VoidedAttempt] = field(default_factory=set)
    unsettled: dict[VoidedAttempt, int] = field(default_factory=dict)
    rewind_due: str | None = None
    taken_back: tuple[str, AttemptProblem] | None = None
    failures: int = 0
    retry_at_ms: int = 0
    last_problem: str = ""
    halted: str | None = None
    given_up: str | None = None
    try_again_ms: int = 0
    tried_again: int = 0
    stopped: bool = False
    trouble: str | None = None
    trouble_of_kafka: bool = False
    lock_held: str | None = None
    awaited: AwaitedPlan | None = None
    others_until_ms: int = 0
    keeps_lock_until_ms: int | None = None
    tried_before: tuple[int, int] = (0, 0)
    services: SeenServices = field(default_factory=SeenServices)

    def noted(self, state: FoldState, now_ms: int) -> None:
        """Notes since when a transaction counts that no plan covers."""
        if not state.tagged or state.planned is not None:
            self.counts_since_ms = None
        elif self.counts_since_ms is None:
            self.counts_since_ms = now_ms

    def failed(self, limits: Limits, now_ms: int) -> None:
        """An attempt was void without a rewind: the next one waits, longer after each such attempt."""
        self.failures += 1
        wait_ms = min(limits.retry_ms * 2 ** min(self.failures - 1, 16), RETRY_MS_MAX)
        self.retry_at_ms = now_ms + wait_ms

    def count_attempts(self, state: FoldState, limits: Limits, now_ms: int) -> None:
        """Gives the epoch up after ``attempts_max`` attempts, and has it tried once each `TRY_AGAIN_MS`."""
        if self.halted is None:
            self.halted = reason = attempts_exhausted(state, self, limits)
            if reason is not None:
                self.given_up, self.try_again_ms = reason, now_ms + TRY_AGAIN_MS
        elif self.given_up is not None and now_ms >= self.try_again_ms:
            self.halted, self.tried_again = None, self.tried_again + 1
            self.tried_before = (state.committed.epoch, state.attempts - limits.attempts_max + 1)

    def cleaned_up(self, voided: Iterable[VoidedAttempt], waiting: Mapping[VoidedAttempt, int]) -> None:
        """The ``voided`` attempts were rolled back, except ``waiting``: attempt -> when to ask again."""
        done = [attempt for attempt in voided if attempt not in waiting]
        self.cleaned.update(done)
        for attempt in done:
            self.unsettled.pop(attempt, None)
        self.unsettled.update(waiting)

    def succeeded(self) -> None:
        """An epoch was committed, or an operator wants another attempt: forgets failures and waits."""
        self.failures, self.retry_at_ms, self.last_problem = 0, 0, ""
        self.awaited, self.given_up, self.tried_again = None, None, 0

    def committed(self) -> None:
        """An epoch was committed, and the lock that a rewind may have kept for it was given back."""
        self.succeeded()
        self.keeps_lock_until_ms = None


def next_action(state: FoldState, seen: Observed, limits: Limits, now_ms: int) -> NextAction:
    """What to do next; the same inputs give the same answer."""
    if state.decided is not None or seen.stopped:
        return _for_epochs(state, seen, limits, now_ms)
    finishing = service_to_finish(state, seen.services, now_ms)
    if finishing is not None:
        return finishing
    action = _for_epochs(state, seen, limits, now_ms)
    if isinstance(action, Wait) or (isinstance(action, Plan) and not seen.services.had_turn):
        return next_service(state, seen.services, now_ms, seen.others_until_ms) or action
    if isinstance(action, Plan):
        return compaction_between_epochs(state, seen.services, now_ms, seen.others_until_ms) or action
    return action


def _for_epochs(state: FoldState, seen: Observed, limits: Limits, now_ms: int) -> NextAction:
    if state.planned is not None:
        return _on_planned(state.planned, state.decided, seen)
    dirty = tuple(v for v in state.voided if v not in seen.cleaned)
    if dirty:
        return _on_voided(dirty, seen, now_ms)
    if seen.keeps_lock_until_ms is not None and (seen.halted or now_ms >= seen.keeps_lock_until_ms):
        return FreeLock()
    if seen.halted is not None:
        return Wait(f"halted: {seen.halted}")
    if seen.rewind_due is not None:
        return RewindLanes(seen.rewind_due, hold_lock=state.rewinds_in_row >= HOLD_LOCK_AFTER_REWINDS)
    return _on_idle(state, seen, limits, now_ms)


def rest_s(doing: NextAction, state: FoldState, longest_s: float, now_ms: int) -> float:
    """For how long nothing has to be done unless something arrives: at most ``longest_s``, and less while
    somebody works on an epoch or a service, whose report comes by another way than the topics' entries.
    """
    if not isinstance(doing, Wait):
        return 0.0
    if state.planned is not None or state.services:
        longest_s = min(longest_s, _REPORT_S)
    if doing.until_ms is None:
        return longest_s
    return min(longest_s, max(doing.until_ms - now_ms, 0) / 1_000)


def attempts_exhausted(state: FoldState, seen: Observed, limits: Limits) -> str | None:
    """Why no further attempt is made, or None: after ``attempts_max`` attempts an operator must look.

    Attempts before this coordinator started, or before a `tidemark epoch retry`, do not count.
    """
    epoch, before = seen.tried_before
    tried = state.attempts - (before if epoch == state.committed.epoch else 0)
    if state.planned is None and tried >= limits.attempts_max:
        number = state.committed.epoch + 1
        more = f" and {seen.tried_again} more" if seen.tried_again else ""
        cause = f"{more} (the last: {seen.last_problem})" if seen.last_problem else more
        return (
            f"epoch {number} could not be written in {tried} attempts{cause}; nothing is lost, all input is "
            f"kept: repair the cause (`tidemark epoch show {number}` has all attempts), then run "
            f"`tidemark epoch retry {number}`; by itself it is tried again after "
            f"{TRY_AGAIN_MS // 60_000} minutes"
        )
    return None


def attempt_status(planned: EpochPlanned, decided: CommitDecided | None, seen: Observed) -> AttemptStatus:
    """The status of the attempt that the decisions plan, or have decided, as this coordinator sees it."""
    attempt = (planned.epoch, planned.attempt)
    if decided is not None:
        is_lost = seen.taken_back is not None and seen.taken_back[0] == decided.data_completion
        return AttemptStatus.LOST if is_lost else AttemptStatus.DECIDED
    if planned.instant is None:
        return AttemptStatus.PLANNED
    if seen.problem is not None and seen.problem[0] == attempt:
        return AttemptStatus.LOST
    if seen.opened != attempt:
        return AttemptStatus.PLANNED
    return AttemptStatus.REPORTED if seen.reported == attempt else AttemptStatus.OPENED


def _on_planned(planned: EpochPlanned, decided: CommitDecided | None, seen: Observed) -> NextAction:
    status = attempt_status(planned, decided, seen)
    if status is AttemptStatus.LOST:
        return _void(planned, decided, seen)
    if decided is not None:
        return Finish(planned, decided)
    if status is AttemptStatus.PLANNED:
        return CloseEmpty(planned) if planned.instant is None else OpenAttempt(planned)
    if status is AttemptStatus.REPORTED:
        return Decide(planned)
    return Wait(f"epoch {planned.epoch} attempt {planned.attempt}: the writer has not reported")


def _void(planned: EpochPlanned, decided: CommitDecided | None, seen: Observed) -> VoidAttempt:
    noted = seen.problem if decided is None else seen.taken_back
    assert noted is not None
    problem, revokes = noted[1], "" if decided is None else decided.data_completion
    return VoidAttempt(planned, problem.reason, problem.rewind, revokes)


def _on_voided(voided: tuple[VoidedAttempt, ...], seen: Observed, now_ms: int) -> NextAction:
    """Cleans the void attempts whose time has come; waits if files of all the others might still appear."""
    asked_ms = {v: seen.unsettled.get(v, 0) for v in voided}
    waiting = {v: at_ms for v, at_ms in asked_ms.items() if 0 < at_ms - now_ms <= SETTLE_MS_MAX}
    due = tuple(v for v in voided if v not in waiting)
    if due:
        return CleanVoided(due)
    first = min(waiting, key=lambda attempt: waiting[attempt])
    return Wait(
        f"epoch {first.epoch} attempt {first.attempt} is void, and a file of it might still appear",
        until_ms=waiting[first],
    )


def _on_idle(state: FoldState, seen: Observed, limits: Limits, now_ms: int) -> NextAction:
    if seen.awaited is not None and now_ms < seen.awaited.look_at_ms:
        return Wait(seen.awaited.reason, until_ms=seen.awaited.look_at_ms)
    # After a rewind the interval is not waited for: another writer's commit meanwhile would cause one more.
    # Nor after a plan that had to wait for something, which is over by now.
    due_ms = 0 if state.rewinds_in_row or seen.awaited else seen.planned_at_ms + limits.interval_ms
    full = sum(t.entry.bytes for t in state.tagged) >= limits.bytes_max
    if now_ms < seen.retry_at_ms:
        return Wait(
            f"epoch {state.committed.epoch + 1} failed {seen.failures} times, it is tried again: "
            f"{seen.last_problem}",
            until_ms=seen.retry_at_ms,
        )
    if now_ms < due_ms and not full:
        return Wait("the next epoch is not due", until_ms=due_ms)
    through = choose_through(state, attempted_bytes(state, seen.failures, limits.bytes_max))
    if through is None:
        return Wait("nothing new counts")
    gathered_ms = max(due_ms, seen.counts_since_ms or 0) + limits.gather_ms
    if now_ms < gathered_ms and not full and worth_waiting(state):
        return Wait("more of the same input is being tagged", until_ms=gathered_ms)
    rows = has_rows([t for t in state.tagged if t.offset <= through])
    if rows and now_ms < seen.others_until_ms:
        return Wait("other writers get the table's lock", until_ms=seen.others_until_ms)
    return Plan(
        epoch=state.committed.epoch + 1,
        attempt=state.attempts + 1,
        through=through,
        has_rows=rows,
        # An epoch that was given up leaves the lock to services and other writers: perhaps no writer comes.
        hold_lock=seen.given_up is None
        and (state.attempts >= HOLD_LOCK_AFTER_ATTEMPTS or state.rewinds_in_row > HOLD_LOCK_AFTER_REWINDS),
    )


def attempted_bytes(state: FoldState, failures: int, bytes_max: int) -> int:
    """How many bytes the next attempt may cover after so many ``failures`` in a row: from the second one on
    half as many each time, because the epoch may be too large. Example: its report has more bytes than the
    coordinator takes, since it begins a thousand partitions of the record index. Transactions of 80 bytes
    wait: attempts 1 and 2 cover 80 bytes, the third 40, the fourth 20.
    """
    waiting = sum(counted.entry.bytes for counted in state.tagged)
    return min(waiting, bytes_max) >> max(failures - 1, 0)


def choose_through(state: FoldState, bytes_max: int) -> int | None:
    """The ledger offset that the next epoch ends with; None when nothing after the last epoch counts.

    The epoch covers at least one transaction, and as many as fit ``bytes_max``. If all fit, it also covers
    the shuffle entries behind them, so that the positions of input without rows (dead letters, superseded
    records) are committed. Example: transactions of 60, 30 and 50 bytes wait, and ``bytes_max`` is 100: the
    epoch covers the first two.
    """
    size = 0
    for index, counted in enumerate(state.tagged):
        size += counted.entry.bytes
        if size > bytes_max and index > 0:
            return state.tagged[index - 1].offset
    last = max(
        (entry.offset for entries in (state.tagged, state.shuffled) for entry in entries[-1:]), default=-1
    )
    if last <= state.committed.through:
        return None
    if not state.tagged and source_positions(state, last) == state.committed.source_next:
        return None
    return last


def worth_waiting(state: FoldState) -> bool:
    """Whether many shuffled records are not tagged yet: one epoch for a burst is better than two."""
    tagged = sum(counted.entry.counts.input for counted in state.tagged)
    return 0 < tagged * _WORTH_WAITING_SHARE <= untagged_records(state)


def has_rows(manifest: Sequence[CountedTagged]) -> bool:
    """Whether any transaction of the manifest has data rows; else the epoch needs no commit on the table."""
    return any(
        part.topic is Topic.DATA and part.records > 0
        for counted in manifest
        for part in counted.entry.produced
    )
