"""The view of the coordinator's state that other threads read: immutable, and replaced as a whole."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tidemark.commit_coordinator.commit.context import TakenOut
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.domain.actions import NextAction, Wait, published_name
from tidemark.commit_coordinator.domain.next_action import Observed
from tidemark.epoch_protocol.committing import uncommitted_counts
from tidemark.epoch_protocol.entries import Counts, Stage
from tidemark.epoch_protocol.fold import Fold
from tidemark.table_status.services import OwnServices

NO_SERVICES: Final = OwnServices()


@dataclass(frozen=True)
class CoordinatorView:
    """The state of the fold and of the loop at one moment. Times are Unix epoch milliseconds.

    ``given_up``: it has halted because an epoch could not be written; ``tries_again``: that is tried again at
    this moment. ``tagging_rests``: why assigners rest because services do not keep up, or "".
    ``taken_out``, ``indexes_taken_out``: as in `Context`. ``untrimmed``: why committed records stay in the
    table's topics, or "".

    Next offsets by input lane: up to ``source_next`` all is committed, up to ``taken_next`` all is in
    Tidemark's topics. By assign lane: up to ``keyed_next`` all is committed, up to ``tagged_next`` all is
    tagged.
    """

    at_ms: int = 0
    term: int = -1
    doing: str = "starting"
    waiting_for: str = ""
    halted: str | None = None
    given_up: bool = False
    tries_again: bool = False
    stopped: bool = False
    trouble: str | None = None
    trouble_of_kafka: bool = False
    untrimmed: str = ""
    lock_held: str | None = None
    awaited: str | None = None
    awaited_index: str | None = None
    paused: bool = False
    pause_reason: str = ""
    generation: int = 0
    epoch: int = 0
    instant: str | None = None
    completion: str | None = None
    planned_epoch: int | None = None
    planned_attempt: int | None = None
    planned_instant: str | None = None
    planned_ms: int | None = None
    attempts: int = 0
    keyed_next: Mapping[str, int] = field(default_factory=dict)
    source_next: Mapping[str, int] = field(default_factory=dict)
    taken_next: Mapping[str, int] = field(default_factory=dict)
    tagged_next: Mapping[str, int] = field(default_factory=dict)
    uncommitted_transactions: int = 0
    uncommitted_bytes: int = 0
    uncommitted: Counts = field(default_factory=Counts)
    committed: Counts = field(default_factory=Counts)
    shuffled_records: int = 0
    shuffled_transactions: int = 0
    dead_letters: int = 0
    services: OwnServices = NO_SERVICES
    tagging_rests: str = ""
    taken_out: TakenOut | None = None
    indexes_taken_out: tuple[TakenOut, ...] = ()

    @property
    def blocked_epoch(self) -> int | None:
        """The epoch that `tidemark epoch retry` would try again, None unless the coordinator has halted."""
        return self.epoch + 1 if self.halted is not None and not self.stopped else None


def take_view(
    fold: Fold,
    seen: Observed,
    doing: NextAction,
    term: int,
    now_ms: int,
    inputs: InputPositions,
    services: OwnServices = NO_SERVICES,
    tagging_rests: str = "",
    taken_out: TakenOut | None = None,
    indexes_taken_out: Iterable[TakenOut] = (),
    untrimmed: str = "",
) -> CoordinatorView:
    """The view of this moment. ``doing``: the loop's latest action."""
    state = fold.state
    planned = state.planned
    return CoordinatorView(
        at_ms=now_ms,
        term=term,
        doing=published_name(type(doing)),
        waiting_for=doing.reason if isinstance(doing, Wait) else "",
        halted=seen.halted or seen.given_up,
        given_up=seen.given_up is not None,
        tries_again=seen.halted is None and seen.given_up is not None,
        stopped=seen.stopped,
        trouble=seen.trouble,
        trouble_of_kafka=seen.trouble_of_kafka,
        lock_held=seen.lock_held,
        awaited=seen.awaited.reason if seen.awaited is not None else None,
        awaited_index=seen.awaited.index if seen.awaited is not None else None,
        paused=state.paused,
        pause_reason=state.pause_reason,
        generation=state.generation,
        epoch=state.committed.epoch,
        instant=state.committed.instant,
        completion=state.committed.completion,
        planned_epoch=planned.epoch if planned else None,
        planned_attempt=planned.attempt if planned else None,
        planned_instant=planned.instant if planned else None,
        planned_ms=planned.planned_ms if planned else None,
        attempts=state.attempts,
        keyed_next=dict(state.committed.keyed_next),
        source_next=inputs.committed(state),
        taken_next=inputs.taken(state),
        tagged_next={name: lane.next for name, lane in state.assign_lanes.items()},
        uncommitted_transactions=len(state.tagged),
        uncommitted_bytes=sum(counted.entry.bytes for counted in state.tagged),
        uncommitted=uncommitted_counts(state),
        committed=state.committed_counts,
        shuffled_records=state.shuffled_records,
        shuffled_transactions=len(state.shuffled),
        dead_letters=state.dead_letters,
        services=services,
        tagging_rests=tagging_rests,
        taken_out=taken_out,
        indexes_taken_out=tuple(indexes_taken_out),
        untrimmed=untrimmed,
    )


class ViewBoard:
    """Holds the newest view for all threads; `tidemark flush` waits here for a condition on it.

    ``shown`` is called with every view, on the thread that calls `show`.
    """

    def __init__(self, shown: Callable[[CoordinatorView], None] = lambda _: None) -> None:
        self._shown = shown
        self._changed = threading.Condition()
        self._view = CoordinatorView()

    def show(self, view: CoordinatorView) -> None:
        """Replaces the view."""
        with self._changed:
            self._view = view
            self._changed.notify_all()
        self._shown(view)

    @property
    def current(self) -> CoordinatorView:
        """The newest view."""
        with self._changed:
            return self._view

    def position(self, stage: Stage, lane: str) -> int:
        """The next offset of a stage's lane that counts, by the newest view."""
        view = self.current
        return (view.taken_next if stage is Stage.SHUFFLE else view.tagged_next).get(lane, 0)

    def wait_until(
        self, holds: Callable[[CoordinatorView], bool], timeout_s: float
    ) -> CoordinatorView | None:
        """Waits for a view for which the condition holds; None if there is none within ``timeout_s``."""
        with self._changed:
            return self._view if self._changed.wait_for(lambda: holds(self._view), timeout_s) else None
