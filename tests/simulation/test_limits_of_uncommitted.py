"""Nothing is written, and input goes on: shuffling and tagging rest at their limits. When the writer is back
all of it is committed.

Index entries do not tell how much is tagged: where a table has no ordering field an update makes none. With
`input.partitioning: shard` there is no shuffle stage that would rest first.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script
from tidemark.commit_coordinator.building import answers
from tidemark.commit_coordinator.calls.pausing import Pause

_KEYS = 6
_BEGUN = "".join(f"feed up k{n} d0 {n}\n" for n in range(_KEYS)) + "hurry\n" + 10 * "wait 1000\nround\n"
_UPDATES = "".join(f"feed up k{n % _KEYS} d0 {100 + n}\n" for n in range(30))
# The writer takes no step.
_WITHOUT_WRITER = 20 * (
    "wait 1000\nstep coordinator\nstep shuffler-0\nstep assigner-0\nstep shuffler-0\nstep assigner-1\n"
)
_BACK = 10 * "wait 1000\nround\n"
TAGGED = {"tagged=5": "tagged transactions are", "tagged_bytes=20000": "tagged bytes are"}
SHUFFLED = {"shuffled=5": "shuffled transactions are"}
CASES = {
    "ordered=no": TAGGED | SHUFFLED,
    "ordered=no partitioning=shard": TAGGED,
    "ordered=yes partitioning=shard": TAGGED,
}


@pytest.mark.parametrize(
    ("table", "limit", "said"),
    [(table, limit, said) for table, limits in CASES.items() for limit, said in limits.items()],
)
def test_a_stage_rests_at_its_limit_while_nothing_is_written_and_goes_on_afterwards(
    table: str, limit: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = f"setup inputs=2 lanes=2 assigners=2 records=1 interval_ms=0 {table} {limit}"
    script = parse(f"{setup}\n{_BEGUN}{_UPDATES}{_WITHOUT_WRITER}{_BACK}")
    assert run_script(script).violations == ()
    # It reaches the limit: where nobody rests the judge says so.
    monkeypatch.setattr(answers, "pause_of", lambda *_: Pause(False, ""))
    found = run_script(script).violations
    assert found, "the script does not reach the limit any more"
    assert found[0].startswith("G7: "), found[0]
    assert said in found[0]
