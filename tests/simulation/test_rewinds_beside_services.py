"""What Tidemark's own services complete on the data timeline is no other writer's work: nothing is tagged
anew for it, also where it is archived, or its coordinator dead, before anybody looked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.rewriting_engine import RewritingEngine
from tests.simulation.test_deaths_of_services import check
from tests.simulation.watched_life import At, WatchedLife
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.hudi_format.timeline import Action, load_timeline
from tidemark.stream_runtime.failpoint import FailpointHitError

ROUND = "round\n"
COMPACTION_ARCHIVED = f"""
setup type=mor ordered=yes shards=1 lanes=1 inputs=1 shufflers=1 assigners=2 uncommitted=6 interval_ms=50 ids=466 services=yes
{ROUND}step coordinator
wait 3500
feed up k3 d2 8
{3 * ROUND}feed up k3 d1 1060
{ROUND}foreign compact-index
{2 * ROUND}foreign clean versions 1
{8 * ROUND}feed up k0 d2 1021
{6 * ROUND}feed up k4 d0 1071
{12 * ROUND}foreign compact-index clean
foreign archive
feed up k5 d1 21
"""  # noqa: E501
DEAD_WRITE = f"""
setup type=mor ordered=yes shards=2 lanes=1 inputs=2 shufflers=2 assigners=1 interval_ms=0 trim=1 partition=none ttl_ms=20000 ids=521 services=yes
{4 * ROUND}foreign begin fresh d1
{3 * ROUND}feed up k3 d2 10
{3 * ROUND}step assigner-0
foreign half d0
{7 * ROUND}wait 20500
{26 * ROUND}foreign undo
{2 * ROUND}{{dies}}{9 * ROUND}
"""  # noqa: E501

ARCHIVAL_DIES = f"""
setup type=cow ordered=yes shards=3 lanes=2 inputs=2 interval_ms=0 trim=1 topics=2 format=protobuf ids=650 services=yes
{9 * ROUND}feed up k4 d1 1031
{4 * ROUND}feed up k3 d1 1032
{3 * ROUND}foreign clean time 1
feed up k1 d2 1080
{5 * ROUND}feed up k1 d0 1081
{12 * ROUND}crash coordinator 1 before_service_committed
{7 * ROUND}feed up k5 d1 1051
{4 * ROUND}feed up k4 d1 1052
{4 * ROUND}freeze coordinator 1 after_service_metadata
foreign compact-index
{11 * ROUND}replace coordinator
{2 * ROUND}step coordinator
foreign archive
feed del k1 32
"""  # noqa: E501


def test_our_compaction_that_is_archived_before_anybody_looked_rewinds_nothing() -> None:
    outcome = run_script(parse(COMPACTION_ARCHIVED))
    assert outcome.violations == ()
    assert outcome.reached["foreign archive"] == 1
    assert "rewind" not in outcome.reached


@pytest.mark.parametrize("place", ["", "after_each_rollback", "in_sweep", "before_service_committed"])
def test_our_rollback_of_a_dead_write_rewinds_nothing(place: str) -> None:
    """One rewind is for the rollback that another engine made before."""
    dies = f"crash coordinator 1 {place}\n" if place else ""
    outcome = run_script(parse(DEAD_WRITE.format(dies=dies)))
    assert outcome.violations == ()
    assert outcome.reached["rollback done"] == 1
    assert outcome.reached["rewind"] == 1
    assert any(f"failpoint {place}" in line for line in outcome.log) is bool(place)


def test_an_archival_that_died_before_the_first_version_file_rewinds_nothing() -> None:
    """Its manifest counts: what it archived is on no other list when another engine archives."""
    outcome = run_script(parse(ARCHIVAL_DIES))
    assert outcome.violations == ()
    assert outcome.reached["foreign archive"] == outcome.reached["archive done"] == 1
    assert "rewind" not in outcome.reached


def test_our_rollback_that_another_engine_archived_before_its_action_ended_rewinds_nothing(
    tmp_path: Path,
) -> None:
    """Nor does that engine's compaction, which it archived, too."""
    life, died = WatchedLife(tmp_path / "t"), list[str]()

    def die_once(at: At, name: str) -> None:
        if at.kind is ServiceKind.ROLLBACK and name == CoordinatorFailpoint.BEFORE_SERVICE_COMMITTED:
            died.append(name)
            if len(died) == 1:
                raise FailpointHitError(name)

    life.on_hit = die_once
    for _ in range(4):
        life.second()
    life.leave_dead_write()
    while not died:
        life.step_coordinator()
    rolled_back = load_timeline(life.plain).completed(Action.ROLLBACK)[-1]
    engine = RewritingEngine(life.plain, life.clock, Action.DELTA_COMMIT)
    for _ in range(2):
        engine.compact(("d0", life.group_ids[0]))
    engine.archive()
    archive = load_timeline(life.plain).archive
    assert archive is not None
    assert rolled_back.file_name in archive.identities()
    before = life.state()
    for _ in range(4):
        life.second()
    after = life.state()
    assert (after.generation, after.committed.epoch > before.committed.epoch) == (before.generation, True)
    assert len(died) == 2
    check(life)
