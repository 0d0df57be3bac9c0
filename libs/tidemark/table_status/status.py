"""The state of a table at one moment: services, lag, the epoch in flight, warnings.

Units: a field whose name ends with `_ms` is a duration in milliseconds, or a time in milliseconds since 1970
by the coordinator's clock (`at_ms`, `since_ms`, `ended_ms`). Sizes are bytes, offsets are Kafka's.

The order of the fields is the order in the JSON document. A part whose source does not answer is None or
empty, and `Status.missing` names the part and the reason.
"""

from __future__ import annotations

import msgspec

from tidemark.epoch_protocol.entries import Counts
from tidemark.table_status.epochs import EpochRecord
from tidemark.table_status.services import OwnServices
from tidemark.table_status.warnings import StatusWarning


class CoordinatorState(msgspec.Struct, frozen=True, kw_only=True):
    """What the coordinator does.

    ``term`` is -1 until it has claimed the table. ``halted`` is the reason why nothing is committed; with
    ``stopped`` it stays so for the life of the process, else ``blocked_epoch`` is the epoch that was given up
    and that `tidemark epoch retry` takes up again (from time to time it is tried again by itself).
    ``trouble``: the table's storage or Kafka refuses, and the coordinator tries again. ``rewinds``: reasons
    of the rewinds since its start, oldest first.
    """

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
    """A process of an assigner in one stage, with the slot and the lanes that it holds.

    ``figures`` are the numbers that the process reports with its lease, by name.
    """

    slot: int
    process: str
    address: str
    lanes: list[str]
    uncommitted_entries: int
    figures: dict[str, float]


class ServicesState(msgspec.Struct, frozen=True):
    """The members of both stages, in the order of their slots."""

    shuffle: list[MemberState] = []
    assign: list[MemberState] = []


class WriterState(msgspec.Struct, frozen=True):
    """``asked``: how many times a writer asked for work; ``process``: the writer that asked last."""

    asked: int
    process: str


class GaveUp(msgspec.Struct, frozen=True):
    """A process that ended for a reason that a restart does not cure."""

    stage: str
    process: str
    reason: str
    at_ms: int


class StoppedLaneState(msgspec.Struct, frozen=True):
    """A lane that is not read any further, with the fields of `epoch_protocol.stopped_lanes.StoppedLane`.

    ``reason`` is a text here and not a `StopReason`, because a newer coordinator may know other reasons.
    """

    stage: str
    lane: str
    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    since_ms: int


class DeadLetterOffsets(msgspec.Struct, frozen=True):
    """How many offsets of the dead-letter topic exist, are the next that Kafka deletes, and are deleted.

    These are more than dead letters: notes of replays and transaction markers take offsets, too.
    """

    kept: int
    expiring: int
    deleted: int


class OpenTransactionState(msgspec.Struct, frozen=True):
    """The oldest open transaction on the ledger, where it begins, and the process that holds its slot.

    ``process`` and ``address`` are None when no process holds the slot.
    """

    stage: str
    slot: int
    process: str | None = None
    address: str | None = None
    ledger_offset: int = 0
    age_ms: int = 0


class TimelineState(msgspec.Struct, frozen=True):
    """The table services (compaction, log compaction, clean, clustering) that one timeline shows.

    ``timeline_files``: number of files of the active timeline. ``pending``: file names of services that are
    not completed. ``last_compaction``, ``last_clean``: completion times; None: none on the active timeline.
    """

    timeline_files: int
    pending: list[str]
    last_compaction: str | None = None
    last_clean: str | None = None


class TableServices(msgspec.Struct, frozen=True):
    """The table services of the table and of its metadata table, and who runs them (``run_by``).

    ``scheduled_by_tidemark``: the kinds that Tidemark runs, of which ``own`` has the state. If the timelines
    cannot be listed, ``table`` is None and ``warnings`` has the reason.
    """

    run_by: str = ""
    scheduled_by_tidemark: list[str] = []
    table: TimelineState | None = None
    metadata_table: TimelineState | None = None
    warnings: list[str] = []
    own: OwnServices = OwnServices()


class PausedState(msgspec.Struct, frozen=True):
    """Whether `tidemark pause` stopped tagging, and the reason that was given."""

    paused: bool
    reason: str


class LastCommit(msgspec.Struct, frozen=True):
    """The last committed epoch, with its instant and completion time.

    ``detail`` is the newest epoch of the coordinator's history. That may be the one in flight.
    """

    epoch: int
    instant: str | None = None
    completion: str | None = None
    detail: EpochRecord | None = None


class InFlight(msgspec.Struct, frozen=True, kw_only=True):
    """The epoch that is planned and not committed (``epoch`` None: there is none), and the uncommitted input.

    ``not_reported``: texts about what the writer has not reported yet. ``transactions`` and ``bytes``: of all
    transactions that count and are not committed, whether or not the epoch covers them.
    """

    epoch: int | None = None
    attempt: int | None = None
    instant: str | None = None
    age_ms: int | None = None
    not_reported: list[str]
    transactions: int
    bytes: int


class Lag(msgspec.Struct, frozen=True):
    """Sums over all input partitions. An offset that is not shuffled is in both counts."""

    input_offsets_not_shuffled: int
    input_offsets_not_committed: int


class Records(msgspec.Struct, frozen=True):
    """Counts of records since the ledger began."""

    shuffled: int
    dead_letters: int
    committed: Counts
    uncommitted: Counts


class FileGroups(msgspec.Struct, frozen=True):
    """The file groups that take inserts: how many, the bytes of their newest slices, and the size up to which
    inserts fill one.
    """

    file_groups: float
    bytes: float
    target_bytes: float


class VerifiedUpTo(msgspec.Struct, frozen=True):
    """The state of the table that the last verification without differences read."""

    as_of: str | None = None
    epoch: int | None = None


class Differences(msgspec.Struct, frozen=True):
    """The number of differences of one kind, and the first ones as texts."""

    count: int
    examples: list[str]


class LastVerification(msgspec.Struct, frozen=True, kw_only=True):
    """How the last verification ended. Without a verdict ``agrees`` is None, and ``error`` has the reason."""

    agrees: bool | None = None
    as_of: str | None = None
    seconds: float
    ended_ms: int
    differences: dict[str, Differences] = {}
    error: str | None = None


class VerificationState(msgspec.Struct, frozen=True):
    """The verifications that the coordinator runs as a process beside the epochs.

    ``every_commits``: `verify.every_commits`, 0 for only on request. ``commits_since``: commits since the
    last one began.
    """

    every_commits: int
    commits_since: int
    running: bool
    verified: VerifiedUpTo | None = None
    last: LastVerification | None = None


class InputTopicState(msgspec.Struct, frozen=True):
    """An input topic. ``id`` is Kafka's id of it, ``stopped`` the reason why it is not read.

    ``incarnation`` and ``partitions_before``: see `epoch_protocol.input_topics.InputTopic`.
    """

    partitions: int
    partitions_before: int
    id: str
    incarnation: int
    stopped: str | None = None


class DroppedFieldState(msgspec.Struct, frozen=True):
    """A field that input records have and `table.schema` lacks; ``records`` were taken without the field."""

    topic: str
    field: str
    records: int


class MissingPart(msgspec.Struct, frozen=True):
    """A part of the status whose source does not answer. ``part`` is the field's name in `Status`."""

    part: str
    reason: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The whole status.

    None means: ``dead_letters``: not known yet; ``open_transaction``: there is none, or it is `missing`;
    ``verification``: periodic verification is switched off, and nobody asked for one.
    """

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
