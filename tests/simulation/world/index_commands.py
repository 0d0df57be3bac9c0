"""`tidemark index create | repair | drop` in a world that goes on: the product's own command, in a process
that may be killed at any of its places. The world has a round while it sleeps, and before every third of its
calls that write.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast
from unittest.mock import patch

from tests.simulation.world.checkers.secondary import NAME
from tests.simulation.world.ports import gated_storage
from tests.simulation.world.process import Cut, Process
from tidemark.commit_coordinator.offline import secondary_index as product
from tidemark.config import TableConfigFile
from tidemark.errors import TidemarkError
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource

_WRITES: Final = 3
_ROUND_S: Final = 0.2
_INDEX: Final = NAME.removeprefix("secondary_index_")


class IndexCommand(Process):
    """The process of one. ``goes_on(seconds)``: a round of the world that takes so long."""

    def __init__(self, name: str, goes_on: Callable[[float], None]) -> None:
        super().__init__(name)
        self._goes_on, self._writes = goes_on, 0

    def place(self, text: str, writes: bool = False) -> Cut | None:
        cut = super().place(text, writes)
        self._writes += writes
        if writes and self._writes % _WRITES == 0:
            self._goes_on(_ROUND_S)
        return cut

    def sleep(self, seconds: float) -> None:
        """In the world's time."""
        self.place("clock.sleep")
        self._goes_on(seconds)


class _Time:
    """Time as a command has it."""

    def __init__(self, clock: Clock, command: IndexCommand) -> None:
        self.now_ms, self.latest_ms, self.monotonic_s = clock.now_ms, clock.latest_ms, clock.monotonic_s
        self.sleep = command.sleep

    def sleep_ms(self, milliseconds: int) -> None:
        self.sleep(milliseconds / 1000)


class IndexCommands:
    """``goes_on``: as for a command. ``runs``: whether one runs. ``is_left``: a killed one may have left what
    nobody has cleared away yet.
    """

    def __init__(self, storage: Any, clock: Clock, ids: IdSource, goes_on: Callable[[float], None]) -> None:
        self._storage, self._clock, self._ids, self._goes_on = storage, clock, ids, goes_on
        self.runs = self.is_left = False
        self._made = 0

    def new(self) -> IndexCommand:
        """The process of the next command."""
        self._made += 1
        return IndexCommand(f"index#{self._made}", self._goes_on)

    def run(self, process: IndexCommand, what: str, config: TableConfigFile, column: str) -> str:
        """Runs it; the answer says what became of it. Raises what no command may raise."""
        storage, clock = gated_storage(self._storage, process), cast(Clock, _Time(self._clock, process))
        command = partial(_COMMANDS[what], config, clock, self._ids, column)
        self.runs = True
        try:
            with patch.object(product, "open_storage", lambda _: storage):
                process.step(command)
        except TidemarkError as error:
            return f"is refused: {error}"
        finally:
            self.runs = False
        self.is_left = self.is_left or not process.alive
        return "is done" if process.alive else f"is killed at {process.trail[-1]}"


def _create(config: TableConfigFile, clock: Clock, ids: IdSource, column: str) -> None:
    product.create_index(config, clock, ids, _INDEX, column, _silent)


def _repair(config: TableConfigFile, clock: Clock, ids: IdSource, column: str) -> None:
    product.repair_index(config, clock, ids, _INDEX, _silent)


def _drop(config: TableConfigFile, clock: Clock, ids: IdSource, column: str) -> None:
    product.drop_index(config, clock, ids, _INDEX, _silent)


def _silent(text: str) -> None:
    return None


_COMMANDS: Final[dict[str, Callable[[TableConfigFile, Clock, IdSource, str], None]]] = {
    "create": _create,
    "repair": _repair,
    "drop": _drop,
}
