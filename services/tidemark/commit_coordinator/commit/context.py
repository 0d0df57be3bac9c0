"""The ports and facts that every effect of the coordinator works with; made once in a term."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from tidemark.commit_coordinator.commit.decisions_log import DecisionsLog
from tidemark.commit_coordinator.commit.hidden_bases import HiddenBases
from tidemark.commit_coordinator.commit.index_at_rest import AskedRest
from tidemark.commit_coordinator.commit.index_shards import IndexShards
from tidemark.commit_coordinator.commit.input_positions import InputPositions
from tidemark.commit_coordinator.commit.kept_indexes import IndexLayouts, StatsLayouts
from tidemark.commit_coordinator.commit.step_times import StepTimes
from tidemark.commit_coordinator.commit.table_state import Rollbacks
from tidemark.commit_coordinator.failpoints import CoordinatorFailpoint
from tidemark.epoch_protocol.fold import Fold
from tidemark.hudi_format.metadata_table.begun_groups import BegunFile
from tidemark.hudi_format.metadata_table.folded_entries import FoldedEntries
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.replaced_entries import ReplacedEntries
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.publication.file_times import file_time_ms
from tidemark.hudi_format.publication.port import Term
from tidemark.hudi_format.publication.table_lock import TableLock
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_view import TableView
from tidemark.hudi_format.timeline import Action, Timeline
from tidemark.hudi_format.timeline.avro_records import WriteStat
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource


class Report(msgspec.Struct, frozen=True):
    """The write statuses of an attempt: data files, log files of the metadata table, milliseconds by step.

    ``tickets``: for the data files that become visible only when they are published; none on a file system.
    ``files_without_stats``: how many data files have rows and no column stats, because a column has no range
    there. ``secondary_groups``: each secondary index that the writer was told of -> how many of its file
    groups got entries. ``begun``: all files of the groups of a partitioned record index that the commit
    begins, which nobody has made yet. `stored_report` has the form in which a report is stored.
    """

    data: tuple[WriteStat, ...]
    metadata_logs: tuple[MetadataLogFile, ...]
    timings_ms: dict[str, float] = {}
    tickets: tuple[Ticket, ...] = ()
    files_without_stats: int = 0
    secondary_groups: dict[str, int] = {}
    begun: tuple[BegunFile, ...] = ()

    def logs_of(self, partition: str) -> list[MetadataLogFile]:
        """The log files of one partition of the metadata table."""
        return [log for log in self.metadata_logs if log.partition == partition]

    def unpublished(self) -> tuple[Ticket, ...]:
        """The tickets of all files that are not visible yet, data files first."""
        return (*self.tickets, *(log.ticket for log in self.metadata_logs if log.ticket is not None))


@dataclass(frozen=True)
class TableFacts:
    """Facts about the table that do not change during a term.

    ``action``: the action of our commits on the data timeline. ``keyed_topic``: the topic that the assign
    stage reads: `<table>.keyed`, or the input topic if producers partition it by lane.
    """

    name: str
    action: Action
    keyed_topic: str
    num_shards: int
    schema: Callable[[Sequence[str], Timeline], str]
    """The union of the schemas with these fingerprints and of those that the data timeline's commits have, as
    Avro JSON."""
    inputs: InputPositions = field(default_factory=InputPositions)
    accepted_properties: Collection[str] = ()
    """`table.accept_properties`: names that hoodie.properties may have besides those that we know."""
    partition_shards: int = 0
    """With a partitioned record index: how many file groups a commit of ours begins for a data partition that
    has none. 0 with a global one, whose shards are ``num_shards``."""


@dataclass(frozen=True)
class TakenOut:
    """Indexes that were taken out of the table: their names, why, and when (Unix epoch, milliseconds).

    Of column stats ``reason`` is what another writer did to them, of an index that nobody builds what people
    have to know and do.
    """

    names: str
    reason: str
    at_ms: int


@dataclass(frozen=True)
class UnfinishedIndex:
    """An index that another writer has not finished: its name, and since when this coordinator has seen it.
    That is in seconds of the monotonic clock: a wall clock that is set forward makes no builder dead.
    """

    name: str
    since_s: float


@dataclass(frozen=True)
class PreparedCommit:
    """What this process prepared of an attempt's commit before it took the lock: the tickets of the files
    that the attempt begins in a partitioned record index, and the content of its commit in the metadata
    table. ``sha256``: of the document that has the report, once it is stored, which need not be read again.
    """

    instant: str
    report: Report
    tickets: Sequence[Ticket]
    metadata: bytes
    sha256: str = ""


@dataclass
class Context:
    """Ports and facts of one term.

    ``publishing``: the right to make files in this term. ``hit``: called with a failpoint just before and
    after a step. ``steps`` times the steps. ``lock_wait_ms``: how long to wait for the table's lock.
    ``index_build_ms``: how long another engine may build an index.
    ``view``: the last `TableView`, so that the next one reads only the plans that are new. ``taken_out``:
    the stats that were last taken out of the table in this term, for people; ``indexes_taken_out``: by name
    the other indexes, which nobody built or which lack entries, until a commit finds them listed again.
    ``unfinished``: which index the last commit waited for. ``rest``: what a command that makes an index asked
    for last.
    ``prepared``: what is done already of the next commit. ``undone_until``: when the last rollback or restore
    was completed behind which left file groups were looked for, None before the first look.
    """

    table: TableFacts
    publishing: Term
    clock: Clock
    ids: IdSource
    log: DecisionsLog
    instants: InstantGenerator
    fold: Callable[[], Fold]
    lock_wait_ms: int
    hit: Callable[[CoordinatorFailpoint], None]
    index_build_ms: int
    view: TableView | None = None
    taken_out: TakenOut | None = None
    indexes_taken_out: dict[str, TakenOut] = field(default_factory=dict)
    unfinished: UnfinishedIndex | None = None
    rest: AskedRest | None = None
    prepared: PreparedCommit | None = None
    undone_until: str | None = None
    steps: StepTimes = field(init=False)
    rollbacks: Rollbacks = field(init=False)
    shards: IndexShards = field(init=False)
    hidden_bases: HiddenBases = field(init=False)
    replaced_entries: ReplacedEntries = field(init=False)
    folded_entries: FoldedEntries = field(init=False)
    stats: StatsLayouts = field(init=False)
    indexes: IndexLayouts = field(init=False)

    def __post_init__(self) -> None:
        self.steps = StepTimes(self.clock)
        self.rollbacks = Rollbacks(self.storage)
        self.hidden_bases = HiddenBases(self.note_taken_out)
        self.replaced_entries = ReplacedEntries(self.storage)
        self.folded_entries = FoldedEntries(self.storage)
        self.shards = IndexShards(
            self.storage, self.table.num_shards, is_partitioned=bool(self.table.partition_shards)
        )
        self.stats = StatsLayouts(self.storage)
        self.indexes = IndexLayouts(self.storage, self.stats, self.table.partition_shards)

    @property
    def storage(self) -> Storage:
        """The table's folder."""
        return self.publishing.storage

    def note_taken_out(self, name: str, reason: str) -> None:
        """An index was taken out of the table now: `status` says so until it is there again."""
        self.indexes_taken_out[name] = TakenOut(name, reason, self.clock.now_ms())

    def file_time_ms(self) -> int:
        """The time now (Unix epoch), to compare times of files with (`publication.file_times`)."""
        return file_time_ms(self.publishing, self.clock)

    @property
    def lock(self) -> TableLock:
        """The table's lock."""
        return self.publishing.lock

    @property
    def term(self) -> int:
        """This coordinator's term: the offset of its claim on the decisions."""
        return self.log.term
