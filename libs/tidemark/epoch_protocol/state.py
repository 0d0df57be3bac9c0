"""The state that the fold computes: plain msgspec structs, so that a snapshot is one JSON document."""

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
from tidemark.epoch_protocol.service_entries import ServiceKind
from tidemark.epoch_protocol.service_status import OpenService
from tidemark.epoch_protocol.tombstones import CommittedTombstones


class LaneState(msgspec.Struct):
    """A lane as the ledger shows it: its newest valid claim, and the position at which the next transaction
    must begin to count.

    ``begun``: a transaction of the lane has counted. Before that ``next`` is 0, and the first transaction may
    begin anywhere.
    """

    next: int
    term: int | None = None
    generation: int = 0
    slot: int | None = None
    owner: str = ""
    begun: bool = False


class CountedShuffle(msgspec.Struct, frozen=True):
    """A counting transaction of the shuffle stage, with its ledger offset."""

    offset: int
    entry: BatchShuffled


class CountedTagged(msgspec.Struct, frozen=True):
    """A counting transaction of the assign stage, with its ledger offset."""

    offset: int
    entry: TransactionTagged


class Committed(msgspec.Struct, frozen=True):
    """The last committed epoch: every transaction up to ledger offset ``through`` is in the table.

    Before the first commit ``epoch`` is 0. ``keyed_next``: position per assign lane. ``source_next``: per
    shuffle lane the input position up to which all records are committed. ``instant`` and ``completion`` are
    those of the last epoch that had rows.
    """

    epoch: int = 0
    through: int = -1
    instant: str | None = None
    completion: str | None = None
    keyed_next: dict[str, int] = {}
    source_next: dict[str, int] = {}


class Rewind(msgspec.Struct, frozen=True):
    """A rewind: entries after ledger offset ``to`` count only when their generation is ``generation``."""

    generation: int
    to: int


class VoidedAttempt(msgspec.Struct, frozen=True):
    """A void attempt; its instant must be rolled back before the next plan."""

    epoch: int
    attempt: int
    instant: str | None


class LastSnapshot(msgspec.Struct, frozen=True):
    """The newest stored copy of the fold that the decisions name; the next trimming begins from it.

    ``decision`` is the offset of its `SnapshotTaken`, ``epoch`` the last one committed before that entry; all
    other fields are those of the entry.
    """

    decision: int
    epoch: int
    path: str
    ledger_next: int
    taken_ms: int
    batches: dict[str, dict[str, int]]


class FoldState(msgspec.Struct):
    """Everything that the services agree on. Committing and trimming bound its lists.

    ``seen`` is None before the first `TimelineSeen`: every instant that completed up to ``handled`` counts as
    seen then. ``stamps_from``: the generation of the last rewind that made caches forget their stamps.
    ``rewinds_in_row``: how many rewinds there were since the last committed epoch. ``services``: the open
    service actions by kind; ``next_service``: the number of the next one. ``protocol``: the highest version
    that a coordinator claimed with. Snapshots of version 1 have none of these three.
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
    services_paused: bool = False
    services_pause_reason: str = ""
    ledger: str = ""
    location: TableLocation | None = None
    shards: int = 0
    last_snapshot: LastSnapshot | None = None
    tombstones: CommittedTombstones = msgspec.field(default_factory=CommittedTombstones)
    services: dict[ServiceKind, OpenService] = {}
    next_service: int = 1
    protocol: int = 1

    @property
    def generation(self) -> int:
        """The current generation: 0 before the first rewind."""
        return self.rewinds[-1].generation if self.rewinds else 0

    def generation_at(self, offset: int) -> int:
        """The generation that a claim must have for an entry at this ledger offset to count."""
        return max((r.generation for r in self.rewinds if offset > r.to), default=0)

    def known(self) -> Known:
        """What a cache of the table has to know of this state."""
        names = frozenset(self.seen.names) if self.seen is not None else None
        return Known(self.committed.instant, names, self.handled, self.generation, self.stamps_from)
