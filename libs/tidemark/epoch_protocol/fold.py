"""The fold: one pure function over the committed entries of ledger and decisions that says what counts.

Every service runs this code over the same two topics, so all of them agree on the answer, whichever process
died in between. Rules (ARCHITECTURE.md, "What counts"):

* **Claim of lanes.** A claim is valid when it names this ledger and, in the assign stage, the generation that
  is in force at its offset. The offset of a lane's newest valid claim is the lane's term.
* **Transaction.** A transaction counts if and only if its generation is in force at its offset (assign stage)
  and, for every lane that it consumed, it names the lane's term and its range starts at the lane's ``next``.
  It counts as a whole or not at all. Example: lane 3 has term 40 and ``next`` 100; a transaction that names
  term 40 and consumed [100, 150) counts, one that names term 31 (its owner was replaced at offset 40) does
  not.
* **First position.** A lane that has never counted may start anywhere. It keeps the start of its first
  counting transaction, even when a rewind makes that transaction void.
* **Epoch.** An epoch is planned, decided and committed, in this order; a void attempt takes it back
  (`epoch_status.EPOCH_STEPS`). A decision that is no such step is ignored.
* **Coordinator.** A decision counts only in the term of the newest coordinator claim before it. A
  coordinator's claim that names another ledger than the claims before it is ignored: it was made for other
  topics of the same name.
* **Rewind.** A rewind to ledger offset ``to`` makes entries of older generations after ``to`` void. The rule
  depends on offsets alone, so the order in which a reader sees the two topics does not matter. A ledger entry
  of a generation that the fold has not seen waits for the decisions; a decision that covers ledger entries
  which the fold has not seen waits for the ledger. The two waits cannot block each other: whoever wrote a
  ledger entry of a generation, or a decision about a ledger offset, had read that decision or entry before.
* **Decided commit.** A `CommitDecided` stands until its epoch is committed, with one exception: while neither
  of its two commits is completed, its coordinator may void the attempt in an entry that names the data
  completion time of that decision (ARCHITECTURE.md, "When the lock was lost", says how it can be sure).
  Entries of earlier versions may also replace a decision by another one (`supersedes`).
* **Seen instants** of the data timeline are a set of identities (`epoch_protocol.seen`). A `TimelineSeen`
  adds and removes identities; a commit of ours adds its own.
* **Service actions** have entries of their own (`service_status`). They touch nothing else, and no rewind
  touches them.
* **Tombstones** outlive the entries that name them, so the fold keeps the offset ranges of the committed ones
  (`epoch_protocol.tombstones`).

`Fold` is a mutable shell around `FoldState` with two entry points; it does no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec

from tidemark.epoch_protocol.committing import apply_committed, source_positions
from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    BatchShuffled,
    CommitDecided,
    Consumed,
    CoordinatorClaimed,
    Decision,
    EpochCommitted,
    EpochPlanned,
    LanesClaimed,
    LedgerEntry,
    Rewound,
    SnapshotTaken,
    Stage,
    TaggingPaused,
    TimelineSeen,
    Topic,
    TransactionBegun,
    TransactionTagged,
    refuse_newer,
)
from tidemark.epoch_protocol.epoch_status import EpochStep, may_follow
from tidemark.epoch_protocol.errors import FoldGapError
from tidemark.epoch_protocol.seen import SeenInstants
from tidemark.epoch_protocol.service_entries import ServicesPaused, ServiceStep
from tidemark.epoch_protocol.service_status import apply_service
from tidemark.epoch_protocol.state import (
    CountedShuffle,
    CountedTagged,
    FoldState,
    LaneState,
    LastSnapshot,
    Rewind,
    VoidedAttempt,
)
from tidemark.epoch_protocol.tombstones import CommittedTombstones


class Verdict(Enum):
    """What the fold did with an entry."""

    COUNTS = "counts"
    CLAIMED = "claimed"
    APPLIED = "applied"
    IGNORED_BEGIN = "begin marker"
    STALE_TERM = "rests on a claim that is not the newest"
    STALE_GENERATION = "of a generation that was rewound"
    STALE_POSITION = "does not start at the lane's next position"
    STALE_COORDINATOR = "of a coordinator that was replaced"
    OTHER_LEDGER = "of a coordinator of another ledger"
    OUT_OF_PLACE = "does not follow from the decisions before it"
    WAIT_FOR_DECISIONS = "of a generation not seen yet: read the decisions first"
    WAIT_FOR_LEDGER = "covers ledger entries not seen yet: read the ledger first"


class Fold:
    """Applies entries in offset order to a `FoldState`. Offsets may have gaps (markers, aborted entries)."""

    def __init__(self, state: FoldState | None = None) -> None:
        self.state = state or FoldState(tombstones=CommittedTombstones(whole=True))

    def snapshot(self) -> bytes:
        """The state as canonical JSON: equal states give equal bytes."""
        return msgspec.json.encode(self.state, order="deterministic")

    @classmethod
    def restore(cls, data: bytes) -> Fold:
        """A fold that continues from a snapshot's state. Raises UnknownEntryError for a snapshot of a higher
        version of the protocol: this one would lose what it does not know.
        """
        state = msgspec.json.decode(data, type=FoldState)
        refuse_newer(state.protocol)
        return cls(state)

    def apply_ledger(self, offset: int, entry: LedgerEntry) -> Verdict:
        """Applies the committed ledger entry at ``offset``.

        WAIT_FOR_DECISIONS changes nothing: the caller applies decisions, then the same entry again. Raises
        FoldGapError when ``offset`` lies below what was already applied.
        """
        state = self.state
        if offset < state.ledger_next:
            raise FoldGapError(f"ledger offset {offset} was applied before (next is {state.ledger_next})")
        if isinstance(entry, LanesClaimed | TransactionTagged) and entry.generation > state.generation:
            return Verdict.WAIT_FOR_DECISIONS
        if isinstance(entry, LanesClaimed) and entry.ledger and not state.ledger:
            # The owner has this identity from a coordinator, and that coordinator's claim says it first.
            return Verdict.WAIT_FOR_DECISIONS
        state.ledger_next = offset + 1
        if isinstance(entry, TransactionBegun):
            return Verdict.IGNORED_BEGIN
        if isinstance(entry, LanesClaimed):
            return self._claim(offset, entry)
        if isinstance(entry, BatchShuffled):
            return self._shuffled(offset, entry)
        return self._tagged(offset, entry)

    def apply_decision(self, offset: int, entry: Decision) -> Verdict:
        """Applies the committed decision at ``offset``.

        WAIT_FOR_LEDGER changes nothing: the caller applies ledger entries, then the same decision again.
        Raises FoldGapError when ``offset`` lies below what was already applied.
        """
        state = self.state
        if offset < state.decisions_next:
            raise FoldGapError(f"decisions offset {offset} was applied before (next: {state.decisions_next})")
        if _needed_ledger(entry) >= state.ledger_next:
            return Verdict.WAIT_FOR_LEDGER
        state.decisions_next = offset + 1
        if isinstance(entry, CoordinatorClaimed):
            return self._coordinator_claim(offset, entry)
        if entry.term != state.coordinator_term:
            return Verdict.STALE_COORDINATOR
        return self._decide(entry)

    def _coordinator_claim(self, offset: int, entry: CoordinatorClaimed) -> Verdict:
        state = self.state
        if entry.ledger and state.ledger and entry.ledger != state.ledger:
            return Verdict.OTHER_LEDGER
        state.coordinator_term = offset
        state.protocol = max(state.protocol, entry.protocol)
        state.ledger = entry.ledger or state.ledger
        state.location = entry.location or state.location
        state.shards = entry.shards or state.shards
        return Verdict.CLAIMED

    def _claim(self, offset: int, entry: LanesClaimed) -> Verdict:
        if entry.ledger and entry.ledger != self.state.ledger:
            return Verdict.OTHER_LEDGER
        if entry.stage is Stage.ASSIGN and entry.generation != self.state.generation_at(offset):
            return Verdict.STALE_GENERATION
        lanes = self._lanes(entry.stage)
        for lane in entry.lanes:
            held = lanes.get(lane)
            lanes[lane] = LaneState(
                next=held.next if held else 0,
                term=offset,
                generation=entry.generation,
                slot=entry.slot,
                owner=entry.owner,
                begun=held is not None and held.begun,
            )
        return Verdict.CLAIMED

    def _shuffled(self, offset: int, entry: BatchShuffled) -> Verdict:
        verdict = self._counts(Stage.SHUFFLE, entry.terms, entry.consumed)
        if verdict is Verdict.COUNTS:
            self._advance(Stage.SHUFFLE, entry.consumed)
            self.state.shuffled.append(CountedShuffle(offset, entry))
            self.state.shuffled_records += entry.records
            self.state.dead_letters += entry.dead_letters
        return verdict

    def _tagged(self, offset: int, entry: TransactionTagged) -> Verdict:
        if entry.generation != self.state.generation_at(offset):
            return Verdict.STALE_GENERATION
        verdict = self._counts(Stage.ASSIGN, entry.terms, entry.consumed)
        if verdict is Verdict.COUNTS:
            self._advance(Stage.ASSIGN, entry.consumed)
            self.state.tagged.append(CountedTagged(offset, entry))
        return verdict

    def _counts(self, stage: Stage, terms: dict[str, int], consumed: Iterable[Consumed]) -> Verdict:
        lanes = self._lanes(stage)
        for part in consumed:
            lane = lanes.get(part.lane)
            if lane is None or lane.term is None or terms.get(part.lane) != lane.term:
                return Verdict.STALE_TERM
            if not _continues(lane, part):
                return Verdict.STALE_POSITION
        return Verdict.COUNTS

    def _advance(self, stage: Stage, consumed: Iterable[Consumed]) -> None:
        lanes = self._lanes(stage)
        for part in consumed:
            lanes[part.lane].next, lanes[part.lane].begun = part.next, True

    def _lanes(self, stage: Stage) -> dict[str, LaneState]:
        return self.state.shuffle_lanes if stage is Stage.SHUFFLE else self.state.assign_lanes

    def _decide(self, entry: Decision) -> Verdict:
        if isinstance(entry, EpochStep) and not may_follow(self.state, entry):
            return Verdict.OUT_OF_PLACE
        if isinstance(entry, ServiceStep):
            return self._service(entry)
        if isinstance(entry, EpochPlanned):
            return self._plan(entry)
        if isinstance(entry, CommitDecided):
            return self._commit_decided(entry)
        if isinstance(entry, EpochCommitted):
            return self._committed(entry)
        if isinstance(entry, AttemptVoided):
            return self._void(entry)
        if isinstance(entry, Rewound):
            return self._rewind(entry)
        if isinstance(entry, TimelineSeen):
            return self._look(entry)
        if isinstance(entry, TaggingPaused):
            self.state.paused, self.state.pause_reason = entry.paused, entry.reason
            return Verdict.APPLIED
        if isinstance(entry, ServicesPaused):
            self.state.services_paused, self.state.services_pause_reason = entry.paused, entry.reason
            return Verdict.APPLIED
        assert isinstance(entry, SnapshotTaken)
        self.state.last_snapshot = LastSnapshot(
            decision=self.state.decisions_next - 1,
            epoch=self.state.committed.epoch,
            path=entry.path,
            ledger_next=entry.ledger_next,
            taken_ms=entry.taken_ms,
            batches=entry.batches,
        )
        self.state.tombstones.forget_below(entry.batches.get(Topic.TOMBSTONES.value, {}))
        return Verdict.APPLIED

    def _plan(self, entry: EpochPlanned) -> Verdict:
        state = self.state
        in_place = (
            entry.epoch == state.committed.epoch + 1
            and entry.attempt == state.attempts + 1
            and entry.generation == state.generation
            and entry.through > state.committed.through
        )
        if not in_place:
            return Verdict.OUT_OF_PLACE
        state.planned, state.attempts, state.voided = entry, entry.attempt, []
        return Verdict.APPLIED

    def _is_current(self, epoch: int, attempt: int) -> bool:
        planned = self.state.planned
        return planned is not None and (planned.epoch, planned.attempt) == (epoch, attempt)

    def _commit_decided(self, entry: CommitDecided) -> Verdict:
        if not self._is_current(entry.epoch, entry.attempt) or not _follows(self.state.decided, entry):
            return Verdict.OUT_OF_PLACE
        self.state.decided = entry
        return Verdict.APPLIED

    def _committed(self, entry: EpochCommitted) -> Verdict:
        planned, decided = self.state.planned, self.state.decided
        if planned is None or not self._is_current(entry.epoch, entry.attempt):
            return Verdict.OUT_OF_PLACE
        if (planned.instant is None) != (decided is None):
            return Verdict.OUT_OF_PLACE
        apply_committed(self.state, planned, entry)
        return Verdict.APPLIED

    def _void(self, entry: AttemptVoided) -> Verdict:
        planned, decided = self.state.planned, self.state.decided
        if planned is None or not self._is_current(entry.epoch, entry.attempt):
            return Verdict.OUT_OF_PLACE
        if entry.undecides != (decided.data_completion if decided is not None else ""):
            return Verdict.OUT_OF_PLACE
        self.state.voided.append(VoidedAttempt(planned.epoch, planned.attempt, planned.instant))
        self.state.planned, self.state.decided = None, None
        return Verdict.APPLIED

    def _rewind(self, entry: Rewound) -> Verdict:
        state = self.state
        in_place = entry.generation == state.generation + 1 and entry.to == state.committed.through
        if not in_place:
            return Verdict.OUT_OF_PLACE
        # Entries up to `to` are never judged again, and entries after it must be of this generation: older
        # rewinds cannot matter any more.
        state.rewinds = [Rewind(entry.generation, entry.to)]
        state.handled = max(state.handled, entry.handled)
        state.rewinds_in_row += 1
        if entry.forget_stamps:
            state.stamps_from = entry.generation
        positions = entry.starts | state.committed.keyed_next
        state.assign_lanes = {lane: LaneState(next=n, begun=True) for lane, n in positions.items()}
        state.tagged = [t for t in state.tagged if t.offset <= entry.to]
        return Verdict.APPLIED

    def _look(self, entry: TimelineSeen) -> Verdict:
        state = self.state
        if entry.anew:
            state.seen = SeenInstants()
        elif state.seen is None:
            return Verdict.OUT_OF_PLACE
        state.seen.look(entry.start, entry.added, entry.removed)
        return Verdict.APPLIED

    def _service(self, entry: ServiceStep) -> Verdict:
        state = self.state
        following = apply_service(state.services, state.next_service, entry)
        if following is None:
            return Verdict.OUT_OF_PLACE
        state.next_service = following
        return Verdict.APPLIED

    def rewind_starts(self) -> dict[str, int]:
        """The content of `Rewound.starts` for a rewind now.

        Maps each lane without a committed position to where its first counting transaction began.
        """
        lanes = self.state.assign_lanes
        positions = {lane: held.next for lane, held in lanes.items() if has_begun(held)}
        for counted in reversed(self.state.tagged):
            positions.update((part.lane, part.start) for part in counted.entry.consumed)
        committed = self.state.committed.keyed_next
        return {lane: n for lane, n in sorted(positions.items()) if lane not in committed}

    def manifest(self, through: int) -> list[CountedTagged]:
        """The counting transactions after the last committed epoch, up to and including ``through``."""
        return [t for t in self.state.tagged if t.offset <= through]

    def source_next(self, through: int) -> dict[str, int]:
        """Per shuffle lane the input position up to which all its records are tagged by ``through``."""
        return source_positions(self.state, through)


def _follows(held: CommitDecided | None, entry: CommitDecided) -> bool:
    """Whether the decision is the attempt's first one or, in entries of earlier versions, properly replaces
    ``held``: it names it, has the same statuses and later completion times.
    """
    if held is None:
        return entry.supersedes == ""
    same = (entry.statuses_path, entry.statuses_sha256) == (held.statuses_path, held.statuses_sha256)
    later = min(entry.metadata_completion, entry.data_completion) > held.data_completion
    return entry.supersedes == held.data_completion and same and later


def _needed_ledger(entry: Decision) -> int:
    """The ledger offset that must be applied before this decision can be judged; -1 when there is none."""
    if isinstance(entry, EpochPlanned):
        return entry.through
    if isinstance(entry, Rewound):
        return entry.to
    return -1


def _continues(lane: LaneState, part: Consumed) -> bool:
    """Whether the range starts at the lane's next position; a lane that never counted may start anywhere.

    The owner chooses the first position of an input lane: `input.start`, or what retention has left.
    """
    return part.next > part.start and (part.start == lane.next or not has_begun(lane))


def has_begun(lane: LaneState) -> bool:
    """Whether a transaction of the lane has counted. Earlier versions stored no ``begun``: there a position
    above 0 says it.
    """
    return lane.begun or lane.next > 0
