"""Another engine deletes rows above the input's own deletes: the product does as the checkers' model says
(`tests/unit/simulation/test_tombstones_and_another_engine.py`).
"""

from __future__ import annotations

import pytest

from tests.simulation.world.checkers.model import LastWriter, Row, State
from tests.simulation.world.script import parse
from tests.simulation.world.world import run_script

_ROUNDS = 7 * "round\n"
_COMMITTED = f"hurry\n{_ROUNDS}"
_BEGUN = f"{_ROUNDS}feed up k0 d0 5\nfeed up k1 d0 6\nfeed up k2 d1 7\n{_COMMITTED}"
# What the engine inserts first is k4.
INSERTED = f"feed del k4 20\n{_COMMITTED}foreign insert d0\nforeign delete k4\nfeed up k4 d1 15\n{_COMMITTED}"
OURS_APART = f"feed del k3 20\n{_COMMITTED}feed up k3 d0 30\n{_COMMITTED}"
OURS_TOGETHER = f"feed del k3 20\nfeed up k3 d0 30\n{_COMMITTED}"
DELETED = f"round\nround\nforeign delete k3\nfeed up k3 d1 15\n{_COMMITTED}"


@pytest.mark.parametrize("kind", ["mor", "cow"])
@pytest.mark.parametrize("restart", ["", "lose-disk assigner-0\nlose-disk assigner-1\n"])
@pytest.mark.parametrize(
    "events",
    [INSERTED, OURS_APART + DELETED, OURS_TOGETHER + DELETED],
    ids=["its row", "our row, apart", "our row, together"],
)
def test_the_product_does_as_the_model_says(events: str, restart: str, kind: str) -> None:
    events = events.replace("feed up k4 d1", f"{restart}feed up k4 d1")
    events = events.replace("feed up k3 d1", f"{restart}feed up k3 d1")
    outcome = run_script(parse(f"setup type={kind} ordered=yes interval_ms=0\n{_BEGUN}{events}"))
    assert outcome.violations == ()
    assert outcome.reached["foreign delete"] == 1


def test_what_an_epoch_without_rows_should_have_changed_is_found_at_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No storage step comes after it. The model that forgets the delete expects the event's row."""

    def forget(model: LastWriter, key: str, row: Row | None) -> None:
        model._become(key, State(row))

    monkeypatch.setattr(LastWriter, "put", forget)
    found = run_script(parse(f"setup interval_ms=0\n{_BEGUN}{INSERTED}")).violations
    assert len(found) == 1
    assert found[0].startswith("G1: at rest rows differ from the model: k4 is None, has to be Row"), found[0]
