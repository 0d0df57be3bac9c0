"""Each kind of richer world, once without faults: what it is for is reached, and every guarantee holds. The
random worlds draw them too (`world.richer`), mixed with faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

import tidemark.commit_coordinator.calls.members as members
import tidemark.index_assigner.input.careful_rule as careful_rule
import tidemark.index_assigner.shuffle.sharded_input_source as sharded_input_source
from tests.simulation.world.generate import _Author, generate
from tests.simulation.world.richer import QUOTED, richer
from tests.simulation.world.script import Setup, parse
from tests.simulation.world.world import Outcome, run_script
from tidemark.index_assigner.input.lane_skips import LaneSkips
from tidemark.index_assigner.shuffle import stage

FED = """
feed up k0 d0 5
feed up k1 d1 6
feed up k2 d2 6
feed up k3 d0 6
hurry
round
round
round
round
round
feed up k0 d1 8
feed del k1 9
feed null k2
feed up k3 d0 2
feed bad
hurry
round
round
round
round
round
"""
LOST = """
feed up k0 d0 5
feed lost k0 3
feed up k0 d1 6
feed up k1 d0 6
round
round
wait 2500
round
round
"""
_ROUNDS = "hurry\n" + 8 * "round\n"
ENDED = f"feed up k0 d0 5\n{_ROUNDS}feed del k0 9\n{_ROUNDS}wait 4000\n{_ROUNDS}feed up k0 d0 7\n{_ROUNDS}"


def run(setup: str, events: str) -> Outcome:
    return run_script(parse(f"setup {setup}\n{events}"))


@pytest.mark.parametrize(
    ("setup", "reached"),
    [
        ("partitioning=shard", "commit, partitioning shard"),
        ("topics=2", "commit, several topics"),
        ("partition=none", "commit, partition none"),
        ("partition=two", "commit, partition two"),
        ("keys=2", "commit, composite key"),
        ("keys=2 partition=none", "commit, composite key"),
        ("format=avro", "commit, format avro"),
        ("format=protobuf", "commit, format protobuf"),
        ("format=debezium-json", "commit, format debezium-json"),
        ("format=debezium-avro keys=2", "commit, format debezium-avro"),
        ("batch_bytes=1 lanes=1 shards=1", "range of several batches"),
    ],
)
@pytest.mark.parametrize("ordered", ["yes", "no"])
def test_a_table_of_this_kind_is_right(setup: str, reached: str, ordered: str) -> None:
    outcome = run(f"{setup} ordered={ordered}", FED)
    assert outcome.violations == ()
    assert outcome.reached[reached] >= 1, outcome.reached


@pytest.mark.parametrize("kind", ["mor", "cow"])
def test_records_have_the_field_that_the_schema_got(kind: str) -> None:
    outcome = run(f"type={kind}", f"{FED}grow\n{FED}")
    assert outcome.violations == ()
    assert outcome.reached["commit, grown schema"] >= 3


def test_an_event_older_than_a_delete_counts_when_its_tombstone_has_ended() -> None:
    outcome = run("type=cow ttl_ms=1000", ENDED)
    assert (outcome.violations, outcome.reached["tombstone ended"]) == ((), 1)
    assert "tombstone ended" not in run("type=cow", ENDED).reached


# ------------------------------------------------------------ what cannot be read


@pytest.mark.parametrize("partitioning", ["any", "shard"])
def test_a_lane_that_stands_still_is_skipped_and_goes_on(partitioning: str) -> None:
    outcome = run(f"partitioning={partitioning}", f"{LOST}wait 1500\nround\nround\nskip\n")
    assert outcome.violations == ()
    assert (outcome.reached["lane stands still"], outcome.reached["input skipped"]) == (1, 1)


def test_an_operator_who_looks_at_the_end_alone_is_early_enough() -> None:
    outcome = run("", LOST)
    assert (outcome.violations, outcome.reached["input skipped"]) == ((), 1)


# ------------------------------------------------------------ small caches, small blocks

EVICTED = f"""
{"".join(f"feed up k{n} d0 5{chr(10)}" for n in range(6))}{_ROUNDS}
feed up k0 d1 6
feed up k1 d0 6
feed up k2 d0 6
{_ROUNDS}foreign compact-index
round
lose-disk assigner-0
feed up k0 d0 7
wait 4000
{_ROUNDS}wait 4000
{_ROUNDS}feed up k4 d0 7
{_ROUNDS}feed up k5 d1 7
{_ROUNDS}"""
CACHES = {
    "hot eviction",
    "RocksDB read after an eviction",
    "index base of several blocks",
    "index base read in part",
}


def test_a_memory_for_few_keys_gives_up_what_rocksdb_and_blocks_still_answer() -> None:
    one = "shards=1 lanes=1 assigners=1"
    outcome = run(f"{one} cache_bytes=1500 block_bytes=1", EVICTED)
    assert outcome.violations == ()
    assert outcome.reached.keys() >= CACHES, outcome.reached
    outcome = run(one, EVICTED)
    assert outcome.violations == ()
    assert not CACHES & outcome.reached.keys()


def test_a_base_file_that_was_read_is_loaded_into_a_run_which_answers() -> None:
    script = EVICTED + "".join(f"feed up k{number} d0 8\n{_ROUNDS}" for number in (1, 2, 3))
    outcome = run("shards=1 lanes=1 assigners=1", script)
    assert outcome.violations == ()
    assert outcome.reached["answered by a run file"] >= 1
    outcome = run("shards=1 lanes=1 assigners=1 tiny_cache=yes", script)
    assert outcome.violations == ()
    assert "answered by a run file" not in outcome.reached


# ------------------------------------------------------------ takeovers

_BETWEEN = "coordinator 1 after_metadata_commit"


@pytest.mark.parametrize(
    "events",
    [
        f"crash {_BETWEEN}\n{_ROUNDS}{_ROUNDS}",
        f"freeze {_BETWEEN}\n{_ROUNDS}replace coordinator\n{_ROUNDS}thaw coordinator\nzombie coordinator",
    ],
    ids=["dies", "sleeps"],
)
def test_another_coordinator_finishes_what_one_left_between_the_two_commits(events: str) -> None:
    outcome = run("interval_ms=0", f"{_ROUNDS}feed up k0 d0 5\n{events}")
    assert outcome.violations == ()
    assert outcome.reached["takeover between our two commits"] == 1
    assert outcome.reached["takeover of a decided epoch"] == 1


def test_who_finishes_its_own_epoch_takes_nothing_over() -> None:
    outcome = run("", FED)
    assert outcome.violations == ()
    assert not [state for state in outcome.reached if state.startswith("takeover")]


# ------------------------------------------------------------ records that end their reader

_LEASE = f"wait 3500\n{_ROUNDS}"
DEADLY = f"""
feed up k0 d0 5
feed up k1 d1 5
{_ROUNDS}feed deadly k0 3 HOW
feed up k0 d1 6
{_ROUNDS}{_LEASE}{_LEASE}feed up k1 d0 7
feed up k2 d0 7
feed up k4 d0 7
{_ROUNDS}{_ROUNDS}"""


@pytest.mark.parametrize("how", ["decoded", "fetched"])
@pytest.mark.parametrize("partitioning", ["any", "shard"])
def test_a_record_that_ends_two_readers_stops_its_lane_alone_until_it_is_skipped(
    partitioning: str, how: str
) -> None:
    outcome = run(f"partitioning={partitioning} interval_ms=0", DEADLY.replace("HOW", how))
    assert outcome.violations == ()
    assert outcome.reached["reader ended by a deadly record"] == 2
    assert outcome.reached["lane stopped by a deadly record"] == 1
    assert outcome.reached["commit beside a lane with a deadly record"] >= 1
    assert (outcome.reached["lane stands still"], outcome.reached["input skipped"]) == (1, 1)


@pytest.mark.parametrize("how", ["decoded", "fetched"])
@pytest.mark.parametrize("partitioning", ["any", "shard"])
def test_a_deadly_record_right_behind_what_is_skipped(partitioning: str, how: str) -> None:
    """The skip counts before anybody reads on, or it would be lost with each reader."""
    setup = f"partitioning={partitioning} inputs=1 lanes=1 interval_ms=50"
    outcome = run(setup, f"feed lost k1 3\nfeed deadly k5 1 {how}\nfeed up k0 d0 5\n")
    assert outcome.violations == ()
    assert outcome.reached["lane stopped by a deadly record"] == 1
    assert outcome.reached["lane stands still"] == 2


def test_coordinators_remember_the_deaths_of_readers() -> None:
    killed = f"kill coordinator\n{_LEASE}"
    outcome = run("interval_ms=0", f"feed deadly k0 1\n{_ROUNDS}{killed}{killed}{killed}")
    assert outcome.violations == ()
    assert outcome.reached["readers' deaths remembered by the next coordinator"] >= 1
    # Lanes whose coordinator ended without a good-bye count a death, too.
    assert outcome.reached["reader ended by a deadly record"] == 1


def test_deaths_that_are_forgotten_are_found() -> None:
    with patch.object(members, "is_suspect", lambda *_: False):
        found = run("interval_ms=0", DEADLY.replace("HOW", "decoded")).violations
    assert found
    assert found[0].startswith("G6: the world does not come to rest"), found


def test_a_healthy_lane_that_stops_as_deadly_is_found() -> None:
    with patch.object(careful_rule, "DEATHS_MAX", 0):
        found = run("interval_ms=0", "feed up k0 d0 5\nfeed deadly k0 1 fetched\n").violations
    assert found
    assert found[0].startswith("G6: a lane stops for nothing"), found


def _one_more(batch_end: Callable[..., int]) -> Callable[..., int]:
    return lambda *asked: batch_end(*asked) + 1


@pytest.mark.parametrize(("partitioning", "found"), [("any", "G6"), ("shard", "G")])
def test_a_skip_that_passes_over_a_good_record_is_found(partitioning: str, found: str) -> None:
    init = LaneSkips.__init__

    def greedy(self: Any, stops: Any, batch_end: Any, deleted: Any) -> None:
        init(self, stops, _one_more(batch_end), deleted)

    with patch.object(LaneSkips, "__init__", greedy):
        outcome = run(f"partitioning={partitioning}", LOST)
    assert outcome.violations[0].startswith(found)


@pytest.mark.parametrize(
    ("module", "partitioning", "found"), [(stage, "any", "G8"), (sharded_input_source, "shard", "G6")]
)
def test_a_skip_without_its_dead_letter_is_found(module: Any, partitioning: str, found: str) -> None:
    """In the assign stage a range without a record is in no transaction: the lane does not go on."""
    make = module.dead_letters

    def silent(records: Any, refused: Any, *rest: Any) -> Any:
        return make(records, [each for each in refused if each.reason.value != "skipped"], *rest)

    with patch.object(module, "dead_letters", silent):
        assert run(f"partitioning={partitioning}", LOST).violations[0].startswith(found)


# ------------------------------------------------------------ forgotten deletions

_FIVE_ROUNDS = 5 * "round\n"
TRIMMED = "".join(f"feed up k{n % 3} d0 {20 + n}\nhurry\n{_FIVE_ROUNDS}" for n in range(6))
ALL_START = "kill coordinator\nkill shuffler-0\nlose-disk assigner-0\nkill assigner-1\n"


@pytest.mark.parametrize("partitioning", ["any", "shard"])
@pytest.mark.parametrize("roles", ["", "epochs", "ledger", "epochs ledger", "data index"])
@pytest.mark.parametrize("deletions", [1, 2, 99])
def test_brokers_that_were_killed_forget_deletions(deletions: int, roles: str, partitioning: str) -> None:
    text = f"{TRIMMED}starts-back {deletions} {roles}\n{ALL_START}{TRIMMED}"
    outcome = run(f"trim=1 partitioning={partitioning}", text)
    assert outcome.violations == ()
    put_back = roles.split() or ("epochs", "ledger", "data", "index")
    assert {f"{role} begins earlier again" for role in put_back} <= outcome.reached.keys()


# ------------------------------------------------------------ seeds


def test_seeds_of_the_usual_world_are_what_they_were_and_two_of_five_or_more_stay_with_it() -> None:
    usual = 0
    for seed in [*range(300), *sorted(QUOTED)]:
        script = generate(seed)
        words = {name: getattr(script.setup, name) for name in Setup.__dataclass_fields__}
        if words == {**words, **USUAL} and not {each[:2] for each in script.events} & OF_RICHER:
            usual += seed < 300
        else:
            assert seed not in QUOTED
    assert 120 <= usual <= 180


OF_RICHER = {("grow",), ("skip",), ("feed", "lost"), ("feed", "deadly")}
OF_RICHER |= {("starts-back", deletions) for deletions in ("1", "2", "99")}
USUAL = {
    "partitioning": "any",
    "partition": "day",
    "keys": 1,
    "topics": 1,
    "format": "json",
    "ttl_ms": 86_400_000,
    "batch_bytes": 0,
    "cache_bytes": 0,
    "block_bytes": 0,
}


def test_what_makes_a_world_richer_leaves_the_events_of_its_seed() -> None:
    """Few more may stand between them."""
    for seed in range(60):
        author = _Author(seed)
        for _ in range(20):
            author.feed()
        _, events = richer(seed, author.setup, author.events)
        left = iter(events)
        assert all(each in left for each in author.events)
        assert richer(seed, author.setup, author.events)[1] == events
