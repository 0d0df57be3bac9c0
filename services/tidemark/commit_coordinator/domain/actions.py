"""What a coordinator can do next; each action is idempotent, carried out by `commit_coordinator.commit`.

Which decision each one ends with, and so how a crash in the middle is repaired, is in the class docstrings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tidemark.epoch_protocol.entries import CommitDecided, EpochPlanned
from tidemark.epoch_protocol.state import VoidedAttempt


@dataclass(frozen=True)
class Wait:
    """Nothing to do before ``until_ms`` (None: before something arrives). ``reason`` is for `status`."""

    reason: str
    until_ms: int | None = None


@dataclass(frozen=True)
class Plan:
    """Choose an instant under the table's lock and append `EpochPlanned`.

    Before the entry is readable nothing has happened. ``hold_lock``: keep the lock until the commit, after
    attempts in a row were lost to other writers.
    """

    epoch: int
    attempt: int
    through: int
    has_rows: bool
    hold_lock: bool


@dataclass(frozen=True)
class OpenAttempt:
    """Opens the attempt for its writers; heartbeat, requested, inflight. No entry: done again after a
    crash.
    """

    planned: EpochPlanned


@dataclass(frozen=True)
class CloseEmpty:
    """Append `EpochCommitted` for an epoch with progress and no rows."""

    planned: EpochPlanned


@dataclass(frozen=True)
class Decide:
    """Check under the lock, choose completion times, append `CommitDecided`: the point of no return."""

    planned: EpochPlanned


@dataclass(frozen=True)
class Finish:
    """Data and log files, MDT deltacommit, data commit, clean-up, `EpochCommitted`: a pure function of the
    decisions.
    """

    planned: EpochPlanned
    decided: CommitDecided


@dataclass(frozen=True)
class VoidAttempt:
    """Append `AttemptVoided`, and `Rewound` in the same transaction when the tags do not hold either.

    ``revokes``: the data completion time of the decision that is taken back with it, "" for none.
    """

    planned: EpochPlanned
    reason: str
    rewind: bool
    revokes: str = ""


@dataclass(frozen=True)
class CleanVoided:
    """Roll the voided attempts' instants back and delete their files. No entry: done again after a crash. One
    that is not settled yet stays pending, and is asked again (`Observed.unsettled`).
    """

    voided: tuple[VoidedAttempt, ...]


@dataclass(frozen=True)
class Rewind:
    """Append `Rewound` while no attempt is open.

    ``hold_lock``: keep the table's lock from here to the commit: other writers have made rewinds in a row
    necessary, and no epoch was committed in between.
    """

    reason: str
    hold_lock: bool = False


@dataclass(frozen=True)
class FreeLock:
    """Give the lock back that a rewind kept: nothing was tagged anew in time. No entry."""


Action: TypeAlias = (
    Wait | Plan | OpenAttempt | CloseEmpty | Decide | Finish | VoidAttempt | CleanVoided | Rewind | FreeLock
)
