"""The table at one moment: who is there, what is behind, what is in flight, what warns.

Times are milliseconds since 1970 of the coordinator's clock, durations milliseconds where a name ends with
`_ms`, sizes bytes, offsets Kafka's. Fields stand in the order in which `documents` writes them. What a part
does not know is None; `missing` says why.
"""

from __future__ import annotations

import msgspec

from tidemark.epoch_protocol.entries import Counts
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.warnings import StatusWarning


class CoordinatorState(msgspec.Struct, frozen=True, kw_only=True):
    """``term``: -1 until it has claimed. ``halted``: why nothing is committed; ``stopped``: for good."""

    term: int
    doing: str
    waiting_for: str
    halted: str | None = None
    stopped: bool
    blocked_epoch: int | None = None
    trouble: str | None = None
    generation: int
    rewinds: list[str]


class MemberState(msgspec.Struct, frozen=True):
    """An assigner's process in one stage. ``figures``: as it reports them."""

    slot: int
    process: str
    address: str
    lanes: list[str]
    uncommitted_entries: int
    figures: dict[str, float]


class ServicesState(msgspec.Struct, frozen=True):
    """Members by slot."""

    shuffle: list[MemberState] = []
    assign: list[MemberState] = []


class WriterState(msgspec.Struct, frozen=True):
    """``asked``: how often a writer asked for work; ``process``: the last one."""

    asked: int
    process: str


class GaveUp(msgspec.Struct, frozen=True):
    """A process that left and will not come back by itself."""

    stage: str
    process: str
    reason: str
    at_ms: int


class StoppedLaneState(msgspec.Struct, frozen=True):
    """As `epoch_protocol.stopped_lanes.StoppedLane`; a later version may know other reasons."""

    stage: str
    lane: str
    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    since_ms: int


class DeadLetterOffsets(msgspec.Struct, frozen=True):
    """Of the dead-letter topic: notes of replays and markers of transactions are among them."""

    kept: int
    expiring: int
    deleted: int


class OpenTransactionState(msgspec.Struct, frozen=True):
    """The oldest open transaction, and the process in its slot."""

    stage: str
    slot: int
    process: str | None = None
    address: str | None = None
    ledger_offset: int = 0
    age_ms: int = 0


class TimelineState(msgspec.Struct, frozen=True):
    """Of table services, as a timeline shows them."""

    timeline_files: int
    pending: list[str]
    last_compaction: str | None = None
    last_clean: str | None = None


class TableServices(msgspec.Struct, frozen=True):
    """Another engine's work; `table` None: the timelines cannot be listed, ``warnings`` says why."""

    run_by: str = ""
    scheduled_by_tidemark: list[str] = []
    table: TimelineState | None = None
    metadata_table: TimelineState | None = None
    warnings: list[str] = []


class PausedState(msgspec.Struct, frozen=True):
    """Whether tagging is stopped by `tidemark pause`, and why."""

    paused: bool
    reason: str


class LastCommit(msgspec.Struct, frozen=True):
    """``detail``: of the newest epoch that is held, which may be in flight."""

    epoch: int
    instant: str | None = None
    completion: str | None = None
    detail: EpochRecord | None = None


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch that is planned and not committed; None: there is none."""

    epoch: int | None = None
    attempt: int | None = None
    instant: str | None = None
    age_ms: int | None = None
    not_reported: list[str]
    transactions: int
    bytes: int


class Lag(msgspec.Struct, frozen=True):
    """Over all input partitions; what is not shuffled is not committed either."""

    input_offsets_not_shuffled: int
    input_offsets_not_committed: int


class Records(msgspec.Struct, frozen=True):
    """Since the ledger began."""

    shuffled: int
    dead_letters: int
    committed: Counts
    uncommitted: Counts


class FileGroups(msgspec.Struct, frozen=True):
    """Those that may be leased; `target_bytes`: up to where base files grow."""

    file_groups: float
    bytes: float
    target_bytes: float


class VerifiedUpTo(msgspec.Struct, frozen=True):
    """What the last verification that agreed saw."""

    as_of: str | None = None
    epoch: int | None = None


class Differences(msgspec.Struct, frozen=True):
    """Of one kind; ``examples``: the first ones."""

    count: int
    examples: list[str]


class LastVerification(msgspec.Struct, frozen=True, kw_only=True):
    """``agrees`` None: it came to no verdict, ``error`` says why."""

    agrees: bool | None = None
    as_of: str | None = None
    seconds: float
    ended_ms: int
    differences: dict[str, Differences] = {}
    error: str | None = None


class VerificationState(msgspec.Struct, frozen=True):
    """Verifications beside the epochs."""

    every_commits: int
    commits_since: int
    running: bool
    verified: VerifiedUpTo | None = None
    last: LastVerification | None = None


class InputTopicState(msgspec.Struct, frozen=True):
    """``stopped``: why it is not read."""

    partitions: int
    partitions_before: int
    id: str
    incarnation: int
    stopped: str | None = None


class DroppedFieldState(msgspec.Struct, frozen=True):
    """A field that records have and `table.schema` lacks; ``records``: taken without it."""

    topic: str
    field: str
    records: int


class MissingPart(msgspec.Struct, frozen=True):
    """A part whose source does not answer, by its name here."""

    part: str
    reason: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole. ``verification`` None: switched off, and nobody asked."""

    table: str
    path: str
    coordinator: CoordinatorState
    services: ServicesState
    writer: WriterState
    gave_up: list[GaveUp] = []
    stopped_lanes: list[StoppedLaneState] = []
    dead_letters: DeadLetterOffsets | None = None
    open_transaction: OpenTransactionState | None = None
    table_services: TableServices = TableServices()
    paused: PausedState
    last_commit: LastCommit
    in_flight: InFlight
    lag: Lag | None = None
    records: Records
    file_groups: FileGroups | None = None
    verification: VerificationState | None = None
    refused_calls: dict[str, int] = {}
    input_topics: dict[str, InputTopicState] = {}
    dropped_fields: list[DroppedFieldState] = []
    missing: list[MissingPart] = []
    warnings: list[StatusWarning] = []
