"""The report of an attempt as the writer sends it and as it is stored, and the `Report` in between.

Both forms name a log file of the record index by its shard (in a partitioned one also by its partition), and
one of another index by its group, because its path follows from the instant; and both have one list with the
tickets of all files. In a `Report` each log file has its path and its ticket. Files of groups that the commit
begins are there with their bytes, packed together in both forms: nobody else keeps them until the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from tidemark.commit_coordinator.commit.context import Report
from tidemark.hudi_format.metadata_table.begun_groups import BegunFile, packed_begun, unpacked_begun
from tidemark.hudi_format.metadata_table.partitioned_index import IndexGroup, commit_log
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS, column_stats_log
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    parse_record_index_file_id,
    record_index_log,
)
from tidemark.hudi_format.metadata_table.partitions.secondary_index import secondary_index_log
from tidemark.hudi_format.model import ShardId
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.timeline.avro_records import WriteStat


class IndexShardFile(Protocol):
    """A log file of the record index as both forms have it; ``size`` in bytes."""

    @property
    def shard(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def upserts(self) -> int: ...
    @property
    def deletes(self) -> int: ...


class StatsGroupFile(Protocol):
    """A log file of the column stats as both forms have it; ``size`` in bytes."""

    @property
    def group(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def records(self) -> int: ...


class SecondaryGroupFile(Protocol):
    """A log file of a secondary index as both forms have it; ``size`` in bytes."""

    @property
    def index(self) -> str: ...
    @property
    def group(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def puts(self) -> int: ...
    @property
    def deletes(self) -> int: ...


class PartitionFile(IndexShardFile, Protocol):
    """A log file of a partitioned record index as both forms have it."""

    @property
    def partition_path(self) -> str: ...


class _StoredShardFile(msgspec.Struct, frozen=True):
    shard: int
    size: int
    upserts: int
    deletes: int


class _StoredGroupFile(msgspec.Struct, frozen=True):
    group: int
    size: int
    records: int


class _StoredSecondaryFile(msgspec.Struct, frozen=True):
    index: str
    group: int
    size: int
    puts: int
    deletes: int


class _StoredPartitionFile(_StoredShardFile, frozen=True):
    partition_path: str


class _StoredReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document's fields; former versions stored none named ``tickets``, and none of other indexes than
    a global record index.
    """

    data: tuple[WriteStat, ...]
    record_index: tuple[_StoredShardFile, ...]
    timings_ms: dict[str, float] = {}
    tickets: tuple[Ticket, ...] = ()
    column_stats: tuple[_StoredGroupFile, ...] = ()
    files_without_stats: int = 0
    secondary: tuple[_StoredSecondaryFile, ...] = ()
    secondary_groups: dict[str, int] = {}
    partitioned_index: tuple[_StoredPartitionFile, ...] = ()
    begun: bytes = b""


def report_of(
    instant: str,
    data: Iterable[WriteStat],
    record_index: Sequence[IndexShardFile],
    timings_ms: dict[str, float],
    tickets: Sequence[Ticket],
    column_stats: Sequence[StatsGroupFile] = (),
    files_without_stats: int = 0,
    secondary: Sequence[SecondaryGroupFile] = (),
    secondary_groups: dict[str, int] | None = None,
    partitioned_index: Sequence[PartitionFile] = (),
    begun: Sequence[BegunFile] = (),
) -> Report:
    """The report of the attempt that writes ``instant``, from the fields that both forms have."""
    of_path = {ticket.path: ticket for ticket in tickets}
    files = [
        *(_log_file(instant, file) for file in record_index),
        *(_stats_file(instant, file) for file in column_stats),
        *(_secondary_file(instant, file) for file in secondary),
        *(_partition_file(instant, file) for file in partitioned_index),
    ]
    logs = [_with_ticket(log, of_path) for log in files]
    paths = {log.path for log in logs}
    of_data = tuple(ticket for ticket in tickets if ticket.path not in paths)
    groups = secondary_groups or {}
    return Report(tuple(data), tuple(logs), timings_ms, of_data, files_without_stats, groups, tuple(begun))


def report_document(report: Report) -> bytes:
    """The report as it is stored. Equal reports give equal bytes; a report whose files are all visible has no
    field ``tickets``.
    """
    stats = report.logs_of(COLUMN_STATS.name)
    index = [
        (parse_record_index_file_id(e.file_id).partition_path, e) for e in report.logs_of(RECORD_INDEX.name)
    ]
    stored = _StoredReport(
        report.data,
        tuple(_StoredShardFile(e.shard, e.size, e.upserts, e.deletes) for path, e in index if path is None),
        report.timings_ms,
        report.unpublished(),
        tuple(_StoredGroupFile(e.shard, e.size, e.upserts) for e in stats),
        report.files_without_stats,
        tuple(
            _StoredSecondaryFile(e.partition, e.shard, e.size, e.upserts, e.deletes)
            for name in sorted(report.secondary_groups)
            for e in report.logs_of(name)
        ),
        report.secondary_groups,
        tuple(
            _StoredPartitionFile(e.shard, e.size, e.upserts, e.deletes, path)
            for path, e in index
            if path is not None
        ),
        packed_begun(report.begun),
    )
    return msgspec.json.encode(stored, order="deterministic")


def read_report(document: bytes, instant: str) -> Report:
    """The stored report of the attempt that writes ``instant``."""
    stored = msgspec.json.decode(document, type=_StoredReport)
    return report_of(
        instant,
        stored.data,
        stored.record_index,
        stored.timings_ms,
        stored.tickets,
        stored.column_stats,
        stored.files_without_stats,
        stored.secondary,
        stored.secondary_groups,
        stored.partitioned_index,
        unpacked_begun(stored.begun),
    )


def _partition_file(instant: str, file: PartitionFile) -> MetadataLogFile:
    group = IndexGroup(file.partition_path, ShardId(file.shard))
    return commit_log(group, instant, file.size, file.upserts, file.deletes)


def _log_file(instant: str, file: IndexShardFile) -> MetadataLogFile:
    return record_index_log(instant, ShardId(file.shard), file.size, file.upserts, file.deletes)


def _stats_file(instant: str, file: StatsGroupFile) -> MetadataLogFile:
    return column_stats_log(instant, ShardId(file.group), file.size, file.records)


def _secondary_file(instant: str, file: SecondaryGroupFile) -> MetadataLogFile:
    group = ShardId(file.group)
    return secondary_index_log(file.index, instant, group, file.size, file.puts, file.deletes)


def _with_ticket(log: MetadataLogFile, of_path: dict[str, Ticket]) -> MetadataLogFile:
    ticket = of_path.get(log.path)
    return log if ticket is None else log.prepared(ticket)
