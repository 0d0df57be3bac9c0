"""What can be made to go wrong in the in-memory broker, each fault once per order, or by dice from the
broker's seed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from random import Random


class EndFault(Enum):
    """What happens to one commit or abort request on its way."""

    DUPLICATED_LATE = "duplicated late"
    """The request is held back, the client's second attempt succeeds; the held one arrives at
    `deliver_late_ends`.

    This is the torn transaction: an end without an epoch of its own ends whatever is open when it arrives.
    """
    DUPLICATED_LATE_UNNOTICED = "duplicated late, unnoticed"
    """The same, and the client logs nothing."""
    LOST_REQUEST = "lost request"
    """The broker never gets it; the client's call times out."""
    LOST_ANSWER = "lost answer"
    """The broker does it; the client's call times out."""
    LATE_REQUEST = "late request"
    """The client's call times out; the request arrives at `deliver_late_ends`."""
    SLOW = "slow"
    """It works, but takes over a second of the broker's clock."""


@dataclass(slots=True)
class Faults:
    """Orders for faults. All of them are for one transactional id or topic, first ordered first served."""

    random: Random
    marker_delay_max_s: float = 0.0
    """Markers of a finished transaction reach each partition after 0 to this many seconds."""
    _ends: dict[str, deque[EndFault]] = field(default_factory=lambda: defaultdict(deque))
    _lost_acknowledgements: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _lost_messages: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def on_next_end(self, transactional_id: str, fault: EndFault) -> None:
        self._ends[transactional_id].append(fault)

    def lose_acknowledgements(self, topic: str, count: int = 1) -> None:
        """The next messages of transactions to the topic are stored, but their producer never learns the
        offset.
        """
        self._lost_acknowledgements[topic] += count

    def lose_messages(self, topic: str, count: int = 1) -> None:
        """The next messages of transactions to the topic time out without being stored."""
        self._lost_messages[topic] += count

    def take_end(self, transactional_id: str) -> EndFault | None:
        waiting = self._ends.get(transactional_id)
        return waiting.popleft() if waiting else None

    def take_lost_acknowledgement(self, topic: str) -> bool:
        return _take(self._lost_acknowledgements, topic)

    def take_lost_message(self, topic: str) -> bool:
        return _take(self._lost_messages, topic)

    def marker_delay_s(self) -> float:
        return self.random.uniform(0.0, self.marker_delay_max_s) if self.marker_delay_max_s else 0.0


def _take(orders: dict[str, int], topic: str) -> bool:
    if orders.get(topic, 0) < 1:
        return False
    orders[topic] -= 1
    return True
