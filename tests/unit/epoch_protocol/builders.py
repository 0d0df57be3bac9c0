"""Short ways to write protocol entries in tests."""

from __future__ import annotations

from tidemark.epoch_protocol.entries import (
    BatchShuffled,
    CommitDecided,
    Consumed,
    CoordinatorClaimed,
    Counts,
    EpochCommitted,
    EpochPlanned,
    LanesClaimed,
    Produced,
    Rewound,
    Stage,
    Topic,
    TransactionTagged,
)


def claim(
    lanes: list[str], *, stage: Stage = Stage.ASSIGN, generation: int = 0, slot: int = 0
) -> LanesClaimed:
    return LanesClaimed(stage=stage, lanes=lanes, generation=generation, slot=slot, owner=f"p{slot}")


def keyed(lane: int, first: int, last: int) -> Produced:
    return Produced(Topic.KEYED, lane, first, last, batches=1, records=last - first + 1, checksum=0)


def shuffled(
    source: str, start: int, nxt: int, term: int, produced: list[Produced], dead_letters: int = 0
) -> BatchShuffled:
    return BatchShuffled(
        slot=0,
        nonce=f"s{source}-{start}-{term}",
        terms={source: term},
        consumed=[Consumed(source, start, nxt)],
        produced=produced,
        records=nxt - start,
        dead_letters=dead_letters,
    )


def tagged(
    lanes: dict[str, tuple[int, int]], terms: dict[str, int], *, generation: int = 0, rows: int = 1
) -> TransactionTagged:
    data = [Produced(Topic.DATA, 0, 0, 0, batches=1, records=rows, checksum=0)] if rows else []
    return TransactionTagged(
        slot=0,
        nonce="t" + "-".join(f"{lane}:{s}" for lane, (s, _) in lanes.items()),
        generation=generation,
        terms=terms,
        consumed=[Consumed(lane, s, n) for lane, (s, n) in lanes.items()],
        produced=data,
        counts=Counts(input=rows, inserts=rows),
        bytes=100,
        schema_id="x",
    )


def coordinator() -> CoordinatorClaimed:
    return CoordinatorClaimed(owner="c")


def plan(term: int, epoch: int, through: int, *, attempt: int = 1, generation: int = 0) -> EpochPlanned:
    return EpochPlanned(
        term=term,
        epoch=epoch,
        attempt=attempt,
        generation=generation,
        through=through,
        instant=f"2026010100000{epoch:02d}{attempt:02d}"[:17].ljust(17, "0"),
        as_of="0",
        schema="{}",
        planned_ms=0,
    )


def decide(term: int, epoch: int, *, attempt: int = 1) -> CommitDecided:
    return CommitDecided(term, epoch, attempt, "2", "3", "path", "sha", 0)


def committed(term: int, epoch: int, *, attempt: int = 1) -> EpochCommitted:
    return EpochCommitted(term, epoch, attempt, instant=f"i{epoch}", completion=f"c{epoch}", committed_ms=0)


def rewound(term: int, generation: int, to: int) -> Rewound:
    return Rewound(term=term, generation=generation, to=to, handled="9", reason="test")
