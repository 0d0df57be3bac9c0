"""What an entry of the two topics says, as a sentence without its subject: who wrote it stands before it."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.epoch_protocol.entries import (
    AttemptVoided,
    BatchShuffled,
    CommitDecided,
    Consumed,
    CoordinatorClaimed,
    Counts,
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
    TransactionTagged,
)
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServicePlanned,
    ServicesPaused,
    ServiceStep,
    ServiceVoided,
)

_COUNTED = {
    "inserts": "insert",
    "updates": "update",
    "deletes": "delete",
    "moves": "of them a move",
    "superseded": "superseded",
    "no_ops": "delete of an unknown key",
    "dead_letters": "dead letter",
}


def decision_words(offset: int, entry: Decision) -> str:
    """The entry of the decisions at this offset; "" where nothing is to be learnt from it."""
    match entry:
        case CoordinatorClaimed():
            return f"claims the table: its term is {offset}"
        case EpochPlanned():
            rows = f"at instant {entry.instant}" if entry.instant else "which has no rows"
            return (
                f"plans epoch {entry.epoch}, attempt {entry.attempt}, {rows}: the ledger up to offset "
                f"{entry.through}"
            )
        case CommitDecided():
            return (
                f"decides epoch {entry.epoch}, attempt {entry.attempt}: the metadata table will complete at "
                f"{entry.metadata_completion}, the data at {entry.data_completion}. The point of no return"
            )
        case EpochCommitted():
            return f"notes that epoch {entry.epoch} is committed"
        case AttemptVoided():
            back = f", takes its decision for {entry.undecides} back" if entry.undecides else ""
            return f"gives up epoch {entry.epoch}, attempt {entry.attempt}{back}: {entry.reason}"
        case ServicePlanned() | ServiceDecided() | ServiceCommitted() | ServiceVoided():
            return _service_words(entry)
        case Rewound():
            return (
                f"rewinds: what was tagged behind ledger offset {entry.to} counts no more, generation "
                f"{entry.generation} begins: {entry.reason}"
            )
        case TimelineSeen():
            return f"has seen on the timeline: {', '.join(entry.added)}" if entry.added else ""
        case SnapshotTaken():
            return "stores a snapshot of the fold"
        case TaggingPaused():
            return f"{'stops' if entry.paused else 'resumes'} tagging: {entry.reason}"
        case ServicesPaused():
            return f"{'stops' if entry.paused else 'resumes'} the planning of table services: {entry.reason}"


def _service_words(entry: ServiceStep) -> str:
    match entry:
        case ServicePlanned():
            return f"plans service action {entry.service} ({entry.kind}) at instant {entry.instant}"
        case ServiceDecided():
            return f"decides service action {entry.service}: it will complete at {entry.data_completion}"
        case ServiceCommitted():
            return f"notes that service action {entry.service} is committed ({entry.outcome})"
        case ServiceVoided():
            return f"gives up service action {entry.service}: {entry.reason}"


def ledger_words(offset: int, entry: LedgerEntry, counts: bool) -> str:
    """The entry of the ledger at this offset; ``counts``: for the fold."""
    verdict = "" if counts else ". It does not count"
    match entry:
        case LanesClaimed():
            generation = f" in generation {entry.generation}" if entry.stage is Stage.ASSIGN else ""
            lanes = ", ".join(entry.lanes)
            return f"claims {entry.stage.value} lane {lanes}{generation}: its term is {offset}"
        case BatchShuffled():
            part = ", ".join(map(_range, entry.consumed))
            return f"shuffles {part} into keyed: {_rows(entry.records)} (ledger {offset}){verdict}"
        case TransactionTagged():
            part = ", ".join(map(_range, entry.consumed))
            return f"tags {part}: {', '.join(_counted(entry.counts))} (ledger {offset}){verdict}"
        case _:
            return ""


def _range(part: Consumed) -> str:
    return f"lane {part.lane} from {part.start} to {part.next}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _counted(counts: Counts) -> Iterator[str]:
    for name, word in _COUNTED.items():
        number = getattr(counts, name)
        if number:
            plural = "s" if number > 1 and name in ("inserts", "updates", "deletes", "dead_letters") else ""
            yield f"{number} {word}{plural}"
