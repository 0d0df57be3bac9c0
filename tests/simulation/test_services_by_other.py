"""Another engine is in the way of a service: it carries out our own action, or holds the table's lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.rewriting_engine import RewritingEngine
from tests.simulation.test_deaths_of_services import check
from tests.simulation.watched_life import At, WatchedLife
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.service_entries import ServiceCommitted, ServiceKind, ServiceOutcome
from tidemark.hudi_format.publication.table_lock import LOCK_PATH
from tidemark.hudi_format.timeline import Action
from tidemark.stream_runtime.failpoint import FailpointHitError

SECONDS_MAX = 60


@pytest.mark.parametrize(
    "place",
    [
        CoordinatorFailpoint.AFTER_SERVICE_INFLIGHT,
        CoordinatorFailpoint.AFTER_EACH_SERVICE_FILE,
        CoordinatorFailpoint.AFTER_SERVICE_COMPLETED,
    ],
)
def test_another_engine_carries_our_compaction_out(tmp_path: Path, place: CoordinatorFailpoint) -> None:
    """The coordinator dies over it; the engine merges what the plan on the timeline names. Our base files,
    which its commit does not name, are deleted. Completed by us, it is ours.
    """
    life = WatchedLife(tmp_path / "t")
    died: list[int] = []

    def die(at: At, name: str) -> None:
        if at.kind is ServiceKind.COMPACT_DATA and name == place and not died:
            context = life.context
            assert context is not None
            died.append(context.fold().state.services[at.kind].planned.service)
            raise FailpointHitError(name)

    life.on_hit = die
    while not died:
        life.second()
    [number], by_us = died, place is CoordinatorFailpoint.AFTER_SERVICE_COMPLETED
    instant = life.planned_services()[number].instant
    if not by_us:
        RewritingEngine(life.plain, life.clock, Action.DELTA_COMMIT).execute_compaction(instant)
    for _ in range(SECONDS_MAX):
        if number in life.ended():
            break
        life.second()
    end = life.ended()[number]
    assert isinstance(end, ServiceCommitted)
    assert end.outcome is (ServiceOutcome.DONE if by_us else ServiceOutcome.BY_OTHER)
    check(life)
    names = [name for name in life.names_with(instant) if name.endswith(".parquet") and "history" not in name]
    assert all(("_9-9-9_" in name) is not by_us for name in names)


def test_services_wait_for_the_lock_of_another_engine(tmp_path: Path) -> None:
    life = WatchedLife(tmp_path / "t")
    for _ in range(3):
        life.second()
    life.settle()
    life.plain.create(LOCK_PATH, b"")
    before, files = set(life.ended()), set(life.names_with(".parquet"))
    for _ in range(10):
        life.second()
    assert set(life.ended()) == before
    assert set(life.names_with(".parquet")) == files
    assert not any(kept.failures for kept in life.seen_kinds()), "to wait is no failure"
    life.plain.delete(LOCK_PATH)
    for _ in range(SECONDS_MAX):
        if len(life.ended()) >= len(before) + 2:
            break
        life.second()
    assert len(life.ended()) >= len(before) + 2
    check(life)
