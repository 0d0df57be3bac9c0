"""The fold: one pure function over the committed entries of ledger and decisions that says what counts.

Every service runs this very code over the same two topics and so agrees on the same answer, whoever
died in between. Rules (ARCHITECTURE.md, "What counts"):

* A claim is valid when its generation is the one in force at its place; the newest valid claim of a lane
  is its term.
* A transaction counts if and only if, for every lane it names, its term is the lane's newest valid claim
  at that place, the generation is in force, and its consumed range starts at the lane's ``next``. It
  counts as a whole or not at all.
* An epoch is planned, decided, committed, in that order; an attempt that is void takes it back
  (`epoch_status.EPOCH_STEPS`). A decision that is no such step is ignored.
* A decision of a coordinator term that is not the newest claim before it is ignored. A coordinator's claim
  that names another ledger than the claims before it is none: it comes from before these topics were made.
* A rewind to ledger offset ``to`` makes entries of older generations after ``to`` void. The rule depends
  on offsets alone, so the order in which a reader sees the two topics does not matter: a ledger entry of a
  generation not seen yet waits for the decisions, a decision that covers ledger entries not seen yet
  waits for the ledger. The two waits cannot block each other: whoever wrote a ledger entry of a
  generation, or a decision about a ledger offset, had read that decision or entry before.
* A `CommitDecided` stands until its epoch is committed, with one exception: while neither of its two
  commits is completed, its coordinator may void the attempt, naming the decision that goes by its data
  completion time (ARCHITECTURE.md, "When the lock was lost", says what makes it sure of that). Entries of
  former versions may also put another decision in its place (`supersedes`).
* What has been seen of the data timeline is a set of identities (`epoch_protocol.seen`): a look adds and
  removes, a commit of ours adds itself.
* Tombstones outlive the entries that name them: the ranges of those that are committed are kept
  (`epoch_protocol.tombstones`).
* A lane starts where its first counting transaction chose to, also when that was rewound.

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
)
from tidemark.epoch_protocol.epoch_status import EpochStep, may_follow
from tidemark.epoch_protocol.errors import FoldGapError
from tidemark.epoch_protocol.seen import SeenInstants
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
    """What the fold made of an entry."""

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
        """The state as canonical JSON; equal states give equal bytes."""
        return msgspec.json.encode(self.state, order="deterministic")

    @classmethod
    def restore(cls, data: bytes) -> Fold:
        """A fold that goes on from a snapshot's state."""
        return cls(msgspec.json.decode(data, type=FoldState))

    def apply_ledger(self, offset: int, entry: LedgerEntry) -> Verdict:
        """Applies the committed ledger entry at ``offset``.

        WAIT_FOR_DECISIONS changes nothing: apply decisions, then the same entry again. Raises
        FoldGapError when the offset lies before what was applied already.
        """
        state = self.state
        if offset < state.ledger_next:
            raise FoldGapError(f"ledger offset {offset} was applied before (next is {state.ledger_next})")
        if isinstance(entry, LanesClaimed | TransactionTagged) and entry.generation > state.generation:
            return Verdict.WAIT_FOR_DECISIONS
        if isinstance(entry, LanesClaimed) and entry.ledger and not state.ledger:
            # Told by a coordinator, whose own claim says it first.
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
        """Applies the committed decision at ``offset``. Raises FoldGapError on a step back.

        WAIT_FOR_LEDGER changes nothing: apply ledger entries, then the same decision again.
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
        # Nothing at or before `to` is judged any more, and what comes after it is this generation's: older
        # rewinds can never matter again.
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

    def rewind_starts(self) -> dict[str, int]:
        """`Rewound.starts`, by what this fold has seen."""
        lanes = self.state.assign_lanes
        positions = {lane: held.next for lane, held in lanes.items() if has_begun(held)}
        for counted in reversed(self.state.tagged):
            positions.update((part.lane, part.start) for part in counted.entry.consumed)
        committed = self.state.committed.keyed_next
        return {lane: n for lane, n in sorted(positions.items()) if lane not in committed}

    def manifest(self, through: int) -> list[CountedTagged]:
        """The counting transactions after the last committed epoch, up to and with ``through``."""
        return [t for t in self.state.tagged if t.offset <= through]

    def source_next(self, through: int) -> dict[str, int]:
        """Per shuffle lane the input position up to which every assign lane is tagged by ``through``."""
        return source_positions(self.state, through)


def _follows(held: CommitDecided | None, entry: CommitDecided) -> bool:
    """Whether the decision is the attempt's first one, or the next one of the same statuses."""
    if held is None:
        return entry.supersedes == ""
    same = (entry.statuses_path, entry.statuses_sha256) == (held.statuses_path, held.statuses_sha256)
    later = min(entry.metadata_completion, entry.data_completion) > held.data_completion
    return entry.supersedes == held.data_completion and same and later


def _needed_ledger(entry: Decision) -> int:
    """The ledger offset that must have been applied before this decision can be judged; -1: none."""
    if isinstance(entry, EpochPlanned):
        return entry.through
    if isinstance(entry, Rewound):
        return entry.to
    return -1


def _continues(lane: LaneState, part: Consumed) -> bool:
    """Whether the range starts where the lane stands; a lane that never counted may start anywhere.

    The first position of an input lane is the owner's choice (input.start, or what retention left).
    """
    return part.next > part.start and (part.start == lane.next or not has_begun(lane))


def has_begun(lane: LaneState) -> bool:
    """Whether the lane's position is one that counts; former versions kept it by the position alone."""
    return lane.begun or lane.next > 0
