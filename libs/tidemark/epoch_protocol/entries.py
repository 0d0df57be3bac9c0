"""Entries of the ledger and of the decisions topic, and their wire form.

Wire form: JSON (one object with a ``type`` tag), so that a person can read both topics with any Kafka client.
A released field is never renamed or given another meaning, unknown fields are ignored, and an unknown
``type`` is an error. Every claim carries `PROTOCOL_VERSION`. A version reads what lower versions wrote, and
refuses what a higher one claimed: it would not understand the entries that follow. Version 2 brought service
actions (`service_entries`).

Positions: ``start``/``next`` are consumer positions of a half-open range. ``first``/``last`` are the offsets
of the first and the last *delivered* message, both inclusive. Transaction markers use offsets, too, so the
difference of two positions is no number of messages.

Fields that earlier versions did not write have a default, which the docstrings name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar

import msgspec

from tidemark.epoch_protocol.errors import UnknownEntryError
from tidemark.epoch_protocol.kept_indexes import KeptPartitioned, KeptSecondary, KeptStats
from tidemark.epoch_protocol.service_entries import (
    ServiceCommitted,
    ServiceDecided,
    ServicePlanned,
    ServicesPaused,
    ServiceVoided,
)

PROTOCOL_VERSION: Final = 2
_T = TypeVar("_T")


class Stage(StrEnum):
    """The stage of the flow that a ledger entry belongs to. The lanes of the two stages are unrelated."""

    SHUFFLE = "shuffle"
    ASSIGN = "assign"


class Topic(StrEnum):
    """The batch topics, named by role; the name in Kafka is ``<table>.<role>``."""

    KEYED = "keyed"
    DATA = "data"
    INDEX = "index"
    TOMBSTONES = "tombstones"


class Consumed(msgspec.Struct, frozen=True):
    """The half-open range [start, next) of one lane that a transaction consumed."""

    lane: str
    start: int
    next: int


class Skipped(msgspec.Struct, frozen=True):
    """The offsets [first, last] of an input lane that an operator had the owner pass over unread. One dead
    letter gives the reason.
    """

    lane: str
    first: int
    last: int


class Produced(msgspec.Struct, frozen=True):
    """The batches that a transaction produced into one topic-partition.

    ``records`` rows are in ``batches`` messages at the offsets first..last; batches of other transactions may
    lie between them. ``checksum`` is the CRC-32 over the message values, chained in their order.
    """

    topic: Topic
    partition: int
    first: int
    last: int
    batches: int
    records: int
    checksum: int


class Counts(msgspec.Struct, frozen=True):
    """What became of the input records of a transaction (guarantee G8). ``updates`` includes the moves."""

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
"""Per count the name of one record that it counts. ``input`` has none: it is the sum of the others."""


class LanesClaimed(msgspec.Struct, frozen=True, tag="lanes_claimed"):
    """An owner takes lanes of one stage. The entry's offset is the *term* of all of them.

    ``generation`` is that of the newest rewind that the owner has read; it is 0 for the shuffle stage, whose
    output survives rewinds. ``ledger`` is the identity of the table that the owner works for, as the
    coordinator told it; "" in entries of earlier versions.
    """

    stage: Stage
    lanes: list[str]
    generation: int
    slot: int
    owner: str
    protocol: int = PROTOCOL_VERSION
    ledger: str = ""


class TransactionBegun(msgspec.Struct, frozen=True, tag="transaction_begun"):
    """The first message of every transaction: it registers the ledger with the broker before any batch."""

    stage: Stage
    slot: int
    nonce: str


class BatchShuffled(msgspec.Struct, frozen=True, tag="batch_shuffled"):
    """A transaction of the shuffle stage: it consumed input ranges, and produced keyed batches and dead
    letters.

    ``terms`` maps each consumed lane (``topic:partition``) to the term of the claim under which it was read.
    ``skipped`` ranges are parts of the consumed ones; each counts as one record and one dead letter.
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
    """A transaction of the assign stage: it consumed ranges of ``keyed``, and produced data, index and
    tombstone batches.

    ``terms`` maps each consumed lane to the term of the claim under which it was read. ``bytes`` is the size
    of all produced values. ``schema_id`` is the fingerprint of the rows' schema.
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
    """The place of a table. ``path``: the real path of its folder.

    ``file`` and ``identity`` are device and inode of its `hoodie.properties` and its `table-id`: they name
    the files whatever path leads there. "" where device and inode cannot be told. Other writers replace
    `hoodie.properties` now and then, and it has another inode then. Nobody replaces `table-id` while the
    ledger lives, so it decides where it is known; earlier versions left it "".
    """

    path: str
    file: str = ""
    identity: str = ""


class CoordinatorClaimed(msgspec.Struct, frozen=True, tag="coordinator_claimed"):
    """A coordinator takes over. The entry's offset is its term; later entries of older terms are ignored.

    ``ledger``: the identity of table and ledger, as in the table's folder. ``location``: where that folder
    was at the claim. Earlier versions wrote neither ("" and None). ``shards``: how many shards the table's
    record index has, which is what the topics and tombstones were made for; 0 in entries of earlier versions
    and of commands that claim a term only to end what is open.
    """

    owner: str
    protocol: int = PROTOCOL_VERSION
    ledger: str = ""
    location: TableLocation | None = None
    shards: int = 0


class EpochPlanned(msgspec.Struct, frozen=True, tag="epoch_planned"):
    """The epoch is the counting transactions with a ledger offset in (previous through, through].

    ``instant`` is None without rows. Writers read the file slices as of ``as_of``, the completion time of the
    newest completed data instant ("0": none). ``schema`` is the table's Avro schema for this commit.
    ``planned_ms`` is wall clock, never for safety. ``column_stats``, ``secondary``, ``partitioned``: what the
    table kept under the lock; None and none for a table without, and in entries of earlier versions.
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
    column_stats: KeptStats | None = None
    secondary: list[KeptSecondary] = []
    partitioned: KeptPartitioned | None = None


class CommitDecided(msgspec.Struct, frozen=True, tag="commit_decided"):
    """The point of no return: from here on the commit is a pure function of the decisions.

    ``statuses_path`` (below the table's base) and ``statuses_sha256`` address the stored write statuses.
    Earlier versions could replace a decision by another one: ``supersedes`` is the data completion time of
    the replaced decision, and "" in all entries of this version.
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
    """The epoch is in the table, or had no rows (``instant`` None). Owners promote its entries.

    ``action`` is the action of the completed instant; "" in entries of versions that kept no identities.
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

    When the attempt was decided, the entry takes the decision back, too: ``undecides`` is the data completion
    time of that decision, else "". This is allowed only while neither of its two commits is completed: see
    `Fold`.
    """

    term: int
    epoch: int
    attempt: int
    reason: str
    undecides: str = ""


class Rewound(msgspec.Struct, frozen=True, tag="rewound"):
    """Every transaction tagged after ``to`` (the last committed epoch's ``through``) is void and tagged anew.

    ``generation`` is the previous generation + 1. ``starts`` holds, for each lane without a committed
    position, where its first counting transaction began, so that nobody chooses the first position
    (`input.start`) a second time. ``forget_stamps``: an instant completed at or below what caches may
    reflect, or was undone, so caches must fill anew. The `TimelineSeen` that follows names the commits of
    other writers that this rewind takes into account; ``handled``, the newest completion time then, is for
    versions that knew no identities.
    """

    term: int
    generation: int
    to: int
    handled: str
    reason: str
    starts: dict[str, int] = {}
    forget_stamps: bool = False


class TimelineSeen(msgspec.Struct, frozen=True, tag="timeline_seen"):
    """The result of the coordinator's look at the data timeline; see `epoch_protocol.seen`.

    ``start``: the first requested time on the active timeline. ``added``: identities of instants that need no
    further rewind, because the `Rewound` before this entry took them into account or because they move no
    key. ``removed``: identities that were archived or undone. ``anew``: the entry replaces the whole set. A
    long result takes several entries.
    """

    term: int
    start: str
    added: list[str] = []
    removed: list[str] = []
    anew: bool = False


class SnapshotTaken(msgspec.Struct, frozen=True, tag="snapshot_taken"):
    """A durable copy of the fold: its state before this entry, with the ledger applied up to ``ledger_next``.

    ``batches`` maps topic (`Topic` as text) and partition (as text) to a position. No message below it is
    needed once a later snapshot exists; tombstones end by time, so for them it is the first offset that the
    partition has. ``taken_ms`` is wall clock. Earlier versions wrote neither.
    """

    term: int
    path: str
    sha256: str
    ledger_next: int
    taken_ms: int = 0
    batches: dict[str, dict[str, int]] = {}


class TaggingPaused(msgspec.Struct, frozen=True, tag="tagging_paused"):
    """Tagging stops (``paused``) or goes on. Nothing is lost: the input waits in Kafka."""

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
    | ServicePlanned
    | ServiceDecided
    | ServiceCommitted
    | ServiceVoided
    | ServicesPaused
)

_ledger_decoder: msgspec.json.Decoder[LedgerEntry] = msgspec.json.Decoder(LedgerEntry)
_decision_decoder: msgspec.json.Decoder[Decision] = msgspec.json.Decoder(Decision)
_encoder = msgspec.json.Encoder()


def encode_entry(entry: LedgerEntry | Decision) -> bytes:
    """The JSON of an entry of either topic."""
    return _encoder.encode(entry)


def decode_ledger_entry(value: bytes) -> LedgerEntry:
    """Raises UnknownEntryError when the value is not an entry that this version knows."""
    entry = _decode(_ledger_decoder, value)
    if isinstance(entry, LanesClaimed):
        refuse_newer(entry.protocol)
    return entry


def decode_decision(value: bytes) -> Decision:
    """Raises UnknownEntryError when the value is not a decision that this version knows."""
    entry = _decode(_decision_decoder, value)
    if isinstance(entry, CoordinatorClaimed):
        refuse_newer(entry.protocol)
    return entry


def refuse_newer(protocol: int) -> None:
    """Raises UnknownEntryError for what a higher version of the protocol wrote."""
    if protocol > PROTOCOL_VERSION:
        raise UnknownEntryError(
            f"a newer Tidemark has served this table: the topics have protocol version {protocol}, and this "
            f"version knows {PROTOCOL_VERSION}; run the same Tidemark version everywhere"
        )


def _decode(decoder: msgspec.json.Decoder[_T], value: bytes) -> _T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise UnknownEntryError(
            f"unreadable protocol entry {value[:80]!r}: {error}; "
            "the topic was written by a newer Tidemark or by something else"
        ) from error
