"""What workers ask about table services: `NextService`, `BeginService`, `ReportService`, and the last one in
parts.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Final

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit_coordinator.calls.service_handoff import FailedOperation, ServiceHandoff, ServiceReport
from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.table_services.operations import decode_outcomes

_REASON_CHARS_MAX: Final = 10_000
_GROUP_REASON_CHARS_MAX: Final = 1_000


class RefusedServiceError(CoordinatorError):
    """The action is over, or another worker has it: stop working on it, and ask for the next one."""

    kind = ErrorKind.FENCED


class BadOutcomesError(CoordinatorError):
    """The outcomes in a report cannot be read, are too large, or their parts are of different actions."""

    kind = ErrorKind.INVALID


class ServiceCalls:
    """Answers from `ServiceHandoff`. ``bytes_max``: of the outcomes of one action, inflated."""

    def __init__(self, handoff: ServiceHandoff, ledger: str, bytes_max: int) -> None:
        self._handoff, self._ledger, self._bytes_max = handoff, ledger, bytes_max

    def next_service(self, worker: str, timeout_s: float) -> pb.NextServiceResponse:
        """An action that is the worker's from now on, if there is one in time."""
        found = self._handoff.wait_for_work(worker, timeout_s)
        if found is None:
            return pb.NextServiceResponse(available=False)
        planned = found.planned
        return pb.NextServiceResponse(
            available=True, number=planned.service, kind=planned.kind, instant=planned.instant
        )

    def begin(self, request: pb.BeginServiceRequest) -> pb.BeginServiceResponse:
        """What to do. Raises RefusedServiceError."""
        found = self._handoff.begin(request.number, request.worker_id)
        if found is None:
            raise _refused(request.number)
        planned = found.planned
        return pb.BeginServiceResponse(
            number=planned.service,
            kind=planned.kind,
            instant=planned.instant,
            plan_path=planned.plan_path,
            plan_sha256=planned.plan_sha256,
            token=found.token,
            share=found.granted.share,
            behind=found.granted.is_behind,
            ledger=self._ledger,
        )

    def report(self, request: pb.ReportServiceRequest) -> None:
        """Takes progress, outcomes, a failure, or the action back. Raises RefusedServiceError,
        BadOutcomesError.
        """
        number, worker, taken = request.number, request.worker_id, False
        if request.failure:
            reason = request.failure[:_REASON_CHARS_MAX]
            failed = tuple(
                FailedOperation(found.number, found.reason[:_GROUP_REASON_CHARS_MAX], found.damaged)
                for found in request.failed
            )
            taken = self._handoff.fail(number, worker, reason, failed, request.done)
        elif request.outcomes:
            taken = self._handoff.report(number, worker, self._report(request.outcomes))
        elif request.given_back:
            taken = self._handoff.give_back(number, worker)
        else:
            taken = self._handoff.progress(number, worker, request.done)
        if not taken:
            raise _refused(number)

    def joined(self, parts: Iterable[pb.ReportServiceRequest]) -> pb.ReportServiceRequest:
        """One report out of its parts: the first one with the outcomes of all. Raises BadOutcomesError."""
        whole, pieces, held_bytes = pb.ReportServiceRequest(), list[bytes](), 0
        for number, part in enumerate(parts):
            held_bytes += len(part.outcomes)
            if held_bytes > self._bytes_max:
                raise self._too_large("packed outcomes")
            if not number:
                whole.CopyFrom(part)
            elif _action_of(part) != _action_of(whole):
                raise BadOutcomesError(f"part {number} of the report is of another action than the first one")
            pieces.append(part.outcomes)
        whole.outcomes = b"".join(pieces)
        return whole

    def _too_large(self, what: str) -> BadOutcomesError:
        return BadOutcomesError(
            f"the {what} have more than {self._bytes_max} bytes (limits.rpc_message_bytes): raise it for the "
            "coordinator and for the writer, and restart them"
        )

    def _report(self, deflated: bytes) -> ServiceReport:
        unpacker = zlib.decompressobj()
        try:
            document = unpacker.decompress(deflated, self._bytes_max)
            if not unpacker.eof:
                raise self._too_large("outcomes")
            outcomes = decode_outcomes(document, "the report")
        except (zlib.error, CorruptFileError) as error:
            raise BadOutcomesError(f"the outcomes cannot be read: {error}") from error
        tickets = tuple(outcome.ticket for outcome in outcomes if outcome.ticket is not None)
        return ServiceReport(document, tickets)


def _action_of(report: pb.ReportServiceRequest) -> tuple[str, str, int]:
    return report.table, report.worker_id, report.number


def _refused(number: int) -> RefusedServiceError:
    return RefusedServiceError(f"service action {number} is over, or another worker has it")
