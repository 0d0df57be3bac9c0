"""A coordinator dies once at every failpoint of every kind of service, beside epochs; and again while what
was decided is taken back. Every failpoint of services is passed by some kind. What the kill campaign watches
holds all the time, across cleans and archivals too, and `verify` finds nothing at any death.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.chaos.archived import archived
from tests.chaos.end_checks import check_files
from tests.chaos.schedule import OF_A_COMPACTION
from tests.chaos.timeline_watch import DATA_TIMELINE, TimelineWatch
from tests.simulation.watched_life import At, Step, WatchedLife
from tidemark.commit_coordinator.errors import ActionLostError
from tidemark.commit_coordinator.failpoints import OF_A_ROLLBACK, SERVICE_FAILPOINTS, CoordinatorFailpoint
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind, ServiceVoided
from tidemark.stream_runtime.failpoint import FailpointHitError
from tidemark.table_verification.verify import verify_table

SECONDS_MAX: Final = 400
Point = CoordinatorFailpoint
_ALWAYS: Final = frozenset(
    {
        Point.BEFORE_SERVICE_PLANNED,
        Point.AFTER_SERVICE_PLANNED,
        Point.BEFORE_SERVICE_DECIDED,
        Point.AFTER_SERVICE_DECIDED,
        Point.IN_SWEEP,
        Point.BEFORE_SERVICE_COMMITTED,
    }
)
_INSTANT: Final = frozenset(
    {Point.AFTER_SERVICE_REQUESTED, Point.AFTER_SERVICE_INFLIGHT, Point.AFTER_SERVICE_COMPLETED}
)
FORWARD: Final[Mapping[ServiceKind, frozenset[Point]]] = {
    ServiceKind.COMPACT_DATA: _ALWAYS
    | _INSTANT
    | {Point.AFTER_EACH_SERVICE_FILE, Point.AFTER_SERVICE_METADATA},
    ServiceKind.COMPACT_INDEX: _ALWAYS | _INSTANT | {Point.AFTER_EACH_SERVICE_FILE},
    ServiceKind.CLEAN_DATA: _ALWAYS | _INSTANT | {Point.AFTER_SERVICE_METADATA},
    ServiceKind.CLEAN_INDEX: _ALWAYS | _INSTANT,
    ServiceKind.ARCHIVE: _ALWAYS
    | {Point.AFTER_EACH_SERVICE_FILE, Point.AFTER_SERVICE_METADATA, Point.AFTER_SERVICE_COMPLETED},
    ServiceKind.ROLLBACK: _ALWAYS | OF_A_ROLLBACK,
}
"""What each kind passes from its plan to its end."""
_VOID: Final = frozenset(
    {Point.AFTER_TICKETS_REVOKED, Point.BEFORE_SERVICE_VOIDED, Point.AFTER_SERVICE_VOIDED}
)
BACK: Final[Mapping[ServiceKind, frozenset[Point]]] = {
    kind: _VOID | {Point.IN_TAKE_BACK} if Point.AFTER_SERVICE_INFLIGHT in passed else _VOID
    for kind, passed in FORWARD.items()
}
"""What each kind passes when a decision is taken back."""
LOST_AT: Final = {
    kind: next(
        point
        for point in (Point.AFTER_EACH_SERVICE_FILE, Point.AFTER_SERVICE_INFLIGHT, Point.AFTER_EACH_ROLLBACK)
        if point in passed
    )
    for kind, passed in FORWARD.items()
}
"""Where a kind loses an action: as late as it may."""


def test_every_failpoint_of_services_is_passed_by_a_kind() -> None:
    assert frozenset().union(*FORWARD.values(), *BACK.values()) == SERVICE_FAILPOINTS


def test_a_compaction_of_data_passes_what_the_kill_campaign_draws() -> None:
    """There a process waits for some minutes until the table has come to it."""
    assert FORWARD[ServiceKind.COMPACT_DATA] == set(OF_A_COMPACTION)


class Deaths:
    """Dies at each failpoint of each kind once; a kind that has been everywhere loses actions, and dies on
    the way back. ``differences``: what `verify` finds then.
    """

    def __init__(self, life: WatchedLife) -> None:
        self._life = life
        self.died: dict[ServiceKind, set[str]] = {kind: set() for kind in ServiceKind}
        self.differences: list[str] = []

    def __call__(self, at: At, name: str) -> None:
        died = self.died[at.kind]
        if name not in died:
            died.add(name)
            found = verify_table(self._life.plain, lambda _: None)
            if not found.agrees:
                self.differences.append(f"{at.kind} at {name}: {found.findings.examples}")
            raise FailpointHitError(name)
        goes_back = FORWARD[at.kind] <= died and not BACK[at.kind] <= died
        if goes_back and at.step is Step.COMMIT and name == LOST_AT[at.kind]:
            raise ActionLostError("somebody came between")

    def left(self) -> dict[ServiceKind, set[str]]:
        """Where nobody has died yet."""
        wanted: dict[ServiceKind, set[str]] = {kind: {*FORWARD[kind], *BACK[kind]} for kind in ServiceKind}
        return {kind: points - self.died[kind] for kind, points in wanted.items() if points - self.died[kind]}


def test_a_coordinator_dies_at_every_failpoint_of_every_kind(tmp_path: Path) -> None:
    table = tmp_path / "t"
    life, watch = WatchedLife(table), TimelineWatch(table)
    life.on_hit = deaths = Deaths(life)
    for second in range(SECONDS_MAX):
        if not deaths.left():
            break
        if second % 4 == 0 and ServiceKind.ROLLBACK in deaths.left():
            life.leave_dead_write()
        life.second()
        watch.look()
    assert deaths.left() == {}
    assert {kind: died - FORWARD[kind] - BACK[kind] for kind, died in deaths.died.items()} == {
        kind: set() for kind in ServiceKind
    }, "say which kinds pass these"
    assert deaths.differences == []
    check(life)
    for _ in range(SECONDS_MAX):
        life.pass_second()
        if not life.state().services and not (table / ".hoodie/lock").exists():
            break
    watch.look()
    assert watch.epoch == life.state().committed.epoch
    assert len(archived(table, DATA_TIMELINE)) > watch.epoch / 2
    assert list(check_files(table, [])) == list(check_files(table, watch.commits)) == []


def check(life: WatchedLife) -> None:
    """What is tagged is committed, as a whole and once; every action has ended, or is open."""
    life.settle()
    assert life.rows() == life.model
    assert verify_table(life.plain, lambda _: None).agrees
    planned, ended = life.planned_services(), life.ended()
    still = {held.planned.service for held in life.state().services.values()}
    assert planned.keys() == ended.keys() | still
    for number, end in ended.items():
        assert isinstance(end, ServiceCommitted | ServiceVoided)
        if isinstance(end, ServiceVoided) and planned[number].kind is not ServiceKind.ROLLBACK:
            assert life.names_with(planned[number].instant) == []
