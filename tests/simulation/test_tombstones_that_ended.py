"""A row that came although its key was deleted above it, since that delete's tombstone had ended: what
happens to the key from then on rests on the row, also where a lost disk has that one read once more.
"""

from __future__ import annotations

import pytest

from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

_ROUNDS = 7 * "round\n"
_COMMITTED = f"hurry\n{_ROUNDS}"
# Leases end, and the disk's owner claims its lanes anew.
_LOST = f"lose-disk assigner-0\nwait 3500\n{_ROUNDS}"
_ENDED = f"{_ROUNDS}feed up k0 d0 90\nfeed up k1 d0 91\n{_COMMITTED}feed null k0\n{_COMMITTED}wait 1500\n"
_COMPACTED = "foreign compact d0\nround\n"
_LATE = f"feed up k0 d0 49\n{_COMMITTED}"


@pytest.mark.parametrize("kind", ["mor", "cow"])
@pytest.mark.parametrize(
    "deleted",
    [f"feed del k0 79\n{_COMMITTED}", f"foreign delete k0\n{_COMMITTED}"],
    ids=["by the input", "by another engine"],
)
def test_what_ended_is_not_held_against_what_comes_after_a_later_delete(kind: str, deleted: str) -> None:
    """With the ended one back the row of 80 stays away, for good: that delete was at 90."""
    setup = f"setup type={kind} assigners=1 shards=1 lanes=1 inputs=1 ordered=yes interval_ms=0 ttl_ms=1000\n"
    compacted = _COMPACTED if kind == "mor" else ""
    events = f"{_ENDED}{compacted}{_LATE}{_LOST}{deleted}feed up k0 d0 80\n{_COMMITTED}"
    outcome = run_script(parse(f"{setup}{events}"))
    assert outcome.violations == ()
    assert outcome.reached["tombstone ended"] >= 1
