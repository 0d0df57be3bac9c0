"""The report of an attempt as the writer sends it and as it is stored, and the `Report` in between.

Both forms name a log file of the record index by its shard, because its path follows from the instant; and
both have one list with the tickets of all files. In a `Report` each log file has its path and its ticket.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from tidemark.commit_coordinator.commit.context import Report
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import record_index_log
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


class _StoredShardFile(msgspec.Struct, frozen=True):
    shard: int
    size: int
    upserts: int
    deletes: int


class _StoredReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document's fields; former versions stored none named ``tickets``."""

    data: tuple[WriteStat, ...]
    record_index: tuple[_StoredShardFile, ...]
    timings_ms: dict[str, float] = {}
    tickets: tuple[Ticket, ...] = ()


def report_of(
    instant: str,
    data: Iterable[WriteStat],
    record_index: Sequence[IndexShardFile],
    timings_ms: dict[str, float],
    tickets: Sequence[Ticket],
) -> Report:
    """The report of the attempt that writes ``instant``, from the fields that both forms have."""
    of_path = {ticket.path: ticket for ticket in tickets}
    logs = [_with_ticket(_log_file(instant, file), of_path) for file in record_index]
    paths = {log.path for log in logs}
    of_data = tuple(ticket for ticket in tickets if ticket.path not in paths)
    return Report(tuple(data), tuple(logs), timings_ms, of_data)


def report_document(report: Report) -> bytes:
    """The report as it is stored. Equal reports give equal bytes; a report whose files are all visible has no
    field ``tickets``.
    """
    stored = _StoredReport(
        report.data,
        tuple(_StoredShardFile(e.shard, e.size, e.upserts, e.deletes) for e in report.metadata_logs),
        report.timings_ms,
        report.unpublished(),
    )
    return msgspec.json.encode(stored, order="deterministic")


def read_report(document: bytes, instant: str) -> Report:
    """The stored report of the attempt that writes ``instant``."""
    stored = msgspec.json.decode(document, type=_StoredReport)
    return report_of(instant, stored.data, stored.record_index, stored.timings_ms, stored.tickets)


def _log_file(instant: str, file: IndexShardFile) -> MetadataLogFile:
    return record_index_log(instant, ShardId(file.shard), file.size, file.upserts, file.deletes)


def _with_ticket(log: MetadataLogFile, of_path: dict[str, Ticket]) -> MetadataLogFile:
    ticket = of_path.get(log.path)
    return log if ticket is None else log.prepared(ticket)
