"""`tidemark.commit.v1.CommitCoordinator`: what shufflers, assigners and the writer call.

A handler parses the request, calls the object that knows the answer, and builds the response. Errors carry an
`ErrorKind`; `stream_runtime.rpc` makes status codes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tidemark.commit.v1 import commit_pb2 as pb
from tidemark.commit.v1 import commit_pb2_grpc as rpc
from tidemark.commit_coordinator.calls.attempt_handoff import AttemptHandoff, OpenAttemptView
from tidemark.commit_coordinator.calls.inbox import Inbox, WantRewind
from tidemark.commit_coordinator.calls.members import Members
from tidemark.commit_coordinator.calls.pausing import Pause
from tidemark.commit_coordinator.calls.placement import Placement, Want
from tidemark.commit_coordinator.calls.service_calls import ServiceCalls
from tidemark.commit_coordinator.calls.service_handoff import ServiceHandoff
from tidemark.commit_coordinator.commit.context import Report
from tidemark.commit_coordinator.commit.stored_report import report_of
from tidemark.commit_coordinator.domain.next_action import AttemptProblem
from tidemark.commit_coordinator.errors import CoordinatorError, NotReadyError
from tidemark.commit_coordinator.input.skips import InputSkips
from tidemark.epoch_protocol.entries import Stage, Topic
from tidemark.epoch_protocol.input_topics import EmptyRange
from tidemark.epoch_protocol.state import CountedTagged
from tidemark.epoch_protocol.stopped_lanes import SkipResult, StoppedLane, StopReason
from tidemark.errors import ErrorKind
from tidemark.hudi_format.errors import CorruptFileError
from tidemark.hudi_format.metadata_table.begun_groups import BegunFile, unpacked_begun
from tidemark.hudi_format.publication.tickets import Ticket
from tidemark.hudi_format.timeline.avro_records import WriteStat

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["CommitCoordinator"].full_name
_WAIT_MS_MAX = 30_000
_FEWER = (
    "With a partitioned record index a report holds the entries of all data partitions that the epoch "
    "begins: fewer table.index.shards, and a smaller epoch.max_bytes, make it smaller"
)
_STAGES: dict[int, Stage] = {int(pb.STAGE_SHUFFLE): Stage.SHUFFLE, int(pb.STAGE_ASSIGN): Stage.ASSIGN}


class OtherTableError(CoordinatorError):
    """The caller's configuration names another table than the one this coordinator serves."""

    kind = ErrorKind.INVALID
    error_reason = "WRONG_TABLE"


class BadReportError(CoordinatorError):
    """The parts of a report are of different attempts, or too large together."""

    kind = ErrorKind.INVALID


class RefusedAttemptError(CoordinatorError):
    """The attempt is not the open one: the writer has to ask for the next epoch."""

    kind = ErrorKind.FENCED


@dataclass(frozen=True)
class Facts:
    """Facts about the table that the service tells joining processes, and its limits."""

    table: str
    num_shards: int
    lanes: int
    lease_ms: int
    protocol_version: int
    ledger: str = ""
    report_bytes_max: int = 64 << 20
    """How many bytes a writer's report may have, all parts together."""


class CommitService(rpc.CommitCoordinatorServicer):
    """The gRPC handlers. They keep no state: it is in the objects that the constructor gets."""

    def __init__(
        self,
        facts: Facts,
        members: Members,
        placement: Placement,
        attempts: AttemptHandoff,
        register_schema: Callable[[str], str],
        pause: Callable[[Stage], Pause],
        ready: Callable[[], bool],
        inbox: Inbox,
        skips: InputSkips,
        services: ServiceHandoff,
        gave_up: Callable[[Stage, str, str], None] = lambda *_: None,
    ) -> None:
        """``gave_up``: told (stage, process, reason) of each process that leaves because it cannot go on."""
        self._facts = facts
        self._members = members
        self._placement = placement
        self._attempts = attempts
        self._register_schema = register_schema
        self._pause = pause
        self._ready = ready
        self._inbox = inbox
        self._skips = skips
        self._services = ServiceCalls(services, facts.ledger, facts.report_bytes_max)
        self._gave_up = gave_up

    def Join(self, request: pb.JoinRequest, _: object) -> pb.JoinResponse:  # noqa: N802 - gRPC's name
        self._check_table(request.table)
        if request.protocol_version != self._facts.protocol_version:
            raise OtherTableError(
                f"{request.process_id} speaks protocol {request.protocol_version}, the coordinator "
                f"{self._facts.protocol_version}: run the same Tidemark version everywhere"
            )
        schema_id = self._register_schema(request.schema_avro)
        preferred = request.preferred_slot if request.HasField("preferred_slot") else None
        member = self._members.join(_stage(request.stage), request.process_id, request.address, preferred)
        return pb.JoinResponse(
            slot=member.slot,
            lease_ms=self._facts.lease_ms,
            num_shards=self._facts.num_shards,
            lanes=self._facts.lanes,
            schema_id=schema_id,
            ledger=self._facts.ledger,
        )

    def Renew(self, request: pb.RenewRequest, _: object) -> pb.RenewResponse:  # noqa: N802
        self._check_table(request.table)
        grant = self._members.renew(
            _stage(request.stage),
            request.process_id,
            request.lanes_held,
            request.uncommitted_entries,
            request.figures,
            [stopped_lane(_stage(request.stage), stopped) for stopped in request.stopped],
            [EmptyRange(empty.topic, empty.partition, empty.first, empty.next) for empty in request.empty],
            request.uncommitted_memory,
        )
        pause = self._pause(_stage(request.stage))
        self._skips.done(SkipResult(skip.id, skip.first, skip.last, skip.failure) for skip in request.skips)
        orders = self._skips.orders(_stage(request.stage), request.lanes_held)
        return pb.RenewResponse(
            lanes=grant.lanes,
            claim_token=grant.claim_token,
            paused=pause.paused,
            pause_reason=pause.reason,
            skips=[pb.Skip(**order._asdict()) for order in orders],
            suspects=self._members.suspects(_stage(request.stage), grant.lanes),
        )

    def Leave(self, request: pb.LeaveRequest, _: object) -> pb.LeaveResponse:  # noqa: N802
        self._check_table(request.table)
        if request.failure:
            self._gave_up(_stage(request.stage), request.process_id, request.failure)
        self._members.leave(_stage(request.stage), request.process_id, request.by_error)
        return pb.LeaveResponse()

    def LeaseFileGroups(  # noqa: N802
        self, request: pb.LeaseFileGroupsRequest, _: object
    ) -> pb.LeaseFileGroupsResponse:
        self._check_table(request.table)
        leases = self._placement.lease([Want(w.partition_path, w.records, w.bytes) for w in request.wants])
        answer = [
            pb.LeaseFileGroupsResponse.Lease(
                partition_path=lease.partition_path, file_id=lease.file_id, records=lease.records
            )
            for lease in leases
        ]
        return pb.LeaseFileGroupsResponse(leases=answer)

    def WantRewind(self, request: pb.WantRewindRequest, _: object) -> pb.WantRewindResponse:  # noqa: N802
        self._check_table(request.table)
        epoch = request.epoch if request.HasField("epoch") else None
        reason = f"{request.process_id}: {request.reason}"
        self._inbox.put(WantRewind(reason, request.generation, epoch))
        return pb.WantRewindResponse()

    def NextEpoch(self, request: pb.NextEpochRequest, _: object) -> pb.NextEpochResponse:  # noqa: N802
        self._check_table(request.table)
        self._attempts.came(request.writer_id)
        view = self._attempts.wait_for_unreported(min(request.wait_ms, _WAIT_MS_MAX) / 1000)
        if view is None:
            return pb.NextEpochResponse(available=False)
        planned = view.planned
        return pb.NextEpochResponse(
            available=True, epoch=planned.epoch, attempt=planned.attempt, instant=planned.instant or ""
        )

    def Begin(self, request: pb.BeginRequest, _: object) -> pb.BeginResponse:  # noqa: N802
        self._check_table(request.table)
        view = self._attempts.open_attempt(request.epoch, request.attempt)
        if view is None:
            raise RefusedAttemptError(f"epoch {request.epoch} attempt {request.attempt} is not open")
        return begin_response(view, self._facts.num_shards, self._facts.ledger)

    def ReportWritten(  # noqa: N802
        self, request: pb.ReportWrittenRequest, _: object
    ) -> pb.ReportWrittenResponse:
        self._check_table(request.table)
        if not self._attempts.report(request.epoch, request.attempt, request.instant, _report(request)):
            raise RefusedAttemptError(
                f"epoch {request.epoch} attempt {request.attempt} ({request.instant}) is not open: not taken"
            )
        return pb.ReportWrittenResponse()

    def ReportWrittenInParts(  # noqa: N802
        self, parts: Iterable[pb.ReportWrittenRequest], context: object
    ) -> pb.ReportWrittenResponse:
        return self.ReportWritten(_joined(parts, self._facts.report_bytes_max), context)

    def ReportFailed(  # noqa: N802
        self, request: pb.ReportFailedRequest, _: object
    ) -> pb.ReportFailedResponse:
        self._check_table(request.table)
        problem = AttemptProblem(f"writer: {request.reason}", rewind=request.checksum_mismatch)
        if not self._attempts.fail(request.epoch, request.attempt, request.instant, problem):
            raise RefusedAttemptError(f"epoch {request.epoch} attempt {request.attempt} is not open")
        return pb.ReportFailedResponse()

    def NextService(  # noqa: N802
        self, request: pb.NextServiceRequest, _: object
    ) -> pb.NextServiceResponse:
        self._check_table(request.table)
        return self._services.next_service(request.worker_id, min(request.wait_ms, _WAIT_MS_MAX) / 1000)

    def BeginService(  # noqa: N802
        self, request: pb.BeginServiceRequest, _: object
    ) -> pb.BeginServiceResponse:
        self._check_table(request.table)
        return self._services.begin(request)

    def ReportService(  # noqa: N802
        self, request: pb.ReportServiceRequest, _: object
    ) -> pb.ReportServiceResponse:
        self._check_table(request.table)
        self._services.report(request)
        return pb.ReportServiceResponse()

    def ReportServiceInParts(  # noqa: N802
        self, parts: Iterable[pb.ReportServiceRequest], context: object
    ) -> pb.ReportServiceResponse:
        return self.ReportService(self._services.joined(parts), context)

    def _check_table(self, table: str) -> None:
        if table != self._facts.table:
            raise OtherTableError(f"this coordinator serves table {self._facts.table!r}, not {table!r}")
        if not self._ready():
            raise NotReadyError("the coordinator is taking over: ask again")


def begin_response(view: OpenAttemptView, num_shards: int, ledger: str = "") -> pb.BeginResponse:
    """The open attempt as its writer needs it: instant, schema, token, and the ranges of batches to read."""
    planned, stats = view.planned, view.planned.column_stats
    partitioned = planned.partitioned
    return pb.BeginResponse(
        epoch=planned.epoch,
        attempt=planned.attempt,
        instant=planned.instant or "",
        as_of=planned.as_of,
        schema_avro=planned.schema,
        staging_dir=view.token,
        num_shards=num_shards,
        data=_ranges(view.manifest, Topic.DATA),
        index=_ranges(view.manifest, Topic.INDEX),
        ledger=ledger,
        column_stats=None if stats is None else pb.KeptStats(columns=stats.columns, groups=stats.groups),
        secondary=[
            pb.KeptSecondary(name=index.name, column=index.column, groups=index.groups)
            for index in planned.secondary
        ],
        partitioned=None if partitioned is None else pb.KeptPartitioned(begun=partitioned.begun),
    )


def stopped_lane(stage: Stage, message: pb.StoppedLane) -> StoppedLane:
    """A stopped lane from an owner's report. A reason that this version does not know becomes UNREADABLE."""
    known = message.reason in StopReason._value2member_map_
    return StoppedLane(
        stage=stage,
        lane=message.lane,
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        reason=StopReason(message.reason) if known else StopReason.UNREADABLE,
        detail=message.detail,
        since_ms=message.since_ms,
    )


def _stage(value: int) -> Stage:
    if value not in _STAGES:
        raise OtherTableError(f"stage {value} is not known")
    return _STAGES[value]


def _ranges(manifest: Sequence[CountedTagged], topic: Topic) -> list[pb.PartitionRanges]:
    """The batches of one topic by partition; ``order`` is the transaction's place in the ledger's order."""
    partitions: dict[int, list[pb.BatchRange]] = {}
    for order, counted in enumerate(manifest):
        for part in counted.entry.produced:
            if part.topic is topic:
                partitions.setdefault(part.partition, []).append(
                    pb.BatchRange(
                        nonce=counted.entry.nonce,
                        first=part.first,
                        last=part.last,
                        batches=part.batches,
                        records=part.records,
                        checksum=part.checksum,
                        order=order,
                    )
                )
    return [pb.PartitionRanges(partition=p, ranges=r) for p, r in sorted(partitions.items())]


def _report(request: pb.ReportWrittenRequest) -> Report:
    return report_of(
        request.instant,
        [WriteStat.from_avro(msgspec.json.decode(stat)) for stat in request.write_stats],
        request.record_index,
        dict(request.timings_ms),
        [Ticket(ticket.path, ticket.size, ticket.sha256, ticket.handle) for ticket in request.tickets],
        request.column_stats,
        request.files_without_stats,
        request.secondary,
        dict(request.secondary_groups),
        request.partitioned_index,
        _begun_files(request),
    )


def _begun_files(request: pb.ReportWrittenRequest) -> tuple[BegunFile, ...]:
    """Raises BadReportError for files that cannot be unpacked, or are too large together."""
    try:
        return unpacked_begun(b"".join(request.begun))
    except CorruptFileError as error:
        raise BadReportError(f"the report of epoch {request.epoch}: {error}. {_FEWER}") from error


def _joined(parts: Iterable[pb.ReportWrittenRequest], bytes_max: int) -> pb.ReportWrittenRequest:
    """Merges the parts of one report. Raises BadReportError: too many bytes, or another attempt's part."""
    whole, held_bytes = pb.ReportWrittenRequest(), 0
    for number, part in enumerate(parts):
        held_bytes += part.ByteSize()
        if held_bytes > bytes_max:
            raise BadReportError(
                f"the report of epoch {part.epoch} has more than {bytes_max} bytes. Raise "
                "limits.rpc_message_bytes for coordinator and writer, restart them, then `tidemark epoch "
                f"retry`. {_FEWER}"
            )
        if number and _attempt_of(part) != _attempt_of(whole):
            raise BadReportError(f"part {number} of the report is of another attempt than the first one")
        whole.MergeFrom(part)
    return whole


def _attempt_of(report: pb.ReportWrittenRequest) -> tuple[str, str, int, int, str]:
    return report.table, report.writer_id, report.epoch, report.attempt, report.instant
