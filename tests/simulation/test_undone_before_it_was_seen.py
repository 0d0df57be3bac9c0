"""Another engine undoes something before the coordinator has looked at the timeline."""

from __future__ import annotations

from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

# `k1` is in the record index for a moment. A lane that is opened in that moment takes the entry over. No
# rewind ever names the commit, since it is gone when the coordinator looks. The lane's next opening drops the
# shard.
INSERTED_AND_ROLLED_BACK = """
setup type=mor ordered=yes shards=2 lanes=2 inputs=2 shufflers=1 \
assigners=2 records=20 uncommitted=6 interval_ms=0 trim=0 tiny_cache=no ids=30
round
round
feed null k1
round
wait 3500
round
round
round
step assigner-1
thaw coordinator
zombie coordinator
lose-message tombstones
crash assigner-1 2 assign_claim
round
round
step coordinator
step coordinator
round
round
foreign insert d2
round
round
foreign rollback-own
"""


def test_a_shard_forgets_what_was_undone_before_anybody_saw_it() -> None:
    assert run_script(parse(INSERTED_AND_ROLLED_BACK)).violations == ()


def test_a_plan_names_the_partitions_of_a_compaction_that_was_undone() -> None:
    """Of four file groups the first compaction takes two. The engine undoes it, and the second one, of the
    other two, is planned before anybody listed the files anew.
    """
    each = "round\n"
    fed = "".join(
        "".join(f"feed up k{key} d{key} {at}\n" for key in range(4)) + f"hurry\n{6 * each}" for at in range(3)
    )
    setup = "setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0 services=yes kinds=compact_data"
    script = f"{setup}\nround\n{fed}{8 * each}foreign rollback-own\n{20 * each}"
    outcome = run_script(parse(script))
    assert outcome.violations == ()
    assert outcome.reached["foreign rollback-own"] == 1
    assert outcome.reached["compact-data done"] == 2
