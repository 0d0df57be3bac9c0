"""What a stage plugs into the transaction loop of `index_assigner.slots.slot`.

The loop owns claims, transactions and the verdicts of the fold; a stage owns its input, its memory and what
it makes of the one with the other. All calls come from the loop's thread.
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
    """How much one poll may hand out, over all lanes. A single batch may exceed ``bytes``."""

    records: int
    bytes: int


class Gathered(NamedTuple):
    """Input that waits for the next transaction. ``drained``: no more came for a while, do not wait."""

    records: int
    bytes: int
    drained: bool = False


class ClaimFacts(NamedTuple):
    """What a ledger entry says of the claims that it rests on. ``terms``: of the consumed lanes."""

    slot: int
    terms: dict[str, int]
    generation: int


@dataclass(frozen=True)
class PreparedTransaction:
    """Everything that one transaction publishes. The batches' headers carry the nonce already.

    ``build_entry`` gets the delivered offsets of ``messages``, in order.
    """

    nonce: str
    consumed: Sequence[Consumed]
    messages: Sequence[OutgoingMessage]
    build_entry: Callable[[Sequence[int], ClaimFacts], LedgerEntry]


class StageWork(Protocol):
    """One stage in one slot.

    Per lane the calls are: `drop`, `start`, then `gather`, `prepare`, `counted` over and over, until the
    next `drop`. `drop` may come at any time and for lanes that were never started.
    """

    @property
    def stage(self) -> Stage: ...

    def drop(self, lanes: Collection[str]) -> None:
        """Forgets all that is held in memory for the lanes, and reads them no more."""
        ...

    def start(self, lanes: Mapping[str, int], suspects: Collection[str] = ()) -> None:
        """The own claim was read back: work on each lane goes on at this position, the ledger's ``next``.

        0: the lane never counted. ``suspects``: lanes whose readers died where they stand.
        """
        ...

    def observe(self, applied: Sequence[Applied]) -> None:
        """What the fold took since the last call, in order; called before anything else is asked."""
        ...

    def gather(self, budget: Budget, timeout_s: float) -> Gathered:
        """Reads input for the next transaction, at most about the budget; returns all that waits now.

        Waits up to ``timeout_s`` for the first record.
        """
        ...

    def prepare(self, nonce: str) -> PreparedTransaction | None:
        """Turns what was gathered into a transaction (None: nothing to publish, or not possible yet)."""
        ...

    def counted(self, prepared: PreparedTransaction, offset: int) -> None:
        """The transaction counts; ``offset`` is its place in the ledger."""
        ...

    def uncommitted_entries(self) -> int:
        """Index entries in memory that no committed epoch covers (limits.uncommitted_entries)."""
        ...

    def stopped_lanes(self) -> Sequence[StoppedLane]:
        """Lanes held whose input cannot be read any further; the others go on."""
        ...

    def empty_ranges(self) -> Sequence[EmptyRange]:
        """Of the input: in front of where the lanes held stand, as far as no record is left to read."""
        ...

    def skip(self, orders: Sequence[SkipOrder]) -> None:
        """Stopped lanes are to move past what they stand at; the same orders may come again and again."""
        ...

    def skip_results(self) -> Sequence[SkipResult]:
        """What became of the latest orders."""
        ...

    def figures(self) -> Mapping[str, float]:
        """Current figures for `tidemark status`: name -> value."""
        ...

    def close(self) -> None: ...
