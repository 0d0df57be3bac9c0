"""The calls about service actions over gRPC. The plan lies in the table's folder: it may name thousands of
files.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from tidemark.commit.v1 import commit_pb2, commit_pb2_grpc
from tidemark.config.model import Address
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.table_services.operations import (
    CompactionPlan,
    MergeOutcome,
    decode_plan,
    encode_outcomes,
)
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity
from tidemark.stream_writer.table_services.bins import Blame, MergeFailed
from tidemark.stream_writer.table_services.services_loop import BegunService, PlannedService

# Added to the wait of `next_service`: after the wait the coordinator still has to answer.
_LONG_POLL_MARGIN_S: Final = 5.0
# A worker that stops does not wait longer for a coordinator that may be gone: the lease ends by itself, too.
_GIVE_BACK_S: Final = 2.0
# A request has at most 4 MiB. What is not named now is when the rest is merged.
_NAMED_MAX: Final = 1_000
_NAMED_CHARS_MAX: Final = 500
_PIECE_BYTES: Final = 1 << 20
"""Outcomes of more bytes are reported in parts of this size."""
_REPORT_S: Final = 60.0

PlanReader = Callable[[commit_pb2.BeginServiceResponse], CompactionPlan]
"""Reads the plan that an answer names; it is given the answer. Raises HudiFormatError, WriterError."""


class GrpcServices:
    """Implements `ServiceCoordinator`. A channel of its own: its long waits take no place of the epochs'."""

    def __init__(
        self,
        address: Address,
        table: str,
        worker_id: str,
        message_bytes_max: int,
        read_plan: PlanReader,
        security: ClientSecurity = IN_THE_CLEAR,
    ) -> None:
        self._channel = open_channel(address, message_bytes_max=message_bytes_max, security=security)
        self._stub = commit_pb2_grpc.CommitCoordinatorStub(self._channel)
        self._table, self._worker_id, self._read_plan = table, worker_id, read_plan

    def next_service(self, wait_s: float) -> PlannedService | None:
        request = commit_pb2.NextServiceRequest(
            table=self._table, worker_id=self._worker_id, wait_ms=int(wait_s * 1_000)
        )
        answer = call(self._stub.NextService, request, wait_s + _LONG_POLL_MARGIN_S)
        return PlannedService(answer.number, answer.kind, answer.instant) if answer.available else None

    def begin_service(self, number: int) -> BegunService:
        request = commit_pb2.BeginServiceRequest(table=self._table, worker_id=self._worker_id, number=number)
        begun = call(self._stub.BeginService, request)
        return BegunService(self._read_plan(begun), begun.token, begun.share, begun.behind)

    def keep_service(self, number: int, done: int) -> None:
        call(self._stub.ReportService, self._report(number, done=done))

    def report_service(self, number: int, outcomes: Sequence[MergeOutcome]) -> None:
        document = zlib.compress(encode_outcomes(tuple(outcomes)))
        pieces = [document[at : at + _PIECE_BYTES] for at in range(0, len(document), _PIECE_BYTES)]
        parts = [self._report(number, done=len(outcomes), outcomes=piece) for piece in pieces]
        if len(parts) == 1:
            call(self._stub.ReportService, parts[0])
        else:
            call(self._stub.ReportServiceInParts, iter(parts), _REPORT_S)

    def report_service_failed(
        self, number: int, reason: str, done: int, failures: Sequence[MergeFailed]
    ) -> None:
        request = self._report(number, done=done, failure=reason)
        for failed in [failed for failed in failures if failed.blame is not Blame.NONE][:_NAMED_MAX]:
            text = f"{failed.error}: {failed.message}"[:_NAMED_CHARS_MAX]
            request.failed.add(number=failed.ordinal, reason=text, damaged=failed.blame is Blame.GROUP)
        call(self._stub.ReportService, request)

    def give_service_back(self, number: int) -> None:
        request = self._report(number)
        request.given_back = True
        call(self._stub.ReportService, request, _GIVE_BACK_S)

    def close(self) -> None:
        """Closes the channel."""
        self._channel.close()

    def _report(
        self, number: int, done: int = 0, outcomes: bytes = b"", failure: str = ""
    ) -> commit_pb2.ReportServiceRequest:
        return commit_pb2.ReportServiceRequest(
            table=self._table,
            worker_id=self._worker_id,
            number=number,
            done=done,
            outcomes=outcomes,
            failure=failure,
        )


def read_plan(storage: Storage, path: str, sha256: str) -> CompactionPlan:
    """The plan of a compaction in the document at `path`. Raises FileMissingError, CorruptFileError."""
    content = storage.read(path)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise CorruptFileError(f"{path} does not have the content that the coordinator names ({sha256})")
    return decode_plan(content, path)
