"""The in-memory broker, which tells who takes whose transactional id, and whose transactions it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testing.kafka import MemoryBroker
from tests.simulation.world.script import Setup
from tests.simulation.world.town import Ground
from tidemark.stream_runtime.kafka.errors import FencedError


class TracedBroker(MemoryBroker):
    """``acting``: the process that calls. ``tell``: takes who did something, and what."""

    acting: Callable[[], str]
    tell: Callable[[str, str], None]

    def __init__(self, *around: Any) -> None:
        super().__init__(*around)
        self._holders: dict[str, str] = {}

    def init_producer(self, transactional_id: str, timeout_s: float) -> int:
        """A process that takes an id from another one fences it."""
        who, before = self.acting(), self._holders.get(transactional_id)
        self._holders[transactional_id] = who
        if before not in (None, who):
            taken = f"takes the transactional id {transactional_id} from {before}"
            self.tell(who, f"{taken}: what that one left open is aborted")
        return super().init_producer(transactional_id, timeout_s)

    def end_transaction(self, transactional_id: str, epoch: int, commit: bool) -> None:
        """Refused for who was fenced."""
        try:
            super().end_transaction(transactional_id, epoch, commit)
        except FencedError:
            self.tell(
                self.acting(), f"may not {'commit' if commit else 'abort'} its transaction: its id was taken"
            )
            raise


class TracedGround(Ground):
    """What a traced world stands on."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self.broker: TracedBroker = TracedBroker(self.clock, self.ids)
