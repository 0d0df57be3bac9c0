"""A writer's report that one message does not hold, from its client to the coordinator, over gRPC."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest

from tests.unit.hudi_format.metadata_tables import entries
from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.commit_coordinator.calls.service import SERVICE_NAME, CommitService, Facts
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.stored_report import read_report, report_document
from tidemark.config import Address
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.metadata_table.begun_groups import BegunFile, packed_begun, unpacked_begun
from tidemark.hudi_format.metadata_table.partitioned_index import (
    IndexGroup,
    PartitionedLayout,
    commit_log,
    initial_logs,
)
from tidemark.hudi_format.metadata_table.partitions.column_stats import column_stats_log
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    record_index_log,
    write_record_index_log,
)
from tidemark.hudi_format.model import ShardId, shard_ids
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.rpc.server import REQUEST_BYTES_MAX, RpcServer, start_server
from tidemark.stream_writer.coordinator_client import GrpcCoordinator, PlannedEpoch, report_parts
from tidemark.stream_writer.task_outcome import TaskSucceeded

EPOCH = PlannedEpoch(7, 2, "20260101000000000")
REPORT_BYTES_MAX = 12 << 20


@dataclass
class Attempts:
    reports: list[tuple[int, int, str, Any]] = field(default_factory=list)

    def report(self, epoch: int, attempt: int, instant: str, report: Any) -> bool:
        self.reports.append((epoch, attempt, instant, report))
        return epoch == EPOCH.epoch


@pytest.fixture
def served() -> Iterator[tuple[Attempts, RpcServer]]:
    attempts, nothing = Attempts(), threading.Event()
    facts = Facts("t", 4, 4, 3_000, 1, report_bytes_max=REPORT_BYTES_MAX)
    other: Any = nothing
    service = CommitService(facts, other, other, attempts, str, other, lambda: True, other, other, other)  # type: ignore[arg-type]
    add = [(SERVICE_NAME, lambda s: rpc.add_CommitCoordinatorServicer_to_server(service, s))]
    server = start_server(Address("127.0.0.1", 0), add)
    yield attempts, server
    server.stop(0.1)


def stats(files: int, path_chars: int) -> tuple[bytes, ...]:
    return tuple(
        json.dumps({"fileId": f"f{at}", "path": f"{at}/".ljust(path_chars, "p"), "numWrites": at}).encode()
        for at in range(files)
    )


def client(server: RpcServer) -> GrpcCoordinator:
    return GrpcCoordinator(server.address, "t", "w", 64 << 20)


@pytest.mark.parametrize("files", [0, 3, 2_500])
def test_report_of_any_size_arrives_whole_and_once(served: tuple[Attempts, RpcServer], files: int) -> None:
    attempts, server = served
    logs = [record_index_log(EPOCH.instant, shard, 10 * shard, shard, 0) for shard in shard_ids(files)]
    logs += [column_stats_log(EPOCH.instant, group, 5, 7) for group in shard_ids(min(files, 2))]
    logs[1:] = [log.prepared(Ticket(log.path, log.size, "cd", f"{log.shard}")) for log in logs[1:]]
    tickets = tuple(Ticket(f"d/{at}", at, "ab" * 32, f"upload-{at}") for at in range(files))
    written = TaskSucceeded(
        stats(files, 4_000), tuple(logs), {"job": 1.5}, tickets=tickets, files_without_stats=files
    )
    writer = client(server)
    try:
        writer.report_written(EPOCH, written)
    finally:
        writer.close()
    ((epoch, attempt, instant, report),) = attempts.reports
    assert (epoch, attempt, instant) == EPOCH
    assert [stat.path for stat in report.data] == [json.loads(stat)["path"] for stat in written.write_stats]
    assert report.metadata_logs == written.metadata_logs
    assert report.timings_ms == {"job": 1.5}
    assert report.files_without_stats == files
    assert report.tickets == tickets
    assert report.unpublished() == (*tickets, *(log.ticket for log in logs[1:]))


def test_files_of_begun_groups_arrive_whole_and_are_stored_with_their_bytes(
    served: tuple[Attempts, RpcServer],
) -> None:
    """One has several times the size of a part. The decided document keeps them, whatever becomes of the
    writer.
    """
    attempts, server = served
    present = commit_log(IndexGroup("us/ca", ShardId(1)), EPOCH.instant, 10, 2, 1)
    firsts = initial_logs([IndexGroup("eu", ShardId(0)), IndexGroup("eu", ShardId(1))], EPOCH.instant)
    large = bytes(range(256)) * 14_000
    log = commit_log(IndexGroup("eu", ShardId(1)), EPOCH.instant, len(large), 7, 0)
    begun = tuple(BegunFile(each, data) for each, data in (*firsts, (log, large)))
    writer = client(server)
    try:
        writer.report_written(EPOCH, TaskSucceeded((), (present,), begun=begun))
    finally:
        writer.close()
    ((_, _, _, report),) = attempts.reports
    assert (report.metadata_logs, report.begun) == ((present,), begun)
    assert [file.log for file in report.begun] == [firsts[0][0], firsts[1][0], log]
    assert read_report(report_document(report), EPOCH.instant) == report


def test_a_report_that_begins_a_thousand_partitions_is_small(served: tuple[Attempts, RpcServer]) -> None:
    """1 000 data partitions with 8 groups each, and an entry in each group: 16 000 files of 83 MB, which
    would be above the limit that users have by default.
    """
    attempts, server = served
    paths = [f"day=2024-01-{number:03}" for number in range(1_000)]
    groups = PartitionedLayout({}).begun(paths, 8).groups()
    log = write_record_index_log(entries({"key-1": 1}), EPOCH.instant)
    files = [
        *initial_logs(groups, EPOCH.instant),
        *((commit_log(group, EPOCH.instant, len(log), 1, 0), log) for group in groups),
    ]
    begun = tuple(BegunFile(each, data) for each, data in files)
    writer = client(server)
    try:
        writer.report_written(EPOCH, TaskSucceeded((), (), begun=begun))
    finally:
        writer.close()
    ((_, _, _, report),) = attempts.reports
    assert len(report.begun) == 16_000
    assert report.begun == begun
    assert sum(len(file.content) for file in begun) > 64 << 20
    assert len(report_document(report)) < REPORT_BYTES_MAX


def test_files_of_begun_groups_that_take_too_much_memory_are_refused() -> None:
    [(log, data)] = initial_logs([IndexGroup("eu", ShardId(0))], EPOCH.instant)
    files = (BegunFile(log, data), BegunFile(replace(log, size=5_000), bytes(5_000)))
    packed = packed_begun(files)
    assert unpacked_begun(packed) == files
    assert unpacked_begun(b"") == ()
    with pytest.raises(CorruptFileError, match="more than 4000 bytes"):
        unpacked_begun(packed, 4_000)
    for damaged in (packed[:-20], b"x" + packed):
        with pytest.raises(CorruptFileError, match="cannot be unpacked"):
            unpacked_begun(damaged)


def test_report_above_the_limit_is_refused_by_name(served: tuple[Attempts, RpcServer]) -> None:
    attempts, server = served
    writer = client(server)
    try:
        with pytest.raises(RpcError, match="limits.rpc_message_bytes") as failed:
            writer.report_written(EPOCH, TaskSucceeded(stats(4_000, 4_000)))
    finally:
        writer.close()
    assert failed.value.kind is ErrorKind.INVALID
    assert attempts.reports == []


def test_refused_attempt_is_refused_in_parts_too(served: tuple[Attempts, RpcServer]) -> None:
    _, server = served
    writer = client(server)
    try:
        with pytest.raises(RpcError, match="is not open") as failed:
            writer.report_written(PlannedEpoch(8, 1, "1"), TaskSucceeded(stats(2_500, 4_000)))
    finally:
        writer.close()
    assert failed.value.kind is ErrorKind.FENCED


def test_parts_of_two_attempts_are_no_report(served: tuple[Attempts, RpcServer]) -> None:
    attempts, server = served
    parts = [pb.ReportWrittenRequest(table="t", epoch=epoch, attempt=1) for epoch in (7, 8)]
    with open_channel(server.address) as channel:
        method = rpc.CommitCoordinatorStub(channel).ReportWrittenInParts
        with pytest.raises(RpcError, match="of another attempt"):
            call(method, iter(parts))
    assert attempts.reports == []


def test_each_part_fits_a_request_whatever_its_entries() -> None:
    base = pb.ReportWrittenRequest(table="t", timings_ms={"job": 1.0})
    entries = [b"x" * size for size in (1, 900_000, 900_000, 3_000_000, 5, 6)]
    parts = list(report_parts(base, entries, []))
    assert [stat for part in parts for stat in part.write_stats] == entries
    assert max(part.ByteSize() for part in parts) < REQUEST_BYTES_MAX
    assert [dict(part.timings_ms) for part in parts] == [{"job": 1.0}, *({},) * (len(parts) - 1)]


def test_a_report_is_stored_with_tickets_only_where_it_has_some() -> None:
    """Reports of former versions are read, and files that are visible at once make none longer."""
    former = (
        b'{"data":[],"record_index":[{"shard":1,"size":2,"upserts":3,"deletes":4}],"timings_ms":{"job":1.5}}'
    )
    log = record_index_log(EPOCH.instant, ShardId(1), 2, 3, 4)
    without = Report((), (log,), {"job": 1.5})
    assert report_document(without) == former
    assert read_report(former, EPOCH.instant) == without
    of_data, of_log = Ticket("d/f", 7, "ab", "upload-1"), Ticket(log.path, 2, "cd", "upload-2")
    with_both = Report((), (log.prepared(of_log),), {"job": 1.5}, (of_data,))
    stored = report_document(with_both)
    assert stored == (
        former[:-1] + b',"tickets":[{"path":"d/f","size":7,"sha256":"ab","handle":"upload-1"},{"path":"'
        b".hoodie/metadata/record_index/.record-index-0001-0_20260101000000000.log.1_1-0-0"
        b'","size":2,"sha256":"cd","handle":"upload-2"}]}'
    )
    assert read_report(stored, EPOCH.instant) == with_both
    of_stats = column_stats_log(EPOCH.instant, ShardId(3), 40, 12)
    with_stats = Report((), (log, of_stats), {"job": 1.5}, files_without_stats=2)
    stored = report_document(with_stats)
    assert stored == (
        former[:-1] + b',"column_stats":[{"group":3,"size":40,"records":12}],"files_without_stats":2}'
    )
    assert read_report(stored, EPOCH.instant) == with_stats


def test_grpc_knows_the_call(served: tuple[Attempts, RpcServer]) -> None:
    """A client that sends no part at all is told what is wrong with that."""
    _, server = served
    with open_channel(server.address) as channel, pytest.raises(RpcError) as failed:
        call(rpc.CommitCoordinatorStub(channel).ReportWrittenInParts, iter([]))
    assert failed.value.status is grpc.StatusCode.INVALID_ARGUMENT
