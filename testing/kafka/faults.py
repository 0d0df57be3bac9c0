"""What can be made to go wrong in the in-memory broker, each fault once per order, or by dice from the
broker's seed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TypeVar

from tidemark.stream_runtime.kafka.model import TopicPartition

_Fault = TypeVar("_Fault")


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


class MessageFault(Enum):
    """What happens to one message of a transaction on its way."""

    LOST_REQUEST = "lost request"
    """It is not stored, and the client's flush times out."""
    LOST_ANSWER = "lost answer"
    """It is stored, and the client's flush times out: the offset stays unknown."""
    REPEATED = "repeated"
    """The answer was lost with the connection; sent again, it is not stored again, its offset known."""
    LATE_REQUEST = "late request"
    """The client's flush times out; the message arrives at `deliver_late_messages`."""
    DUPLICATED_LATE = "duplicated late"
    """It works; a copy arrives at `deliver_late_messages`."""


class ClientRequest(Enum):
    """The other requests of a transactional producer."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"


class RequestFault(Enum):
    """What happens to one of them."""

    REPEATED = "repeated"
    """The broker did it, the answer was lost with the connection, and the client sends it again."""
    UNANSWERED = "unanswered"
    """The broker never gets it; the client's call times out."""


@dataclass(slots=True)
class Faults:
    """Orders for faults. All of them are for one transactional id or topic, first ordered first served."""

    random: Random
    marker_delay_max_s: float = 0.0
    """Markers of a finished transaction reach each partition after 0 to this many seconds."""
    _ends: dict[str, deque[EndFault]] = field(default_factory=lambda: defaultdict(deque))
    _messages: dict[str, deque[MessageFault]] = field(default_factory=lambda: defaultdict(deque))
    _requests: dict[tuple[str, ClientRequest], deque[RequestFault]] = field(
        default_factory=lambda: defaultdict(deque)
    )
    _leaders_back_s: dict[str, float] = field(default_factory=dict)
    _unreadable: dict[TopicPartition, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )

    def on_next_end(self, transactional_id: str, fault: EndFault) -> None:
        self._ends[transactional_id].append(fault)

    def on_next_message(self, topic: str, fault: MessageFault) -> None:
        self._messages[topic].append(fault)

    def on_next_request(self, transactional_id: str, request: ClientRequest, fault: RequestFault) -> None:
        self._requests[transactional_id, request].append(fault)

    def leaders_away_until(self, topic: str, back_s: float) -> None:
        """Until this moment of the broker's clock no partition of the topic has a leader: clients wait."""
        self._leaders_back_s[topic] = back_s

    def make_unreadable(self, topic_partition: TopicPartition, base: int, last: int) -> None:
        """From now on no reader can read the record batch of these offsets."""
        self._unreadable[topic_partition] = sorted([*self._unreadable[topic_partition], (base, last)])

    def unreadable_from(self, topic_partition: TopicPartition, position: int) -> int | None:
        """Where the first unreadable batch begins that does not end before the position."""
        batches = self._unreadable.get(topic_partition, ())
        return next((base for base, last in batches if last >= position), None)

    def unreadable_to(self, topic_partition: TopicPartition, offset: int) -> int:
        """The last offset of the unreadable batch that holds this one; the offset itself when none does."""
        batches = self._unreadable.get(topic_partition, ())
        return next((last for base, last in batches if base <= offset <= last), offset)

    def lose_acknowledgements(self, topic: str, count: int = 1) -> None:
        """The next messages of transactions to the topic are stored, but their producer never learns the
        offset.
        """
        self._messages[topic].extend([MessageFault.LOST_ANSWER] * count)

    def lose_messages(self, topic: str, count: int = 1) -> None:
        """The next messages of transactions to the topic time out without being stored."""
        self._messages[topic].extend([MessageFault.LOST_REQUEST] * count)

    def take_end(self, transactional_id: str) -> EndFault | None:
        return _take(self._ends.get(transactional_id))

    def take_message(self, topic: str) -> MessageFault | None:
        return _take(self._messages.get(topic))

    def take_request(self, transactional_id: str, request: ClientRequest) -> RequestFault | None:
        return _take(self._requests.get((transactional_id, request)))

    def has_leader(self, topic: str, now_s: float) -> bool:
        return now_s >= self._leaders_back_s.get(topic, now_s)

    def marker_delay_s(self) -> float:
        return self.random.uniform(0.0, self.marker_delay_max_s) if self.marker_delay_max_s else 0.0


def _take(orders: deque[_Fault] | None) -> _Fault | None:
    return orders.popleft() if orders else None
