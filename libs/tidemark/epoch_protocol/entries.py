"""Entries of the ledger and of the decisions topic, and their wire form.

Wire form: JSON (one object with a ``type`` tag) so that a person can read both topics with any Kafka
client; a released field is never renamed or given another meaning, unknown fields are ignored, an
unknown ``type`` is an error. `PROTOCOL_VERSION` travels in every claim.

Positions: ``start``/``next`` are half-open consumer positions; ``first``/``last`` are the offsets of the
first and last *delivered* message, inclusive (transaction markers use offsets too, so positions can
never be turned into counts).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

import msgspec

from tidemark.epoch_protocol.errors import UnknownEntryError

PROTOCOL_VERSION: Final = 1
_T = TypeVar("_T")


class Stage(StrEnum):
    """Which stage of the flow a ledger entry belongs to; lanes of the two stages are unrelated."""

    SHUFFLE = "shuffle"
    ASSIGN = "assign"


class Topic(StrEnum):
    """The batch topics, named by role (the Kafka name is ``<table>.<role>``)."""

    KEYED = "keyed"
    DATA = "data"
    INDEX = "index"
    TOMBSTONES = "tombstones"


class Consumed(msgspec.Struct, frozen=True):
    """What a transaction consumed of one lane: the half-open range [start, next)."""

    lane: str
    start: int
    next: int


class Skipped(msgspec.Struct, frozen=True):
    """Offsets of an input lane that an operator had passed over unread, both inclusive; a dead letter says
    why.
    """

    lane: str
    first: int
    last: int


class Produced(msgspec.Struct, frozen=True):
    """The batches that a transaction produced into one topic-partition.

    ``records`` rows in ``batches`` messages at offsets first..last (others' batches may lie between);
    ``checksum`` is the CRC-32 chained over the message values in order.
    """

    topic: Topic
    partition: int
    first: int
    last: int
    batches: int
    records: int
    checksum: int


class Counts(msgspec.Struct, frozen=True):
    """What became of the input records of a transaction (guarantee G8). Moves are in ``updates`` too."""

    input: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    moves: int = 0
    superseded: int = 0
    no_ops: int = 0
    dead_letters: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f) + getattr(other, f) for f in self.__struct_fields__))


TAG_OF_COUNT: Final[Mapping[str, str]] = {
    "inserts": "insert",
    "updates": "update",
    "moves": "move",
    "deletes": "delete",
    "superseded": "superseded",
    "no_ops": "no_op",
    "dead_letters": "dead_letter",
}
"""What a record is called that counts there: all counts but ``input``, which is their sum."""


class LanesClaimed(msgspec.Struct, frozen=True, tag="lanes_claimed"):
    """An owner takes lanes of one stage; the entry's offset is the *term* of all of them.

    ``generation`` is that of the newest rewind the owner has read (0 for the shuffle stage, whose output
    a rewind keeps). ``ledger``: the identity of the table that the owner works for, as its coordinator told
    it; "": of a version that did not say.
    """

    stage: Stage
    lanes: list[str]
    generation: int
    slot: int
    owner: str
    protocol: int = PROTOCOL_VERSION
    ledger: str = ""


class TransactionBegun(msgspec.Struct, frozen=True, tag="transaction_begun"):
    """First message of every transaction: registers the ledger with the broker before any batch."""

    stage: Stage
    slot: int
    nonce: str


class BatchShuffled(msgspec.Struct, frozen=True, tag="batch_shuffled"):
    """A transaction of the shuffle stage: input ranges in, keyed batches and dead letters out.

    ``terms`` maps each consumed lane (``topic:partition``) to the claim it rests on. ``skipped`` ranges are
    parts of the consumed ones, and count as one record and one dead letter each.
    """

    slot: int
    nonce: str
    terms: dict[str, int]
    consumed: list[Consumed]
    produced: list[Produced]
    records: int
    dead_letters: int
    skipped: list[Skipped] = []


class TransactionTagged(msgspec.Struct, frozen=True, tag="transaction_tagged"):
    """A transaction of the assign stage: keyed ranges in, data, index and tombstone batches out.

    ``bytes`` is the size of all produced values; ``schema_id`` the fingerprint of the rows' schema.
    """

    slot: int
    nonce: str
    generation: int
    terms: dict[str, int]
    consumed: list[Consumed]
    produced: list[Produced]
    counts: Counts
    bytes: int
    schema_id: str


class TableLocation(msgspec.Struct, frozen=True):
    """Where a table lies. ``path``: its folder's real path. ``file`` and ``identity``: what its
    `hoodie.properties` and its `table-id` are whatever their path (device and inode); "" where that cannot be
    told. Others write the former anew now and then, and it is another file then. Nobody does so with the
    latter while the ledger lives: it is what counts. "": of a version that did not look at it.
    """

    path: str
    file: str = ""
    identity: str = ""


class CoordinatorClaimed(msgspec.Struct, frozen=True, tag="coordinator_claimed"):
    """A coordinator takes over; the entry's offset is its term. Older terms' later entries are ignored.

    ``ledger``: the identity of table and ledger, the same in the table's folder; ``location``: where that
    folder was when it was claimed. "" and None: of a version that kept neither. ``shards``: how many the
    table's record index has, for which topics and tombstones are made; 0: not said, as by former versions and
    by commands that claim to end what is open.
    """

    owner: str
    protocol: int = PROTOCOL_VERSION
    ledger: str = ""
    location: TableLocation | None = None
    shards: int = 0


class EpochPlanned(msgspec.Struct, frozen=True, tag="epoch_planned"):
    """The epoch is the counting transactions with ledger offset in (previous through, through].

    ``instant`` is None for an epoch with progress and no rows. ``as_of`` is the completion time of the
    newest completed data instant ("0": none): the file slices that writers may read. ``schema`` is the
    table's Avro schema for this commit; ``planned_ms`` wall clock, for people only.
    """

    term: int
    epoch: int
    attempt: int
    generation: int
    through: int
    instant: str | None
    as_of: str
    schema: str
    planned_ms: int


class CommitDecided(msgspec.Struct, frozen=True, tag="commit_decided"):
    """The point of no return: from here the commit is a pure function of the decisions.

    ``statuses`` is the content address (path under the table's base, sha256) of the write statuses.
    ``supersedes``: written by former versions alone, when a decision took the place of another one: its data
    completion time.
    """

    term: int
    epoch: int
    attempt: int
    metadata_completion: str
    data_completion: str
    statuses_path: str
    statuses_sha256: str
    decided_ms: int
    supersedes: str = ""


class EpochCommitted(msgspec.Struct, frozen=True, tag="epoch_committed"):
    """The epoch is in the table (or had no rows: instant None). Owners promote its entries.

    ``action``: of its completed instant ("" in entries of versions that kept no identities).
    """

    term: int
    epoch: int
    attempt: int
    instant: str | None
    completion: str | None
    committed_ms: int
    action: str = ""


class AttemptVoided(msgspec.Struct, frozen=True, tag="attempt_voided"):
    """The attempt will never commit; its instant is rolled back before the next plan.

    ``undecides``: the data completion time of the decision that is taken back with it, "" when there is none.
    Only while nothing is completed under that decision: see `Fold`.
    """

    term: int
    epoch: int
    attempt: int
    reason: str
    undecides: str = ""


class Rewound(msgspec.Struct, frozen=True, tag="rewound"):
    """Everything tagged after ``to`` (the last committed epoch's through) is void and tagged anew.

    ``generation`` is the previous one + 1. ``starts``: of lanes without a committed position, where their
    first counting transaction began; the choice of a first position (input.start) is not made a second time.
    ``forget_stamps``: something completed before what caches may reflect, or was undone: they fill anew.
    Which commits of other writers it takes into account, say the `TimelineSeen` behind it; ``handled``, the
    newest completion time then, is for versions that knew no identities.
    """

    term: int
    generation: int
    to: int
    handled: str
    reason: str
    starts: dict[str, int] = {}
    forget_stamps: bool = False


class TimelineSeen(msgspec.Struct, frozen=True, tag="timeline_seen"):
    """The coordinator looked at the data timeline; see `epoch_protocol.seen`.

    ``start``: what the timeline started with. ``added``: identities that need no (further) rewind: those that
    the `Rewound` before it is about, and what moves no key. ``removed``: archived, or undone. ``anew``:
    what was known before is forgotten. A long look is several entries.
    """

    term: int
    start: str
    added: list[str] = []
    removed: list[str] = []
    anew: bool = False


class SnapshotTaken(msgspec.Struct, frozen=True, tag="snapshot_taken"):
    """A durable copy of the fold: state before this entry, ledger applied up to ``ledger_next``.

    ``batches``: per topic (`Topic` as text) and partition (as text) the position below which no message is
    needed once a later snapshot stands (of tombstones, which end by time: below which there is none);
    ``taken_ms`` wall clock. Entries of before have neither.
    """

    term: int
    path: str
    sha256: str
    ledger_next: int
    taken_ms: int = 0
    batches: dict[str, dict[str, int]] = {}


class TaggingPaused(msgspec.Struct, frozen=True, tag="tagging_paused"):
    """Tagging stops (or goes on: paused False). Nothing is lost; input waits in Kafka."""

    term: int
    paused: bool
    reason: str


LedgerEntry: TypeAlias = LanesClaimed | TransactionBegun | BatchShuffled | TransactionTagged
Decision: TypeAlias = (
    CoordinatorClaimed
    | EpochPlanned
    | CommitDecided
    | EpochCommitted
    | AttemptVoided
    | Rewound
    | TimelineSeen
    | SnapshotTaken
    | TaggingPaused
)

_ledger_decoder: msgspec.json.Decoder[LedgerEntry] = msgspec.json.Decoder(LedgerEntry)
_decision_decoder: msgspec.json.Decoder[Decision] = msgspec.json.Decoder(Decision)
_encoder = msgspec.json.Encoder()


def encode_entry(entry: LedgerEntry | Decision) -> bytes:
    """The wire form of an entry of either topic."""
    return _encoder.encode(entry)


def decode_ledger_entry(value: bytes) -> LedgerEntry:
    """Raises UnknownEntryError when the value is not an entry that this version knows."""
    return _decode(_ledger_decoder, value)


def decode_decision(value: bytes) -> Decision:
    """Raises UnknownEntryError when the value is not a decision that this version knows."""
    return _decode(_decision_decoder, value)


def _decode(decoder: msgspec.json.Decoder[_T], value: bytes) -> _T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise UnknownEntryError(
            f"unreadable protocol entry {value[:80]!r}: {error}; "
            "the topic was written by a newer Tidemark or by something else"
        ) from error
