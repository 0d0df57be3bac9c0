"""Collects `tidemark status`: members and lanes, lag, the epoch in flight, warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.placement import Placement
from tidemark.commit_coordinator.calls.terminal_failures import TerminalFailure
from tidemark.commit_coordinator.commit.context import TakenOut
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.dead_letters.retention import expiry_warning
from tidemark.commit_coordinator.input.stopped_lanes import stopped_states, stopped_warnings
from tidemark.commit_coordinator.input.watch import InputWatch
from tidemark.commit_coordinator.opening.configured_stats import OtherStats
from tidemark.commit_coordinator.status.history import EpochHistory
from tidemark.commit_coordinator.status.kafka_probe import ASK_S, KafkaProbe
from tidemark.commit_coordinator.status.open_transactions import OpenTransaction
from tidemark.commit_coordinator.status.table_services import service_warnings, table_services
from tidemark.commit_coordinator.verification.rounds import PeriodicVerification
from tidemark.epoch_protocol.dropped_fields import DROPPED_STAT, DroppedField, dropped_fields
from tidemark.epoch_protocol.entries import Stage
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.hudi_format.errors import HudiFormatError
from tidemark.hudi_format.index_definitions import COLUMN_STATS
from tidemark.hudi_format.metadata_table.own_stats import lost_stats
from tidemark.hudi_format.metadata_table.partitions.secondary_index import SECONDARY_PREFIX
from tidemark.hudi_format.metadata_table.secondary_admission import made_by_writes
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.ledger_client.dead_letters import LetterRetention
from tidemark.stream_runtime.clock import Clock
from tidemark.table_status.messages import status_document
from tidemark.table_status.status import (
    CoordinatorState,
    DeadLetterOffsets,
    DroppedFieldState,
    FileGroups,
    GaveUp,
    InFlight,
    Lag,
    LastCommit,
    MemberState,
    MissingPart,
    OpenTransactionState,
    PausedState,
    Records,
    ServicesState,
    Status,
    TableServices,
    WriterState,
)
from tidemark.table_status.warnings import StatusWarning, WarningKind

_FIELDS_SHOWN: Final = 20
_TAKEN_OUT_MS: Final = 3_600_000
_MAKE_STATS: Final = (
    "`tidemark index create --column-stats` with their columns makes them again from the rows, "
    "`tidemark table adopt --drop-stats` does without them."
)
"""For so long a warning tells of stats that were taken out."""
_INDEX_TAKEN_OUT_MS: Final = 24 * _TAKEN_OUT_MS
"""… and of an index, which somebody has to make again, unless it is there by then."""
_OF_KAFKA: Final = ("lag", "open_transaction")


@dataclass(frozen=True)
class StatusSource:
    """The objects that a status is collected from."""

    table: str
    path: str
    board: ViewBoard
    members: Members
    history: EpochHistory
    placement: Placement
    storage: Storage
    clock: Clock
    kafka: KafkaProbe
    writer_asked: Callable[[], int]
    verification: PeriodicVerification
    writer: Callable[[], str]
    not_reported: Callable[[], list[str]]
    open_transaction: Callable[[], OpenTransaction | None]
    terminal_failures: Callable[[], list[TerminalFailure]]
    lease_ms: int
    stopped_lanes: Callable[[], Sequence[StoppedLane]] = tuple
    dead_letters: Callable[[], LetterRetention | None] = lambda: None
    inputs: InputWatch | None = None
    refused: Callable[[], Mapping[str, int]] = dict
    """Reason -> number of refused calls (`tidemark.stream_runtime.security.access`)."""
    unfilled_columns: Callable[[], Sequence[str]] = list
    """Columns of the table that `table.schema` lacks."""
    large_shards: Callable[[], Sequence[str]] = list
    """Warnings of shards of the record index with too many entries."""
    other_stats: Callable[[], OtherStats | None] = lambda: None
    """How the table's column stats differ from `table.index.column_stats`."""

    def take(self, kafka_s: float = ASK_S) -> Status:
        """The status now. ``kafka_s``: how long Kafka may take; what it does not say is in `missing`."""
        view = self.board.current
        newest = self.history.newest(1)
        facts = self.kafka.ask(view, kafka_s)
        blocker, dead_letters = self._blocker(facts.open_transaction), self.dead_letters()
        services, left, stopped = self._table_services(view), self.terminal_failures(), self.stopped_lanes()
        dropped = self._dropped()
        missing = [MissingPart(part, facts.missing) for part in _OF_KAFKA if facts.missing]
        missing += [MissingPart("table_services", warning.text) for warning in services.warnings]
        refused_letters = view.dead_letters + view.committed.dead_letters + view.uncommitted.dead_letters
        return Status(
            table=self.table,
            path=self.path,
            coordinator=self._coordinator(view),
            services=ServicesState(self._services(Stage.SHUFFLE), self._services(Stage.ASSIGN)),
            writer=WriterState(self.writer_asked(), self.writer()),
            gave_up=[GaveUp(e.stage.value, e.process_id, e.reason, e.at_ms) for e in left],
            stopped_lanes=stopped_states(stopped),
            dead_letters=DeadLetterOffsets(**asdict(dead_letters)) if dead_letters else None,
            open_transaction=blocker,
            table_services=services.state,
            paused=PausedState(view.paused, view.pause_reason),
            last_commit=LastCommit(view.epoch, view.instant, view.completion, newest[0] if newest else None),
            in_flight=self._in_flight(view),
            lag=Lag(**facts.lag) if facts.lag is not None else None,
            records=Records(view.shuffled_records, refused_letters, view.committed, view.uncommitted),
            file_groups=FileGroups(**self.placement.stats()),
            verification=self.verification.state(),
            refused_calls=dict(self.refused()),
            input_topics=self.inputs.states() if self.inputs is not None else {},
            dropped_fields=[DroppedFieldState(*field) for field in dropped],
            missing=missing,
            warnings=[
                *_warnings(WarningKind.KAFKA_SILENT, _kafka_silent(facts.missing)),
                *self._warnings(view),
                *_warnings(WarningKind.KAFKA_REFUSES, _untrimmed(view.untrimmed)),
                *_warnings(WarningKind.UNFILLED_COLUMNS, self._unfilled()),
                *_warnings(WarningKind.DROPPED_FIELDS, dropped_warnings(dropped)),
                *stopped_warnings(lane for lane in stopped if not lane.reason.is_of_topic),
                *_warnings(WarningKind.DEAD_LETTERS_EXPIRE, expiry_warning(dead_letters)),
                *(self.inputs.warnings() if self.inputs is not None else []),
                *self.verification.warnings(),
                *_warnings(WarningKind.PROCESS_GAVE_UP, map(_gave_up, left)),
                *_warnings(WarningKind.READERS_BLOCKED, blocked_readers(blocker, self.lease_ms)),
                *_warnings(WarningKind.LARGE_SHARDS, self.large_shards()),
                *_warnings(WarningKind.OTHER_STATS, self._other_stats()),
                *services.warnings,
                *service_warnings(view.services),
            ],
        )

    def document(self, kafka_s: float = ASK_S) -> dict[str, Any]:
        """The status as `tidemark status --json` prints it."""
        return status_document(self.take(kafka_s))

    def _coordinator(self, view: CoordinatorView) -> CoordinatorState:
        return CoordinatorState(
            term=view.term,
            doing=view.doing,
            waiting_for=view.waiting_for,
            halted=view.halted,
            stopped=view.stopped,
            blocked_epoch=view.blocked_epoch,
            trouble=view.trouble,
            generation=view.generation,
            rewinds=self.history.rewinds(),
        )

    def _services(self, stage: Stage) -> list[MemberState]:
        lanes = self.members.leases(stage)
        return [
            MemberState(
                member.slot,
                member.process_id,
                member.address,
                sorted(name for name, (_, slot) in lanes.items() if slot == member.slot),
                member.uncommitted_entries,
                {n: v for n, v in member.stats.items() if not n.startswith(DROPPED_STAT)},
            )
            for member in self.members.members(stage)
        ]

    def _in_flight(self, view: CoordinatorView) -> InFlight:
        return InFlight(
            epoch=view.planned_epoch,
            attempt=view.planned_attempt,
            instant=view.planned_instant,
            age_ms=self.clock.now_ms() - view.planned_ms if view.planned_ms else None,
            not_reported=self._not_reported(),
            transactions=view.uncommitted_transactions,
            bytes=view.uncommitted_bytes,
        )

    def _warnings(self, view: CoordinatorView) -> Iterator[StatusWarning]:
        if view.halted:
            yield StatusWarning(WarningKind.HALTED, f"halted: {view.halted}")
        if view.trouble:
            by_kafka = view.trouble_of_kafka
            kind = WarningKind.KAFKA_REFUSES if by_kafka else WarningKind.STORAGE_REFUSES
            yield StatusWarning(kind, view.trouble)
        for why in (view.lock_held, view.awaited):
            if why:
                yield StatusWarning(WarningKind.COMMITS_WAIT, f"commits wait: {why}")
        yield from _warnings(WarningKind.STATS_TAKEN_OUT, self._stats_taken_out(view))
        for gone in self._indexes_taken_out(view):
            yield StatusWarning(WarningKind.INDEX_TAKEN_OUT, f"{gone.names}: {gone.reason}")
        yield from _warnings(WarningKind.INDEX_MADE_BY_A_WRITE, self._made_by_writes())
        for stage in Stage:
            idle = [lane for lane, (_, slot) in self.members.leases(stage).items() if slot is None]
            if idle:
                text = f"{len(idle)} {stage.value} lanes have no owner: start an assigner"
                yield StatusWarning(WarningKind.LANES_WITHOUT_OWNER, text)
            for member in self.members.members(stage):
                yield from _waits(f"{stage.value} slot {member.slot}", member.stats)
        if view.planned_epoch is not None and not self.writer_asked():
            text = "no writer has asked for work yet: start one, or wait until its Spark is up"
            yield StatusWarning(WarningKind.NO_WRITER, text)

    def _stats_taken_out(self, view: CoordinatorView) -> list[str]:
        """Those that others made are told for an hour. Column stats that were ours somebody wanted: they are
        told until there are others, also by a coordinator that did not take them out.
        """
        try:
            lost = lost_stats(self.storage, read_table_config(self.storage))
        except (OSError, HudiFormatError):
            lost = ""  # what is wrong with these files other warnings say
        told = view.taken_out
        if told is not None and view.at_ms - told.at_ms < _TAKEN_OUT_MS:
            names, reason = told.names, told.reason
        elif lost:
            names, reason = COLUMN_STATS, lost
        else:
            return []
        again = f" {_MAKE_STATS}" if lost else ""
        return [
            f"{names}: {reason}, and they were taken out of the table again.{again} Give other writers the "
            "options that `tidemark table describe` prints"
        ]

    def _indexes_taken_out(self, view: CoordinatorView) -> list[TakenOut]:
        """Those that the table does not list again. The table is asked, since an idle one has no commit that
        would find them.
        """
        told = [gone for gone in view.indexes_taken_out if view.at_ms - gone.at_ms < _INDEX_TAKEN_OUT_MS]
        try:
            listed = read_table_config(self.storage).metadata_partitions if told else frozenset()
        except (OSError, HudiFormatError):
            return told
        return [gone for gone in told if gone.names not in listed]

    def _made_by_writes(self) -> list[str]:
        try:
            names = made_by_writes(self.storage)
        except (OSError, HudiFormatError):
            return []  # what is wrong with these files other warnings say
        return [
            f"{name} was made by a write of another engine, and the rows of that write are not in it: "
            f"queries by it lose them. `tidemark index repair {name.removeprefix(SECONDARY_PREFIX)}` "
            "compares it with all rows and puts it right"
            for name in names
        ]

    def _unfilled(self) -> list[str]:
        names = ", ".join(self.unfilled_columns())
        if not names:
            return []
        return [
            f"the table has columns that table.schema lacks ({names}): rows that Tidemark writes have no "
            "value there, other rows keep theirs. Add them to table.schema and restart, if the input has them"
        ]

    def _dropped(self) -> list[DroppedField]:
        """The input fields that live members drop, by topic; in a topic the most frequent field first."""
        counts: Counter[tuple[str, str]] = Counter()
        for stage in Stage:
            for member in self.members.members(stage):
                for field in dropped_fields(member.stats):
                    counts[field.topic, field.field] += field.records
        dropped = [DroppedField(*place, records) for place, records in counts.items()]
        return sorted(dropped, key=lambda field: (field.topic, -field.records, field.field))

    def _table_services(self, view: CoordinatorView) -> _Services:
        try:
            state = table_services(self.storage, view.services)
            return _Services(state, list(_warnings(WarningKind.TIMELINE_LONG, state.warnings)))
        except (OSError, HudiFormatError) as error:
            # `tidemark status` is how an operator learns that the storage refuses, so it must still answer.
            text = f"the table's timelines cannot be listed: {error}"
            unreadable = StatusWarning(WarningKind.TIMELINES_UNREADABLE, text)
            return _Services(TableServices(warnings=[text], own=view.services), [unreadable])

    def _other_stats(self) -> list[str]:
        try:
            other = self.other_stats()
        except (OSError, HudiFormatError) as error:
            return [f"it is unknown whether the table has the stats of table.index.column_stats: {error}"]
        return [] if other is None else [f"{other.text}. {other.remedy}"]

    def _not_reported(self) -> list[str]:
        try:
            return self.not_reported()
        except (OSError, HudiFormatError) as error:
            return [f"writer {self.writer()} (the table's folder cannot be listed: {error})"]

    def _blocker(self, oldest: OpenTransaction | None) -> OpenTransactionState | None:
        """The oldest open transaction, and the process in its slot."""
        if oldest is None:
            return None
        members = [member for member in self.members.members(oldest.stage) if member.slot == oldest.slot]
        process, address = (members[0].process_id, members[0].address) if members else (None, None)
        return OpenTransactionState(
            oldest.stage.value, oldest.slot, process, address, oldest.offset, oldest.age_ms
        )


@dataclass(frozen=True)
class _Services:
    state: TableServices
    warnings: list[StatusWarning]


def _warnings(kind: WarningKind, texts: Iterable[str]) -> Iterator[StatusWarning]:
    return (StatusWarning(kind, text) for text in texts)


def _kafka_silent(missing: str) -> list[str]:
    return [f"lag and open transactions are unknown: {missing}"] if missing else []


def _untrimmed(why: str) -> list[str]:
    told = (
        "committed records are not deleted from the table's topics, which grow; the next trimming tries again"
    )
    return [f"{told}: {why}"] if why else []


def _waits(slot: str, figures: Mapping[str, float]) -> Iterator[StatusWarning]:
    """What the process in this slot waits for, by the figures that it reports."""
    if figures.get("input_waits"):
        text = f"{slot} waits before it can decode its input (the schema registry): its log says why"
        yield StatusWarning(WarningKind.INPUT_WAITS, text)
    if figures.get("kafka_refuses"):
        text = f"Kafka refuses {slot} a right, its login or a topic: its log says which. It tries again"
        yield StatusWarning(WarningKind.KAFKA_REFUSES, text)


def _gave_up(left: TerminalFailure) -> str:
    return f"{left.stage.value} stage: {left.process_id} has stopped: {left.reason}"


def dropped_warnings(dropped: Iterable[DroppedField]) -> list[str]:
    """One warning for each topic. ``dropped`` is sorted by topic."""
    warnings = []
    for topic, of_topic in groupby(dropped, lambda field: field.topic):
        fields = list(of_topic)
        named = ", ".join(f"{field.field} ({field.records} records)" for field in fields[:_FIELDS_SHOWN])
        more = len(fields) - _FIELDS_SHOWN
        warnings.append(
            f"topic {topic} has fields that table.schema lacks, and records are taken without them: {named}"
            f"{f' and {more} more' if more > 0 else ''}. Add them to table.schema and restart; if nobody "
            "wants them, say so: input.unknown_fields: ignore"
        )
    return warnings


def blocked_readers(blocker: OpenTransactionState | None, lease_ms: int) -> list[str]:
    """The warning about an open transaction that is older than a lease: its process may be frozen."""
    if blocker is None or blocker.age_ms < lease_ms:
        return []
    who = f"{blocker.process} at {blocker.address}" if blocker.process else "no process has that slot now"
    return [
        f"slot {blocker.slot} of the {blocker.stage} stage ({who}) holds all readers back: its "
        f"transaction is open for {blocker.age_ms / 1000:.0f} s. Is it frozen? It is fenced once its lease "
        "has ended"
    ]
