"""What a planted bug is: a named change of the product's own code, in place while a world runs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from tests.simulation.world.checkers.needless_services import NeedlessServices
from tests.simulation.world.checkers.needless_work import NeedlessWork
from tests.simulation.world.script import Script, parse
from tests.simulation.world.world import Outcome, run_script

SCRIPTS: Final = Path(__file__).parent / "scripts"


class Ground:
    """Where bugs are planted; everything is as before once the run is over."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def replace(self, owner: Any, name: str, new: Any) -> None:
        """Puts another attribute in the place of the product's."""
        self._stack.enter_context(patch.object(owner, name, new))


Plant = Callable[[Ground], None]


@dataclass(frozen=True)
class Planted:
    """``falls``: the guarantees of which one must be the first that is found violated."""

    name: str
    plant: Plant
    falls: tuple[str, ...]

    @property
    def rule(self) -> str:
        """Which rule it breaks."""
        return self.plant.__doc__ or ""

    @property
    def script(self) -> Script:
        """The shortest script known that shows it."""
        return parse((SCRIPTS / f"{self.name}.txt").read_text())

    def run(self, script: Script) -> Outcome:
        """The script with the bug. Needless work is put aside unless it is what the bug leads to: many a bug
        leads to some before its own guarantee falls, which is to be found all the same.
        """
        with ExitStack() as stack:
            ground = Ground(stack)
            for judge in (NeedlessWork, NeedlessServices) if "G7" not in self.falls else ():
                ground.replace(judge, "_violated", lambda *_: None)
            self.plant(ground)
            return run_script(script)

    def is_found(self, outcome: Outcome) -> bool:
        """Whether the first violation is one of those that the bug must lead to."""
        return bool(outcome.violations) and outcome.violations[0].partition(":")[0] in self.falls


def planted(*falls: str) -> Callable[[Plant], Planted]:
    """Makes a function that plants a bug one of the `Planted`."""
    return lambda plant: Planted(plant.__name__, plant, falls)
