"""The writer's calls to the coordinator: a port, and its implementation over gRPC."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple, Protocol, TypeAlias

from tidemark.commit.v1 import commit_pb2, commit_pb2_grpc
from tidemark.config.model import Address
from tidemark.hudi_format.metadata_table.begun_groups import packed_begun
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.partition import MetadataLogFile
from tidemark.hudi_format.metadata_table.partitions.record_index import (
    RECORD_INDEX,
    parse_record_index_file_id,
)
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity
from tidemark.stream_writer.task_outcome import TaskSucceeded

# Added to the wait of `next_epoch`: after the wait the coordinator still has to answer.
_LONG_POLL_MARGIN_S: Final = 5.0
_PART_BYTES: Final = 1 << 20
"""A report is sent in parts of about this size, because the coordinator takes no request above 4 MiB."""
_REPORT_S: Final = 60.0


class PlannedEpoch(NamedTuple):
    """An attempt at an epoch that is planned, and that no writer has reported yet."""

    epoch: int
    attempt: int
    instant: str


class Coordinator(Protocol):
    """The writer's calls of `tidemark.commit.v1`. Every call raises RpcError: of kind RETRYABLE if there was
    no answer, FENCED if the attempt is void.
    """

    def next_epoch(self, wait_s: float) -> PlannedEpoch | None:
        """The attempt to write now. Waits for one up to `wait_s`; None if there is none."""
        ...

    def begin(self, planned: PlannedEpoch) -> commit_pb2.BeginResponse:
        """What the epoch covers. The writer writes nothing before it has this answer."""
        ...

    def report_written(self, planned: PlannedEpoch, written: TaskSucceeded) -> None:
        """Reports the files of all tasks together."""
        ...

    def report_failed(self, planned: PlannedEpoch, reason: str, checksum_mismatch: bool) -> None:
        """Reports that the attempt failed. `checksum_mismatch`: its input must be tagged anew."""
        ...


class GrpcCoordinator:
    """Implements `Coordinator` over gRPC. `message_bytes_max` limits messages of both directions."""

    def __init__(
        self,
        address: Address,
        table: str,
        writer_id: str,
        message_bytes_max: int,
        security: ClientSecurity = IN_THE_CLEAR,
    ) -> None:
        self._channel = open_channel(address, message_bytes_max=message_bytes_max, security=security)
        self._stub = commit_pb2_grpc.CommitCoordinatorStub(self._channel)
        self._table = table
        self._writer_id = writer_id

    def next_epoch(self, wait_s: float) -> PlannedEpoch | None:
        request = commit_pb2.NextEpochRequest(
            table=self._table, writer_id=self._writer_id, wait_ms=int(wait_s * 1_000)
        )
        answer = call(self._stub.NextEpoch, request, wait_s + _LONG_POLL_MARGIN_S)
        return PlannedEpoch(answer.epoch, answer.attempt, answer.instant) if answer.available else None

    def begin(self, planned: PlannedEpoch) -> commit_pb2.BeginResponse:
        request = commit_pb2.BeginRequest(
            table=self._table, writer_id=self._writer_id, epoch=planned.epoch, attempt=planned.attempt
        )
        return call(self._stub.Begin, request)

    def report_written(self, planned: PlannedEpoch, written: TaskSucceeded) -> None:
        # Each index has a field of its own in the message.
        logs = [_log_message(log) for log in written.metadata_logs]
        base = commit_pb2.ReportWrittenRequest(
            table=self._table,
            writer_id=self._writer_id,
            epoch=planned.epoch,
            attempt=planned.attempt,
            instant=planned.instant,
            timings_ms=written.timings_ms,
            files_without_stats=written.files_without_stats,
            secondary_groups=written.secondary_groups,
        )
        tickets = [
            commit_pb2.Ticket(path=ticket.path, size=ticket.size, sha256=ticket.sha256, handle=ticket.handle)
            for ticket in (*written.tickets, *(log.ticket for log in written.metadata_logs if log.ticket))
        ]
        parts = list(report_parts(base, written.write_stats, logs, tickets, _begun(written)))
        if len(parts) == 1:
            call(self._stub.ReportWritten, parts[0])
        else:
            call(self._stub.ReportWrittenInParts, iter(parts), _REPORT_S)

    def report_failed(self, planned: PlannedEpoch, reason: str, checksum_mismatch: bool) -> None:
        request = commit_pb2.ReportFailedRequest(
            table=self._table,
            writer_id=self._writer_id,
            epoch=planned.epoch,
            attempt=planned.attempt,
            instant=planned.instant,
            reason=reason,
            checksum_mismatch=checksum_mismatch,
        )
        call(self._stub.ReportFailed, request)

    def close(self) -> None:
        self._channel.close()


LogMessage: TypeAlias = (
    commit_pb2.RecordIndexFile
    | commit_pb2.ColumnStatsFile
    | commit_pb2.SecondaryFile
    | commit_pb2.PartitionedIndexFile
)


class _Begun(NamedTuple):
    """A piece of the packed files of groups that the commit begins."""

    piece: bytes

    def ByteSize(self) -> int:  # noqa: N802 - as messages have it
        """The bytes of the piece."""
        return len(self.piece)


def report_parts(
    base: commit_pb2.ReportWrittenRequest,
    write_stats: Sequence[bytes],
    logs: Iterable[LogMessage],
    tickets: Iterable[commit_pb2.Ticket] = (),
    begun: Iterable[_Begun] = (),
) -> Iterator[commit_pb2.ReportWrittenRequest]:
    """A report as one or more messages of about `_PART_BYTES`. Each has the fields of `base`, which name the
    attempt; only the first has the numbers of the whole report.
    """
    part, held_bytes = _next_part(base, None), 0
    for entry in chain[bytes | LogMessage | commit_pb2.Ticket | _Begun](write_stats, logs, tickets, begun):
        entry_bytes = len(entry) if isinstance(entry, bytes) else entry.ByteSize()
        if held_bytes and held_bytes + entry_bytes > _PART_BYTES:
            yield part
            part, held_bytes = _next_part(base, part), 0
        held_bytes += entry_bytes
        if isinstance(entry, bytes):
            part.write_stats.append(entry)
        elif isinstance(entry, commit_pb2.Ticket):
            part.tickets.append(entry)
        elif isinstance(entry, commit_pb2.ColumnStatsFile):
            part.column_stats.append(entry)
        elif isinstance(entry, commit_pb2.SecondaryFile):
            part.secondary.append(entry)
        elif isinstance(entry, commit_pb2.PartitionedIndexFile):
            part.partitioned_index.append(entry)
        elif isinstance(entry, _Begun):
            part.begun.append(entry.piece)
        else:
            part.record_index.append(entry)
    yield part


def _next_part(
    base: commit_pb2.ReportWrittenRequest, former: commit_pb2.ReportWrittenRequest | None
) -> commit_pb2.ReportWrittenRequest:
    part = commit_pb2.ReportWrittenRequest()
    part.CopyFrom(base)
    if former is not None:
        # Only the first part has them.
        part.ClearField("timings_ms")
        part.ClearField("files_without_stats")
        part.ClearField("secondary_groups")
    return part


def _log_message(log: MetadataLogFile) -> LogMessage:
    if log.partition == COLUMN_STATS.name:
        return commit_pb2.ColumnStatsFile(group=log.shard, size=log.size, records=log.upserts)
    if log.partition != RECORD_INDEX.name:
        return commit_pb2.SecondaryFile(
            index=log.partition, group=log.shard, size=log.size, puts=log.upserts, deletes=log.deletes
        )
    path = parse_record_index_file_id(log.file_id).partition_path
    if path is not None:
        return commit_pb2.PartitionedIndexFile(
            partition_path=path, shard=log.shard, size=log.size, upserts=log.upserts, deletes=log.deletes
        )
    return commit_pb2.RecordIndexFile(
        shard=log.shard, size=log.size, upserts=log.upserts, deletes=log.deletes
    )


def _begun(written: TaskSucceeded) -> Iterator[_Begun]:
    """The files of groups that the commit begins, in pieces that fit a part."""
    packed = packed_begun(written.begun)
    for start in range(0, len(packed), _PART_BYTES):
        yield _Begun(packed[start : start + _PART_BYTES])
