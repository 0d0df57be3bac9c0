"""How a world comes to rest when its script leaves it in an awkward state: while nothing is wrong with the
product, nothing may be reported.
"""

from __future__ import annotations

import pytest

from tests.simulation.world import world
from tests.simulation.world.script import parse
from tests.simulation.world.world import Outcome, run_script

ONE = "setup shards=1 lanes=1 inputs=1 assigners=1 interval_ms=0"
_ROUNDS = 7 * "round\n"


def played(setup: str, *parts: str) -> Outcome:
    return run_script(parse("\n".join((setup, *parts))))


def test_input_that_is_fed_while_the_broker_is_down_arrives() -> None:
    outcome = played(ONE, "round\nbroker down\nfeed up k0 d0 5\nfeed lost k1\nround\nbroker up\nround")
    assert outcome.violations == ()
    assert outcome.epochs == 1
    assert outcome.reached["input skipped"] == 1


def test_an_epoch_that_waits_for_its_next_attempt_is_waited_for() -> None:
    """After seven failures it waits 30 s, which is longer than all else takes at rest."""
    failed = "wait 30000\n" + 4 * "fail-job\nround\n"
    outcome = played(ONE, _ROUNDS, "feed up k0 d0 5\nround\nround\nround", 6 * failed)
    assert outcome.violations == ()
    assert outcome.reached["void"] == 7
    assert outcome.epochs == 1


def test_many_small_epochs_beside_services_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a service takes a round, so that all of them take longer than one may."""
    monkeypatch.setattr(world, "_ROUNDS_MAX", 30)
    fed = (f"feed up k{number % 6} d{number % 3} {number}" for number in range(24))
    outcome = played(f"{ONE} services=yes records=1 batch_bytes=1", "round", *fed)
    assert outcome.violations == ()
    assert outcome.epochs == 6


PLANNED = f"{_ROUNDS}feed up k0 d0 5\nhurry\n{_ROUNDS}feed up k0 d0 6\nhurry\n{_ROUNDS}"


@pytest.mark.parametrize(
    "events",
    [
        "foreign clock 5000\nforeign plan-compaction",
        "foreign clock 600000\nforeign plan-compaction\nfeed up k0 d0 7",
        "foreign plan-compaction\njump -5000",
        "foreign plan-compaction\nforeign clock -700\nforeign run-compaction",
    ],
    ids=["ahead", "far ahead", "we are set back", "it is set back, and tries"],
)
def test_a_compaction_whose_plan_is_ahead_of_the_clock_is_carried_out_at_rest(events: str) -> None:
    outcome = played("setup type=mor interval_ms=0", PLANNED, events)
    assert outcome.violations == ()
    assert outcome.reached["foreign plan-compaction"] == 1
    assert outcome.reached.get("foreign run-compaction", 0) == 0, "it was carried out before the end"
