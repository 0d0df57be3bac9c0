"""`tidemark input skip` as an operator asks for it: the call waits for the answer, and the world goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

import tidemark.commit_coordinator.input.skips as input_skips
from tidemark.commit_coordinator.input.skips import InputSkips
from tidemark.commit_coordinator.refusals import LaneNotStoppedError, SkipFailedError
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import TopicPartition

_TIMEOUT_S: Final = 4.0
_NOT_NOW: Final = (LaneNotStoppedError, SkipFailedError, DeadlineExceededError)
_Asked = input_skips._Asked


class _Told:
    """Takes the place of an event: who waits for it lets the world go on."""

    def __init__(self, go_on: Callable[[], None]) -> None:
        self._go_on = go_on

    def set(self) -> None:
        return None

    def wait(self, timeout: float) -> None:
        self._go_on()


class _Board:
    """… and so does who waits for a view."""

    def __init__(self, board: Any, go_on: Callable[[], None]) -> None:
        self._board, self._go_on = board, go_on

    def wait_until(self, holds: Callable[[Any], bool], timeout_s: float) -> Any:
        found = self._board.wait_until(holds, 0.0)
        if found is None:
            self._go_on()
        return found


class Operator:
    """Asks one coordinator."""

    def __init__(self, skips: InputSkips) -> None:
        self._skips = skips

    def standing(self) -> list[StoppedLane]:
        """The lanes that stand still, as the coordinator knows."""
        return list(self._skips._stopped())

    def skip(self, lane: StoppedLane, go_on: Callable[[], None]) -> bool:
        """Whether the lane moved past what it stands at; ``go_on``: what happens while the call waits."""
        skips, board = self._skips, self._skips._board
        told: Any = _Told(go_on)
        skips._board = _Board(board, go_on)  # type: ignore[assignment]
        try:
            with patch.object(input_skips, "_Asked", lambda stage, order: _Asked(stage, order, None, told)):
                skips.skip(TopicPartition(lane.topic, lane.partition), lane.offset, _TIMEOUT_S)
        except _NOT_NOW:
            return False
        finally:
            skips._board = board
        return True
