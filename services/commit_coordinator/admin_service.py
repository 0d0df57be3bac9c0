"""`tidemark.admin.v1.Admin`: what the command line asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Any, Final

from commit_coordinator.errors import CoordinatorError
from commit_coordinator.history import EpochHistory
from commit_coordinator.inbox import HurryUp, Inbox, PauseTagging, RetryEpoch
from commit_coordinator.view import CoordinatorView, ViewBoard
from stream_runtime.errors import DeadlineExceededError, ErrorKind
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc as rpc

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["Admin"].full_name
KEYS_MAX: Final = 10_000
EPOCHS_DEFAULT: Final = 20
_FLUSH_DEFAULT_MS: Final = 60_000
_HURRY_EVERY_S: Final = 0.2
_TURNS_PER_LOOK: Final = 5
_RETRY_TAKEN_S: Final = 15.0


class BadRequestError(CoordinatorError):
    """The request cannot be answered as it is; the text says why."""

    kind = ErrorKind.INVALID


Targets = Callable[[], Mapping[str, int]]
"""Per input lane the position that a flush called now has to reach."""
HoldsRecords = Callable[[str, int, int], bool]
"""(input lane, from, to) -> whether a record lies in [from, to)."""
Served = Callable[[], tuple[str, str]]
"""-> (the table's path, the owner that `staging.show_owner` left with it; empty before)."""
KeyLookup = Callable[[list[str]], Iterable[pb.LookupResponse.Found]]


class AdminService(rpc.AdminServicer):
    """Handlers only; every answer comes from the parts given."""

    def __init__(
        self,
        table: str,
        board: ViewBoard,
        history: EpochHistory,
        inbox: Inbox,
        status: Callable[[], dict[str, Any]],
        targets: Targets,
        lookup: KeyLookup,
        holds_records: HoldsRecords,
        served: Served,
    ) -> None:
        self._table = table
        self._board = board
        self._history = history
        self._inbox = inbox
        self._status = status
        self._targets = targets
        self._lookup = lookup
        self._holds_records = holds_records
        self._served = served

    def Serves(self, request: pb.ServesRequest, _: object) -> pb.ServesResponse:  # noqa: N802 - gRPC's name
        self._check_table(request.table)
        path, owner = self._served()
        return pb.ServesResponse(path=path, served_by=owner)

    def Status(self, request: pb.StatusRequest, _: object) -> pb.StatusResponse:  # noqa: N802
        self._check_table(request.table)
        return pb.StatusResponse(json=json.dumps(self._status()))

    def Flush(self, request: pb.FlushRequest, _: object) -> pb.FlushResponse:  # noqa: N802
        self._check_table(request.table)
        targets = self._targets()
        left_s = (request.timeout_ms or _FLUSH_DEFAULT_MS) / 1000
        for turn in count():
            self._inbox.put(HurryUp())
            wait_s = min(_HURRY_EVERY_S, left_s)
            view = self._board.wait_until(partial(_reached, targets), wait_s)
            if view is not None:
                return pb.FlushResponse(epoch=view.epoch, instant=view.instant or "")
            left_s -= wait_s
            if turn % _TURNS_PER_LOOK == 0:
                targets = self._still_wanted(targets)
            if left_s <= 0 and targets:
                break
        raise DeadlineExceededError(_missing(self._board.current, targets))

    def _still_wanted(self, targets: Mapping[str, int]) -> dict[str, int]:
        """Without lanes that have no record between where they are and where they should be."""
        reached = self._board.current.source_next
        return {
            lane: end
            for lane, end in targets.items()
            if reached.get(lane, 0) < end and self._holds_records(lane, reached.get(lane, 0), end)
        }

    def Lookup(self, request: pb.LookupRequest, _: object) -> pb.LookupResponse:  # noqa: N802
        self._check_table(request.table)
        if len(request.keys) > KEYS_MAX:
            raise BadRequestError(
                f"{len(request.keys)} keys asked for, at most {KEYS_MAX} are answered at once"
            )
        return pb.LookupResponse(found=self._lookup(list(request.keys)))

    def ListEpochs(self, request: pb.ListEpochsRequest, _: object) -> pb.ListEpochsResponse:  # noqa: N802
        self._check_table(request.table)
        epochs = self._history.newest(request.limit or EPOCHS_DEFAULT)
        return pb.ListEpochsResponse(json=[json.dumps(epoch) for epoch in epochs])

    def ShowEpoch(self, request: pb.ShowEpochRequest, _: object) -> pb.ShowEpochResponse:  # noqa: N802
        self._check_table(request.table)
        found = self._history.show(request.epoch)
        if found is None:
            raise BadRequestError(
                f"epoch {request.epoch} is not known: newer than the last, or older than what is held"
            )
        return pb.ShowEpochResponse(json=json.dumps(found))

    def RetryEpoch(  # noqa: N802
        self, request: pb.RetryEpochRequest, _: object
    ) -> pb.RetryEpochResponse:
        self._check_table(request.table)
        if self._board.current.blocked_epoch != request.epoch:
            raise BadRequestError(_why_not_retried(self._board.current, request.epoch))
        self._inbox.put(RetryEpoch(request.epoch))
        taken = self._board.wait_until(lambda view: view.blocked_epoch is None, _RETRY_TAKEN_S)
        if taken is None:
            raise DeadlineExceededError(
                f"the coordinator is busy: is epoch {request.epoch} tried again? Ask anew"
            )
        return pb.RetryEpochResponse(attempt=taken.planned_attempt or taken.attempts + 1)

    def Pause(self, request: pb.PauseRequest, _: object) -> pb.PauseResponse:  # noqa: N802
        self._check_table(request.table)
        self._inbox.put(PauseTagging(True, request.reason or "paused by an operator"))
        return pb.PauseResponse()

    def Resume(self, request: pb.ResumeRequest, _: object) -> pb.ResumeResponse:  # noqa: N802
        self._check_table(request.table)
        self._inbox.put(PauseTagging(False, ""))
        return pb.ResumeResponse()

    def _check_table(self, table: str) -> None:
        if table != self._table:
            raise BadRequestError(f"this coordinator serves table {self._table!r}, not {table!r}")


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


def _reached(targets: Mapping[str, int], view: CoordinatorView) -> bool:
    return all(view.source_next.get(lane, 0) >= target for lane, target in targets.items())


def _missing(view: CoordinatorView, targets: Mapping[str, int]) -> str:
    behind = {
        lane: target - view.source_next.get(lane, 0)
        for lane, target in targets.items()
        if view.source_next.get(lane, 0) < target
    }
    lane, distance = max(behind.items(), key=lambda each: each[1])
    why = view.halted or view.trouble or view.pause_reason or view.waiting_for or view.doing
    return (
        f"not everything is committed in time: {len(behind)} input partitions are behind, most {lane} by "
        f"{distance} offsets ({why})"
    )
