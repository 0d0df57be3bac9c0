"""The actions that a coordinator can take next; `commit_coordinator.commit` carries them out, and
`commit_coordinator.table_services` those of table services (`service_actions`).

Each action is idempotent. Its docstring names the entry that it appends to the decisions. If a coordinator
dies before that entry can be read, its successor chooses its next action as if this one had never begun.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from tidemark.commit_coordinator.domain.service_actions import PlanService, ServiceAction
from tidemark.epoch_protocol.entries import CommitDecided, EpochPlanned
from tidemark.epoch_protocol.service_entries import ServicePlanned
from tidemark.epoch_protocol.state import VoidedAttempt


@dataclass(frozen=True)
class Wait:
    """Do nothing before ``until_ms`` (Unix epoch; None: until something arrives). `tidemark status` shows
    ``reason``.
    """

    reason: str
    until_ms: int | None = None


@dataclass(frozen=True)
class Plan:
    """Choose an instant under the table's lock, append `EpochPlanned`, and open the attempt.

    ``through``: the last ledger offset of the epoch. ``hold_lock``: keep the lock until the commit, because
    attempts in a row, or rewinds in a row, did not lead to one.
    """

    epoch: int
    attempt: int
    through: int
    has_rows: bool
    hold_lock: bool


@dataclass(frozen=True)
class OpenAttempt:
    """Open the attempt for its writers; make its heartbeat, its requested and its inflight file.

    Appends no entry: a coordinator that finds an attempt planned opens it once more.
    """

    planned: EpochPlanned


@dataclass(frozen=True)
class CloseEmpty:
    """Append `EpochCommitted` for an epoch that moves input positions and has no rows, and release the lock
    if a rewind kept it.
    """

    planned: EpochPlanned


@dataclass(frozen=True)
class Decide:
    """Check the attempt under the lock, choose its completion times, append `CommitDecided`.

    The entry is the point of no return: from there on the epoch is finished, by this coordinator or the next.
    """

    planned: EpochPlanned


@dataclass(frozen=True)
class Finish:
    """Publish the files, make the metadata table's deltacommit and the data commit, clean up, append
    `EpochCommitted`.

    All of it follows from the decisions, so whoever does it again makes the same files.
    """

    planned: EpochPlanned
    decided: CommitDecided


@dataclass(frozen=True)
class VoidAttempt:
    """Append `AttemptVoided`; with ``rewind`` also `Rewound`, in the same transaction.

    ``rewind``: the rows' tags (insert or update, file group) may be wrong, so all lanes are tagged anew.
    ``revokes``: the data completion time of the decision that is taken back, "" for none.
    """

    planned: EpochPlanned
    reason: str
    rewind: bool
    revokes: str = ""


@dataclass(frozen=True)
class CleanVoided:
    """Roll the instants of void attempts back and delete their files. Appends no entry: a successor does it
    again.

    An attempt of which a file might still appear keeps its pending instant, and is tried again at the time in
    `Observed.unsettled`.
    """

    voided: tuple[VoidedAttempt, ...]


@dataclass(frozen=True)
class RewindLanes:
    """Append `Rewound` while no attempt is open.

    ``hold_lock``: keep the table's lock from here to the commit, because other writers' commits have led to
    several rewinds in a row without an epoch in between.
    """

    reason: str
    hold_lock: bool = False


@dataclass(frozen=True)
class FreeLock:
    """Release the lock that a rewind kept: no epoch was committed in time, or the coordinator has halted.

    Appends no entry.
    """


EpochAction: TypeAlias = (
    Wait
    | Plan
    | OpenAttempt
    | CloseEmpty
    | Decide
    | Finish
    | VoidAttempt
    | CleanVoided
    | RewindLanes
    | FreeLock
)
NextAction: TypeAlias = EpochAction | ServiceAction

_PUBLISHED: Final[dict[type[NextAction], str]] = {RewindLanes: "Rewind"}


def published_name(action: type[NextAction]) -> str:
    """The action's name in `doing` of the status, which programs compare with: a renamed class keeps it."""
    return _PUBLISHED.get(action, action.__name__)


def log_fields(action: NextAction) -> dict[str, Any]:
    """Log fields for all lines during an action: its epoch, attempt and instant, or which service action."""
    if isinstance(action, Plan):
        return {"epoch": action.epoch, "attempt": action.attempt}
    if isinstance(action, PlanService):
        return {"action": action.number, "kind": action.kind.value}
    planned = getattr(action, "planned", None)
    if isinstance(planned, EpochPlanned):
        return {"epoch": planned.epoch, "attempt": planned.attempt, "instant": planned.instant}
    if isinstance(planned, ServicePlanned):
        return {"action": planned.service, "kind": planned.kind.value, "instant": planned.instant}
    return {}
