"""`tidemark table adopt --new-ledger` between two lives of all services: what they kept on their disks, and
what the timeline does not tell any more.
"""

from __future__ import annotations

import pytest

import tidemark.commit_coordinator.offline.new_ledger as new_ledger_module
from tests.simulation.test_foreign_engine import BEGIN, GO_ON, SECOND, TYPES, must_hold, script_of
from tests.simulation.world.next_ledger import begin_new_ledger
from tests.simulation.world.world import Outcome, World, run_world
from tidemark.commit_coordinator.offline.recovery import recover
from tidemark.index_assigner import assign_stage as wiring
from tidemark.index_assigner.index.rocks_layout import POSITION_PREFIX
from tidemark.stream_runtime.kafka.ports import TopicPartition

KEYS = [f"k{n}" for n in range(6)]
LANES = range(2)
COMMITTED = "hurry\n" + 8 * "wait 400\nround\n"


def each_key(what: str, at: int, between: str = "") -> str:
    """An event of each key, all of them in one epoch unless there is something between them."""
    day = " d0" if what == "up" else ""
    fed = [f"feed {what} {key}{day} {at + number}\n{between}" for number, key in enumerate(KEYS)]
    return "".join(fed) + COMMITTED


def ended(setup: str, *parts: str) -> tuple[World, Outcome]:
    """A world that came to rest, and in which all was right."""
    world = World(script_of(setup, *parts))
    outcome = run_world(world)
    must_hold(outcome)
    return world, outcome


def goes_on(before: World, setup: str, *parts: str) -> tuple[World, Outcome]:
    """All services start again, on the disks that they had."""
    world = World(script_of(setup, *parts), before.ground)
    return world, run_world(world)


# ---------------------------------------------------------------- caches

_APART = "wait 400\nround\nround\n"
# assigner-1 gets all lanes, and reads the tombstones of the former owner.
_ALONE = 4 * "step coordinator\nstep assigner-1\nwait 1000\n"
LANES_MOVE = f"lose-disk assigner-0\nwait 4500\n{_ALONE}{COMMITTED}"
# The tombstones topics get long, and both assigners have a position in them.
TWICE_DELETED = (
    f"rounds 7\n{each_key('up', 5)}{each_key('del', 20, _APART)}{each_key('up', 40)}"
    f"{each_key('del', 50, _APART)}{LANES_MOVE}"
)
# File slices of MERGE_ON_READ, and log files of the record index, tell of deletes without any tombstone.
FORGOTTEN = {"cow": "foreign compact-index\n", "mor": "foreign compact\nforeign compact-index\n"}


def cached_positions(world: World) -> list[tuple[int, int]]:
    """(lane, position in its tombstones partition) of all cache folders."""
    return [
        (lane, int.from_bytes(found, "big"))
        for disk in world.ground.disks.values()
        for folder in disk.folders
        for lane in LANES
        if (found := folder.content.get(POSITION_PREFIX + lane.to_bytes(4, "big"))) is not None
    ]


def tombstones_end(world: World, lane: int) -> int:
    return world.broker.log(TopicPartition("t.tombstones", lane)).end


@pytest.mark.parametrize("kind", TYPES)
def test_what_is_deleted_after_a_new_ledger_stays_deleted_whoever_gets_its_lane(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lanes go to an assigner whose cache is of the former ledger; older events than the deletes come."""
    setup = f"type={kind} records=1"
    deleted = f"rounds 7\n{each_key('up', 100)}{each_key('del', 200)}{FORGOTTEN[kind]}"
    before, _ = ended(setup, TWICE_DELETED)
    old = cached_positions(before)
    begin_new_ledger(before)
    world, outcome = goes_on(before, setup, deleted, LANES_MOVE, each_key("up", 150))
    must_hold(outcome)
    assert world.judge.rows == {}
    ends = {lane: tombstones_end(world, lane) for lane in LANES}
    assert {lane for lane, position in old if position > ends[lane]} == {*LANES}, "the old topics are longer"
    assert [lane for lane, position in cached_positions(world) if position > ends[lane]] == []
    # Whoever goes on with the former cache passes the new tombstones over.
    monkeypatch.setattr(wiring, "table_identity", lambda *_: "the same for ever")
    before, _ = ended(setup, TWICE_DELETED)
    begin_new_ledger(before)
    _, wrong = goes_on(before, setup, deleted, LANES_MOVE, each_key("up", 150))
    assert wrong.violations, "the cache does not matter any more"
    assert wrong.violations[0].startswith("G1: after a storage step rows differ"), wrong.violations[0]


@pytest.mark.parametrize("kind", TYPES)
def test_no_cache_keeps_a_tombstone_of_the_former_ledger(kind: str) -> None:
    """They are gone, as `new_ledger` says: an older event brings its row back, in every lane."""
    setup = f"type={kind} records=1"
    before, _ = ended(setup, TWICE_DELETED, FORGOTTEN[kind])
    begin_new_ledger(before)
    world, outcome = goes_on(before, setup, "rounds 7", each_key("up", 45))
    must_hold(outcome)
    assert sorted(world.judge.rows) == KEYS


# ---------------------------------------------------------------- our commits are archived

# The other engine's own newest commit is all that stays on the timeline.
ARCHIVED = (
    "foreign compact-index\nforeign insert d1\nforeign insert d2\nforeign compact-index clean\n"
    "foreign insert d2\nforeign archive"
)
ALL_KILLED = "\n".join(
    f"kill {seat}" for seat in ("coordinator", "shuffler-0", "assigner-0", "assigner-1", "writer")
)
MEANWHILE = "feed up k1 d0 40\nfeed up k5 d1 41\nrounds 7"
SETUPS = ["partitioning=any", "partitioning=shard", "partitioning=any start=latest"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_new_ledger_goes_on_behind_our_last_commit_which_others_archived(
    setup: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No record is read twice, and none is passed over: not those either that came while nobody ran."""
    setup = f"type={kind} {setup}"
    before, outcome = ended(setup, BEGIN, SECOND, ARCHIVED)
    assert outcome.reached["all our commits are archived"] == 1
    ends = {lane: end for lane, end in before._input_ends().items() if end}
    assert len(ends) == 2
    done = recover(before.config, before.client, before.storage, before.clock, before.ids)
    assert (done.finished, done.voided) == (None, ())
    begun = begin_new_ledger(before)
    assert begun.epoch == outcome.epochs == 2
    found = {lane if ":" in lane else f"in:{lane}": at for lane, at in begun.positions.items()}
    assert found == ends
    must_hold(goes_on(before, setup, MEANWHILE, GO_ON)[1])
    # The timeline alone does not tell it.
    before, _ = ended(setup, BEGIN, SECOND, ARCHIVED)
    monkeypatch.setattr(new_ledger_module, "read_ledger_record", lambda _: None)
    assert begin_new_ledger(before).epoch == 0


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("setup", SETUPS)
def test_services_start_again_where_others_archived_our_last_commit(setup: str, kind: str) -> None:
    _, outcome = ended(f"type={kind} {setup}", BEGIN, SECOND, ARCHIVED, ALL_KILLED, MEANWHILE, GO_ON)
    assert outcome.reached["all our commits are archived"] == 1
    assert outcome.epochs > 2
