"""How an `EpochCommitted` changes the fold's state, and which input positions a commit covers."""

from __future__ import annotations

from tidemark.epoch_protocol.entries import Counts, EpochCommitted, EpochPlanned, Topic
from tidemark.epoch_protocol.seen import name_of
from tidemark.epoch_protocol.state import Committed, CountedShuffle, FoldState


def keyed_positions(state: FoldState, through: int) -> dict[str, int]:
    """Per assign lane the position in ``keyed`` after the counting transactions up to offset ``through``."""
    positions = dict(state.committed.keyed_next)
    for counted in state.tagged:
        if counted.offset <= through:
            for part in counted.entry.consumed:
                positions[part.lane] = part.next
    return positions


def source_positions(state: FoldState, through: int) -> dict[str, int]:
    """Per shuffle lane the input position up to which all its records are tagged by ``through``.

    A shuffle transaction is covered when every assign lane that got batches of it has tagged them. A lane's
    position stops at the first transaction that is not covered, even when later ones are. For instance: a
    transaction read ``orders:0`` up to 100 and wrote to assign lanes 0 and 1. When only lane 0 has tagged its
    part, ``orders:0`` stays at the position before that transaction.
    """
    keyed = keyed_positions(state, through)
    positions = dict(state.committed.source_next)
    held: set[str] = set()
    for shuffled in state.shuffled:
        lanes = [part.lane for part in shuffled.entry.consumed]
        if shuffled.offset > through or held.intersection(lanes) or not _is_tagged(shuffled, keyed):
            held.update(lanes)
            continue
        for part in shuffled.entry.consumed:
            positions[part.lane] = part.next
    return positions


def apply_committed(state: FoldState, planned: EpochPlanned, entry: EpochCommitted) -> None:
    """Moves ``committed`` to the planned epoch, and drops the transactions that are now in the table."""
    sources = source_positions(state, planned.through)
    keyed = keyed_positions(state, planned.through)
    done = [t for t in state.tagged if t.offset <= planned.through]
    had_rows = entry.instant is not None
    state.committed = Committed(
        epoch=planned.epoch,
        through=planned.through,
        instant=entry.instant if had_rows else state.committed.instant,
        completion=entry.completion if had_rows else state.committed.completion,
        keyed_next=keyed,
        source_next=sources,
    )
    if had_rows and entry.completion is not None:
        state.handled = max(state.handled, entry.completion)
        _saw_own(state, entry)
    state.rewinds_in_row = 0
    state.committed_counts = sum((t.entry.counts for t in done), state.committed_counts)
    state.tombstones.commit(t.entry for t in done)
    state.tagged = [t for t in state.tagged if t.offset > planned.through]
    state.shuffled = [s for s in state.shuffled if not _is_covered(s, sources, keyed)]
    state.planned, state.decided, state.attempts = None, None, 0


def _saw_own(state: FoldState, entry: EpochCommitted) -> None:
    if not entry.action:
        # An earlier version wrote the entry, and kept no identities: `handled` alone tells what it saw.
        state.seen = None
    elif state.seen is not None:
        state.seen.add([name_of(str(entry.instant), str(entry.completion), entry.action)])


def uncommitted_counts(state: FoldState) -> Counts:
    """The counts of all counting transactions that no committed epoch covers yet (in flight, G8)."""
    return sum((t.entry.counts for t in state.tagged), Counts())


def untagged_records(state: FoldState) -> int:
    """The number of shuffled records that no counting transaction of the assign stage covers yet."""
    return sum(
        part.records
        for shuffled in state.shuffled
        for part in shuffled.entry.produced
        if part.topic is Topic.KEYED and part.last >= _next_of(state, part.partition)
    )


def _next_of(state: FoldState, lane: int) -> int:
    held = state.assign_lanes.get(str(lane))
    return held.next if held is not None else 0


def _is_tagged(shuffled: CountedShuffle, keyed: dict[str, int]) -> bool:
    return all(
        keyed.get(str(part.partition), 0) > part.last
        for part in shuffled.entry.produced
        if part.topic is Topic.KEYED
    )


def _is_covered(shuffled: CountedShuffle, sources: dict[str, int], keyed: dict[str, int]) -> bool:
    return _is_tagged(shuffled, keyed) and all(
        sources.get(part.lane, 0) >= part.next for part in shuffled.entry.consumed
    )
