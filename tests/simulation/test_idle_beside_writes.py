"""Tidemark has no input, another engine writes on: timelines stay bounded, and the next epoch notices."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from tests.simulation.other_engine import OtherEngine
from tests.simulation.test_deaths_of_services import check
from tests.simulation.watched_life import SOON, WatchedLife
from tidemark.commit_coordinator.table_services import archivals
from tidemark.hudi_format.table_services.archive_planning import ArchiveBounds
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline

WRITES = 60
BETWEEN_S = 60.0
_BOUND = 4 * SOON.archive.max


def writes(life: WatchedLife, root: str) -> int:
    return sum(instant.action.is_write for instant in load_timeline(life.plain, root).completed())


def test_timelines_stay_bounded_while_only_another_engine_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The compaction under the record index, to which nothing is written here, stays for five times
    # `archive.min` writes; outside of this test for 1 500 at least.
    monkeypatch.setattr(archivals, "ArchiveBounds", partial(ArchiveBounds, idle=0))
    life = WatchedLife(tmp_path / "t")
    for _ in range(3):
        life.second()
    life.settle()
    other = OtherEngine(life.plain, life.clock, Action.DELTA_COMMIT)
    for _ in range(WRITES):
        other.commit()
        life.clock.advance(BETWEEN_S)
        for _ in range(30):
            life.step_coordinator()
            life.work_on_services()
        assert writes(life, DATA_ROOT) <= _BOUND
        assert writes(life, METADATA_TABLE_ROOT) <= 2 * _BOUND
    check(life)
    generation = life.state().generation
    life.second()
    assert life.state().generation > generation, "what was written meanwhile is noticed, archived or not"
