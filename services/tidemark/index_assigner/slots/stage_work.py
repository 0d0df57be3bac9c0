"""The interface between a stage and the transaction loop (`index_assigner.slots.slot`).

The loop owns claims, transactions and the fold's verdicts. The stage owns reading its input, its memory, and
turning input into messages. All calls come from the loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidemark.epoch_protocol.entries import Consumed, LedgerEntry, Stage
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.stopped_lanes import SkipOrder, SkipResult, StoppedLane
from tidemark.ledger_client.fold_reader import Applied
from tidemark.stream_runtime.kafka.ledger_transaction import OutgoingMessage


class Budget(NamedTuple):
    """How much one poll may return over all lanes. A single batch larger than ``bytes`` is still returned."""

    records: int
    bytes: int


class Gathered(NamedTuple):
    """Input that waits for the next transaction. ``drained``: no more came for a while, so do not wait for
    it.
    """

    records: int
    bytes: int
    drained: bool = False


class ClaimFacts(NamedTuple):
    """The claims under which a transaction was made, for its ledger entry.

    ``terms``: the ledger offset of the claim of each consumed lane.
    """

    slot: int
    terms: dict[str, int]
    generation: int


@dataclass(frozen=True)
class PreparedTransaction:
    """Everything that one transaction publishes. The headers of ``messages`` contain ``nonce`` already.

    ``build_entry`` makes the ledger entry from the delivered offsets of ``messages``, in their order.
    """

    nonce: str
    consumed: Sequence[Consumed]
    messages: Sequence[OutgoingMessage]
    build_entry: Callable[[Sequence[int], ClaimFacts], LedgerEntry]


class StageWork(Protocol):
    """One stage in one slot. The loop calls, for each lane:

    1. `drop`, then `start` once the own claim was read back;
    2. `gather`, `prepare`, `counted`, over and over;
    3. `drop` when the lane is given up or in doubt. It may come at any time, and for lanes that were never
       started.
    """

    @property
    def stage(self) -> Stage: ...

    def drop(self, lanes: Collection[str]) -> None:
        """Forgets everything in memory about the lanes, and stops reading them."""
        ...

    def start(self, lanes: Mapping[str, int], suspects: Collection[str] = ()) -> None:
        """Starts reading each lane at its position, now that the own claim was read back.

        A position is the lane's ``next`` in the ledger; 0: no transaction of the lane ever counted.
        ``suspects``: lanes whose earlier readers died at that position.
        """
        ...

    def observe(self, applied: Sequence[Applied]) -> None:
        """Receives the entries that the fold applied since the last call, in their order.

        In each round it is called before all other methods.
        """
        ...

    def gather(self, budget: Budget, timeout_s: float) -> Gathered:
        """Reads input for the next transaction, about as much as ``budget`` allows.

        Waits up to ``timeout_s`` for the first record. Returns how much waits now, with what earlier calls
        read. Raises InputWaitsError while records cannot be decoded yet; they are kept.
        """
        ...

    def prepare(self, nonce: str) -> PreparedTransaction | None:
        """Turns the gathered input into a transaction; None when there is nothing to publish, or not yet.

        Raises InputWaitsError while records cannot be decoded yet; they are kept.
        """
        ...

    def counted(self, prepared: PreparedTransaction, offset: int) -> None:
        """Takes note that the transaction counts; ``offset`` is that of its entry in the ledger."""
        ...

    def uncommitted_entries(self) -> int:
        """Index entries in memory that no committed epoch covers (limits.uncommitted_entries)."""
        ...

    def uncommitted_memory(self) -> int:
        """Bytes that those entries take (StateConfig.uncommitted_memory)."""
        ...

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        """Held lanes whose input cannot be read any further; the other lanes go on."""
        ...

    def empty_ranges(self) -> Sequence[EmptyRange]:
        """Ranges of input offsets, from the held lanes' positions on, that contain no record.

        Such a range holds transaction markers only.
        """
        ...

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        """Starts moving stopped lanes past the offset at which they stopped. The same orders may be
        repeated.
        """
        ...

    def skip_results(self) -> Sequence[SkipResult]:
        """The results of the latest skip orders."""
        ...

    def stats(self) -> Mapping[str, float]:
        """Current stats for `tidemark status`: name -> value."""
        ...

    def close(self) -> None:
        """Closes the stage's Kafka clients and files."""
        ...
