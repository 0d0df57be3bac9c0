"""What a kind of service action has to do itself. All kinds share the rest: numbers, entries, the lock, lost
locks, retries, slices of time, and the staged files' lives.

An action is planned, worked on by tasks (some kinds have none), decided, committed and swept. The
coordinator's loop calls the handlers, one call at a time, and does nothing else meanwhile. So a sweep stops
at the time that it is given (`table_services.step`), and a plan and a commit are bounded by what one action
may take: `max_groups`, `max_files`, `archivals.INSTANTS_MAX`. Two are not, and hold the lock for as long as
they take: `rollback` undoes a dead write whole, and `compact-index` takes every file group with log files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tidemark.commit_coordinator.commit.context import Context
from tidemark.commit_coordinator.commit.table_state import Timelines
from tidemark.epoch_protocol.service_entries import ServiceDecided, ServiceKind, ServicePlanned
from tidemark.epoch_protocol.state import FoldState
from tidemark.hudi_format.publication.tickets import Lease, Ticket
from tidemark.hudi_format.storage.base import Names


@dataclass(frozen=True)
class ServiceFacts:
    """What `due` may look at. ``ended_ms``: when the last action of each kind ended, committed or void, since
    this coordinator started (Unix epoch). ``behind``: kinds that do not keep up (`ServicePressure.behind`),
    which do not wait between two actions.
    """

    state: FoldState
    ended_ms: Mapping[ServiceKind, int]
    behind: frozenset[ServiceKind] = frozenset()

    def since_last_ms(self, kind: ServiceKind, now_ms: int) -> int | None:
        """How long ago the kind's last action ended; None where it need not wait for the next one: there was
        none, or the kind is behind.
        """
        ended_ms = self.ended_ms.get(kind)
        return None if ended_ms is None or kind in self.behind else now_ms - ended_ms


@dataclass(frozen=True)
class LockedStep:
    """A step under the table's lock. ``timelines`` were loaded under this hold of it, data first.

    ``asked``: an operator asked for the plan, so that it takes all there is, whether or not it is due.
    """

    context: Context
    timelines: Timelines
    asked: bool = False
    _names: dict[str, Names] = field(default_factory=dict, repr=False, compare=False)

    def names(self, folder: str) -> Names:
        """The names in a folder of the table as they were when this hold asked first: a folder of many
        thousand files is listed once. What we make under this hold is not among them.
        """
        if folder not in self._names:
            self._names[folder] = self.context.storage.names(folder)
        return self._names[folder]

    def lease(self) -> Lease:
        """The lease for `Term.publish`. Raises LockLostError when the lock is not ours any more."""
        return self.context.lock.lease()

    def delete(self, path: str) -> bool:
        """Deletes a file that another engine may have made, or may be reading. False when it was absent.

        Every such deletion asks for the lock first: without it the file may be what another engine commits at
        this moment. Raises LockLostError.
        """
        self.context.lock.check()
        return self.context.storage.delete(path)


@dataclass(frozen=True)
class DecidedAction:
    """An action behind its point of no return. ``plan``: as it still held when it was decided.

    ``outcomes``: what the tasks reported, b"" of a kind without tasks. ``tickets``: path -> ticket of each
    file that the tasks prepared, to be published in this term.
    """

    planned: ServicePlanned
    decided: ServiceDecided
    plan: bytes
    outcomes: bytes
    tickets: Mapping[str, Ticket]


@dataclass(frozen=True)
class Dropped:
    """The plan does not hold any more, and the action is void: `tidemark status` shows the reason."""

    reason: str


class ServiceHandler(Protocol):
    """One kind of service action."""

    @property
    def kind(self) -> ServiceKind:
        """The kind; there is one handler for each."""
        ...

    @property
    def has_tasks(self) -> bool:
        """Whether a writer has to prepare files before the action is decided."""
        ...

    @property
    def sweeps_with_lock(self) -> bool:
        """Whether each slice of its sweep takes the table's lock."""
        ...

    @property
    def stats_are_old(self) -> bool:
        """Whether a plan that found nothing to do means that another engine has changed the table's files
        since they were listed, so that they are to be listed anew.
        """
        ...

    @property
    def timeline(self) -> str | None:
        """The root of the timeline on which the action's instant completes (`DATA_ROOT`,
        `METADATA_TABLE_ROOT`); None for a kind whose instant is on no timeline.
        """
        ...

    def due(self, facts: ServiceFacts, now_ms: int) -> str | None:
        """Why an action should be planned now; None when none is due. Reads no file: it is asked in every
        idle round.
        """
        ...

    def plan(self, step: LockedStep, instant: str) -> bytes | Dropped | None:
        """The plan of an action with this requested time, as a document; None when there is nothing to do,
        `Dropped` when there is, and something holds it up.
        Makes nothing on the table, and deletes at most side files of no instant, and pending instants of
        dead builds and of plans without content.
        """
        ...

    def prepare(self, context: Context, plan: bytes | None) -> None:
        """Makes ready what a plan (None), or the commit of this plan, will need, before the lock is taken:
        what reads or writes much is done here. Nothing of it holds before it was compared under the lock. A
        plan and a commit do the same by themselves where nothing is ready.
        """
        ...

    def recheck(self, step: LockedStep, planned: ServicePlanned, plan: bytes) -> bytes | Dropped:
        """What of the plan still holds (rule B): file groups that changed since are left out of the plan that
        is returned.

        Asked when the action is decided, and again before the commit when the lock was given up or lost in
        between. Then the action's own files may be there: they do not count as changes.
        """
        ...

    def commit(self, step: LockedStep, action: DecidedAction) -> None:
        """Commits: every step can be repeated, by a successor too, and gives the same files.

        A kind with a timeline completes its instant at the decided time. Raises ActionLostError when the
        action has to be taken back, which is possible only while nothing is completed.
        """
        ...

    def is_past_return(self, step: LockedStep, action: DecidedAction) -> bool:
        """Whether something is completed already, so that the action can only go on."""
        ...

    def take_back(self, step: LockedStep, action: DecidedAction) -> None:
        """Deletes what a commit that broke off has made: published files first, then inflight, then
        requested. Uses `LockedStep.delete`. Repeatable.
        """
        ...

    def sweep(self, context: Context, action: DecidedAction, by_other: bool, slice_ms: int) -> bool:
        """Deletes what the action made useless; returns whether nothing is left to do. Stops ``slice_ms``
        after its first deletion, and goes on in a later round. Runs without the lock; a kind whose deletions
        need it takes it (`sweeps_with_lock`). ``by_other``: another engine completed the instant; files of
        ours that its commit does not name are deleted, too.
        """
        ...
