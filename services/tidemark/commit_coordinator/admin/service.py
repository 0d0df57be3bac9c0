"""`tidemark.admin.v1.Admin`: the calls of the command line and of other programs, as the proto describes
them.

A handler checks the request, asks the object that knows, and answers. `commit_coordinator.refusals` has the
errors with their statuses, `admin.limits` how long calls may take and how many may run at the same time.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc as rpc
from tidemark.commit_coordinator.admin.dead_letter_calls import DeadLetterCalls
from tidemark.commit_coordinator.admin.flush import FlushWait, HoldsRecords, Targets
from tidemark.commit_coordinator.admin.limits import SKIP_S
from tidemark.commit_coordinator.admin.messages import (
    served_message,
    table_message,
)
from tidemark.commit_coordinator.admin.orders import give_order
from tidemark.commit_coordinator.admin.service_calls import TableServiceCalls
from tidemark.commit_coordinator.admin.verify_calls import VerifyCalls
from tidemark.commit_coordinator.calls.inbox import Inbox, PauseTagging, RetryEpoch
from tidemark.commit_coordinator.commit.view import CoordinatorView, ViewBoard
from tidemark.commit_coordinator.dead_letters.queries import PAGE_BYTES_MAX
from tidemark.commit_coordinator.refusals import (
    BadRequestError,
    EpochNotGivenUpError,
    EpochUnknownError,
    WrongTableError,
)
from tidemark.commit_coordinator.status.history import EPOCHS_MAX, EpochHistory
from tidemark.commit_coordinator.status.kafka_probe import ASK_S
from tidemark.epoch_protocol.input_topics import InputTopic
from tidemark.epoch_protocol.stopped_lanes import SkipResult, StoppedLane
from tidemark.ledger_client.table_identity import Served
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.kafka.ports import TopicPartition
from tidemark.stream_runtime.rpc.interceptors import left_s
from tidemark.table_status.messages import epoch_document, epoch_message, status_document, status_message
from tidemark.table_status.status import Status

KEYS_MAX: Final = 10_000
EPOCHS_DEFAULT: Final = 20
REASON_CHARACTERS_MAX: Final = 1_000
_FLUSH_DEFAULT_MS: Final = 60_000
ANSWER_S: Final = 0.5
"""A waiting call is answered so long before its caller gives up, so that the caller hears the reason."""
_RETRY_TAKEN_S: Final = 15.0
_log = logging.getLogger("tidemark.admin")

AcceptTopic = Callable[[str, bool], tuple[InputTopic, bool]]
"""(topic, keep its positions) -> (its new record, whether it is read from its start)."""
KeyLookup = Callable[[list[str], str | None], Iterable[pb.LookupResponse.Found]]
KeyStream = Callable[[Iterable[pb.LookupStreamRequest]], Iterator[pb.LookupStreamResponse]]


@dataclass(frozen=True)
class AdminSources:
    """The objects that answers come from. `status`: its argument is how many seconds Kafka may take."""

    board: ViewBoard
    history: EpochHistory
    inbox: Inbox
    status: Callable[[float], Status]
    targets: Targets
    holds_records: HoldsRecords
    stopped_lanes: Callable[[], Sequence[StoppedLane]]
    skip: Callable[[TopicPartition, int, float], SkipResult]
    lookup: KeyLookup
    warm: Callable[[bool], pb.WarmIndexResponse]
    lookup_stream: KeyStream
    lookup_value: Callable[[pb.LookupValueRequest], pb.LookupValueResponse]
    served: Callable[[], Served]
    dead_letters: DeadLetterCalls
    verify: VerifyCalls
    describe: Callable[[], dict[str, Any]]
    accept_topic: AcceptTopic
    clock: Clock


class AdminService(rpc.AdminServicer):
    """The gRPC handlers. They keep no state: every answer comes from the ``sources``."""

    def __init__(self, table: str, sources: AdminSources) -> None:
        self._table = table
        self._from = sources
        self._flush = FlushWait(
            sources.board,
            sources.inbox,
            sources.targets,
            sources.holds_records,
            sources.clock,
            sources.stopped_lanes,
        )
        self._services = TableServiceCalls(sources.board, sources.inbox, sources.clock)

    def Serves(self, request: pb.ServesRequest, _: object) -> pb.ServesResponse:  # noqa: N802 - gRPC's name
        self._check_table(request.table)
        return served_message(self._from.served())

    def Status(self, request: pb.StatusRequest, _: object) -> pb.StatusResponse:  # noqa: N802
        self._check_table(request.table)
        # If Kafka does not answer, the caller gets all other parts before it gives up.
        status = self._from.status(max(left_s(ASK_S + ANSWER_S) - ANSWER_S, 0.1))
        return pb.StatusResponse(json=json.dumps(status_document(status)), status=status_message(status))

    def Flush(self, request: pb.FlushRequest, _: object) -> pb.FlushResponse:  # noqa: N802
        self._check_table(request.table)
        asked_s = (request.timeout_ms or _FLUSH_DEFAULT_MS) / 1000
        # The wait ends a little before the caller gives up, so that it hears what is behind.
        view = self._flush.wait(min(asked_s, max(left_s(asked_s + 1.0) - ANSWER_S, 0.0)))
        return pb.FlushResponse(epoch=view.epoch, instant=view.instant or "")

    def Lookup(self, request: pb.LookupRequest, _: object) -> pb.LookupResponse:  # noqa: N802
        self._check_table(request.table)
        if len(request.keys) > KEYS_MAX:
            raise BadRequestError(
                "keys", f"{len(request.keys)} keys asked for, at most {KEYS_MAX} are answered at once"
            )
        partition = request.partition if request.HasField("partition") else None
        return pb.LookupResponse(found=self._from.lookup(list(request.keys), partition))

    def LookupStream(  # noqa: N802
        self, request_iterator: Any, _: object
    ) -> Iterator[pb.LookupStreamResponse]:
        return self._from.lookup_stream(self._of_table(request_iterator))

    def _of_table(self, batches: Iterator[pb.LookupStreamRequest]) -> Iterator[pb.LookupStreamRequest]:
        """The batches; every message names our table, the first must."""
        for number, batch in enumerate(batches):
            if batch.table or not number:
                self._check_table(batch.table)
            yield batch

    def LookupValue(  # noqa: N802
        self, request: pb.LookupValueRequest, _: object
    ) -> pb.LookupValueResponse:
        self._check_table(request.table)
        return self._from.lookup_value(request)

    def WarmIndex(self, request: pb.WarmIndexRequest, _: object) -> pb.WarmIndexResponse:  # noqa: N802
        self._check_table(request.table)
        return self._from.warm(request.start)

    def ListEpochs(self, request: pb.ListEpochsRequest, _: object) -> pb.ListEpochsResponse:  # noqa: N802
        self._check_table(request.table)
        size, token = min(request.limit or EPOCHS_DEFAULT, EPOCHS_MAX), request.page_token
        if token and not (token.isascii() and token.isdigit() and len(token) < 20):
            raise BadRequestError("page_token", "page_token is not from an answer of this call")
        held = self._from.history.newest(EPOCHS_MAX)
        instants = frozenset(request.instants)
        fitting = [
            epoch
            for epoch in held
            if (not token or epoch.epoch < int(token)) and (not instants or epoch.instant in instants)
        ]
        answer, held_bytes = pb.ListEpochsResponse(), 0
        for epoch in fitting[:size]:
            text, typed = json.dumps(epoch_document(epoch)), epoch_message(epoch)
            held_bytes += len(text) + typed.ByteSize()
            if answer.json and held_bytes > PAGE_BYTES_MAX:
                break
            answer.json.append(text)
            answer.epochs.append(typed)
        if len(answer.json) < len(fitting):
            answer.next_page_token = str(answer.epochs[-1].epoch)
        return answer

    def ShowEpoch(self, request: pb.ShowEpochRequest, _: object) -> pb.ShowEpochResponse:  # noqa: N802
        self._check_table(request.table)
        record = self._from.history.show(request.epoch)
        if record is None:
            raise EpochUnknownError(request.epoch)
        return pb.ShowEpochResponse(json=json.dumps(epoch_document(record)), epoch=epoch_message(record))

    def RetryEpoch(  # noqa: N802
        self, request: pb.RetryEpochRequest, _: object
    ) -> pb.RetryEpochResponse:
        self._check_table(request.table)
        board = self._from.board
        if (view := board.current).blocked_epoch != request.epoch:
            raise EpochNotGivenUpError(_why_not_retried(view, request.epoch), view.blocked_epoch)
        _log.info("epoch %d is to be tried again, as asked", request.epoch)
        self._from.inbox.put(RetryEpoch(request.epoch))
        taken = board.wait_until(lambda view: view.blocked_epoch is None, left_s(_RETRY_TAKEN_S))
        if taken is None:
            raise DeadlineExceededError(
                f"the coordinator is busy, and has not taken up epoch {request.epoch} again yet: ask again"
            )
        return pb.RetryEpochResponse(attempt=taken.planned_attempt or taken.attempts + 1)

    def AcceptTopic(  # noqa: N802
        self, request: pb.AcceptTopicRequest, _: object
    ) -> pb.AcceptTopicResponse:
        self._check_table(request.table)
        topic, from_start = self._from.accept_topic(request.topic, request.keep_positions)
        return pb.AcceptTopicResponse(id=topic.id, partitions=topic.partitions, from_start=from_start)

    def Pause(self, request: pb.PauseRequest, _: object) -> pb.PauseResponse:  # noqa: N802
        self._check_table(request.table)
        reason = _reason(request.reason)
        _log.info("tagging is to pause, as asked: %s", reason)
        self._give(PauseTagging(True, reason))
        return pb.PauseResponse()

    def Resume(self, request: pb.ResumeRequest, _: object) -> pb.ResumeResponse:  # noqa: N802
        self._check_table(request.table)
        _log.info("tagging is to go on, as asked")
        self._give(PauseTagging(False, ""))
        return pb.ResumeResponse()

    def _give(self, order: PauseTagging) -> None:
        give_order(order, self._from.board, self._from.inbox)

    def ListServices(  # noqa: N802
        self, request: pb.ListServicesRequest, _: object
    ) -> pb.ListServicesResponse:
        self._check_table(request.table)
        return self._services.list()

    def RunService(  # noqa: N802
        self, request: pb.RunServiceRequest, _: object
    ) -> pb.RunServiceResponse:
        self._check_table(request.table)
        asked_s = (request.timeout_ms or _FLUSH_DEFAULT_MS) / 1000
        wait_s = min(asked_s, max(left_s(asked_s + 1.0) - ANSWER_S, 0.0))
        return self._services.run(request.kind, request.wait, wait_s)

    def PauseServices(  # noqa: N802
        self, request: pb.PauseServicesRequest, _: object
    ) -> pb.PauseServicesResponse:
        self._check_table(request.table)
        self._services.pause(_reason(request.reason))
        return pb.PauseServicesResponse()

    def ResumeServices(  # noqa: N802
        self, request: pb.ResumeServicesRequest, _: object
    ) -> pb.ResumeServicesResponse:
        self._check_table(request.table)
        self._services.resume()
        return pb.ResumeServicesResponse()

    def SkipInput(self, request: pb.SkipInputRequest, _: object) -> pb.SkipInputResponse:  # noqa: N802
        self._check_table(request.table)
        place = TopicPartition(request.topic, request.partition)
        done = self._from.skip(place, request.offset, max(left_s(SKIP_S) - ANSWER_S, ANSWER_S))
        return pb.SkipInputResponse(first=done.first, last=done.last)

    def ListDeadLetters(  # noqa: N802
        self, request: pb.ListDeadLettersRequest, _: object
    ) -> pb.ListDeadLettersResponse:
        self._check_table(request.table)
        return self._from.dead_letters.list(request)

    def ShowDeadLetter(  # noqa: N802
        self, request: pb.ShowDeadLetterRequest, _: object
    ) -> pb.ShowDeadLetterResponse:
        self._check_table(request.table)
        return self._from.dead_letters.show(request)

    def ReplayDeadLetters(  # noqa: N802
        self, request: pb.ReplayDeadLettersRequest, _: object
    ) -> pb.ReplayDeadLettersResponse:
        self._check_table(request.table)
        return self._from.dead_letters.replay(request)

    def Verify(self, request: pb.VerifyRequest, _: object) -> Iterator[pb.VerifyResponse]:  # noqa: N802
        self._check_table(request.table)
        yield from self._from.verify.verify(request.full)

    def LastVerification(  # noqa: N802
        self, request: pb.LastVerificationRequest, _: object
    ) -> pb.LastVerificationResponse:
        self._check_table(request.table)
        return self._from.verify.last()

    def DescribeTable(  # noqa: N802
        self, request: pb.DescribeTableRequest, _: object
    ) -> pb.DescribeTableResponse:
        self._check_table(request.table)
        document = self._from.describe()
        return pb.DescribeTableResponse(json=json.dumps(document), description=table_message(document))

    def _check_table(self, table: str) -> None:
        if table != self._table:
            raise WrongTableError(self._table, table)


def _reason(given: str) -> str:
    if len(given) > REASON_CHARACTERS_MAX:
        raise BadRequestError("reason", f"the reason has at most {REASON_CHARACTERS_MAX} characters")
    return given or "paused by an operator"


def _why_not_retried(view: CoordinatorView, epoch: int) -> str:
    if view.stopped:
        return f"the coordinator has stopped, and no retry helps: {view.halted}"
    if view.blocked_epoch is not None:
        return f"epoch {epoch} is not the one that was given up: that is epoch {view.blocked_epoch}"
    if epoch <= view.epoch:
        return f"epoch {epoch} is committed: there is nothing to try again"
    if epoch == view.planned_epoch:
        return f"epoch {epoch} was not given up: attempt {view.planned_attempt} is under way"
    return f"epoch {epoch} was not given up: the last committed one is {view.epoch}, nothing blocks the next"
