"""The fault `lose-state` waits until a service has state: one that was killed a moment ago has none yet."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.faults import lose_state
from tests.chaos.world import World

NAME = "assigner-2"


class LostState:
    """The fault on one service that only notes that it was killed."""

    def __init__(self, state: Path) -> None:
        self.folder, self.kills = state / NAME, 0
        self.seat: Any = SimpleNamespace(down=False, kill=self._kill, pid=lambda: 1)
        cluster: Any = SimpleNamespace(seats={NAME: self.seat}, state=state)
        timeline: Any = SimpleNamespace()
        self.steps = lose_state(World(cluster, timeline, Random(1), 1.0, dict), NAME)

    def _kill(self) -> None:
        self.kills += 1

    def make_state(self) -> None:
        self.folder.mkdir()
        (self.folder / "cache").write_bytes(b"keys")


def test_a_service_without_state_is_killed_when_it_has_some(tmp_path: Path) -> None:
    lost = LostState(tmp_path)
    first = next(lost.steps)
    assert first.holds is not None
    assert (first.holds(), lost.kills) == (False, 0)
    lost.folder.mkdir()
    assert not first.holds()
    lost.folder.rmdir()
    lost.make_state()
    assert first.holds()
    next(lost.steps)
    assert (lost.kills, lost.seat.down) == (1, True)
    next(lost.steps)
    assert (lost.folder.exists(), lost.seat.down) == (False, False)


def test_state_that_is_gone_once_the_service_is_down_is_an_error(tmp_path: Path) -> None:
    """Else the fault would break nothing, and nobody would know."""
    lost = LostState(tmp_path)
    lost.make_state()
    for _ in range(2):
        next(lost.steps)
    (lost.folder / "cache").unlink()
    with pytest.raises(AssertionError, match="there is no state in"):
        next(lost.steps)
