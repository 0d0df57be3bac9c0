"""The state that the fold computes; plain msgspec structs, so that a snapshot is one JSON document."""

from __future__ import annotations

import msgspec

from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    CommitDecided,
    Counts,
    EpochPlanned,
    TableLocation,
    TransactionTagged,
)
from tidemark.epoch_protocol.seen import Known, SeenInstants
from tidemark.epoch_protocol.tombstones import CommittedTombstones


class LaneState(msgspec.Struct):
    """A lane as the ledger shows it: its newest valid claim and the position that counts next.

    ``begun``: a transaction of the lane counted once. Until then ``next`` is 0 and means: anywhere.
    """

    next: int
    term: int | None = None
    generation: int = 0
    slot: int | None = None
    owner: str = ""
    begun: bool = False


class CountedShuffle(msgspec.Struct, frozen=True):
    """A shuffle transaction that counts, with its ledger offset."""

    offset: int
    entry: BatchShuffled


class CountedTagged(msgspec.Struct, frozen=True):
    """An assign transaction that counts, with its ledger offset."""

    offset: int
    entry: TransactionTagged


class Committed(msgspec.Struct, frozen=True):
    """The last committed epoch: everything up to ``through`` is in the table (epoch 0: nothing yet).

    ``keyed_next``: position per assign lane; ``source_next``: per shuffle lane the position up to which
    every assign lane is committed. ``instant``/``completion`` of the last epoch that had rows.
    """

    epoch: int = 0
    through: int = -1
    instant: str | None = None
    completion: str | None = None
    keyed_next: dict[str, int] = {}
    source_next: dict[str, int] = {}


class Rewind(msgspec.Struct, frozen=True):
    """Entries of generations below ``generation`` and after ledger offset ``to`` do not count."""

    generation: int
    to: int


class VoidedAttempt(msgspec.Struct, frozen=True):
    """An attempt whose instant must be rolled back before the next plan."""

    epoch: int
    attempt: int
    instant: str | None


class LastSnapshot(msgspec.Struct, frozen=True):
    """The newest copy of the fold that the decisions name: where trimming goes on from.

    ``decision`` is the entry's offset, ``epoch`` the last one committed before it; the others are its own.
    """

    decision: int
    epoch: int
    path: str
    ledger_next: int
    taken_ms: int
    batches: dict[str, dict[str, int]]


class FoldState(msgspec.Struct):
    """Everything the services agree on. Lists are bounded by what is not committed and trimmed.

    ``seen``: None before the first `TimelineSeen`; what completed up to ``handled`` was seen then.
    ``stamps_from``: the generation of the last rewind that made caches forget their stamps.
    ``rewinds_in_row``: since the last committed epoch.
    """

    ledger_next: int = 0
    decisions_next: int = 0
    shuffle_lanes: dict[str, LaneState] = {}
    assign_lanes: dict[str, LaneState] = {}
    shuffled: list[CountedShuffle] = []
    tagged: list[CountedTagged] = []
    rewinds: list[Rewind] = []
    handled: str = "0"
    seen: SeenInstants | None = None
    stamps_from: int = 0
    rewinds_in_row: int = 0
    coordinator_term: int | None = None
    planned: EpochPlanned | None = None
    decided: CommitDecided | None = None
    voided: list[VoidedAttempt] = []
    attempts: int = 0
    committed: Committed = msgspec.field(default_factory=Committed)
    committed_counts: Counts = Counts()
    shuffled_records: int = 0
    dead_letters: int = 0
    paused: bool = False
    pause_reason: str = ""
    ledger: str = ""
    location: TableLocation | None = None
    shards: int = 0
    last_snapshot: LastSnapshot | None = None
    tombstones: CommittedTombstones = msgspec.field(default_factory=CommittedTombstones)

    @property
    def generation(self) -> int:
        """The current generation: 0 before the first rewind."""
        return self.rewinds[-1].generation if self.rewinds else 0

    def generation_at(self, offset: int) -> int:
        """The generation that a claim must have for an entry at this ledger offset to count."""
        return max((r.generation for r in self.rewinds if offset > r.to), default=0)

    def known(self) -> Known:
        """What caches of the table have to know, as of now."""
        names = frozenset(self.seen.names) if self.seen is not None else None
        return Known(self.committed.instant, names, self.handled, self.generation, self.stamps_from)
