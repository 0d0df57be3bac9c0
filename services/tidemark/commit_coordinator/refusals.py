"""The errors of the admin service's calls; their reasons are part of the interface (docs/admin-api.md)."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from tidemark.commit_coordinator.errors import CoordinatorError
from tidemark.epoch_protocol.stopped_lanes import StoppedLane
from tidemark.errors import ErrorKind
from tidemark.stream_runtime.rpc.errors import StatusError


class BadRequestError(CoordinatorError):
    """A field of the request is wrong; the text says why."""

    kind = ErrorKind.INVALID
    error_reason = "BAD_REQUEST"

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.violations: Sequence[tuple[str, str]] = [(field, message)]


class WrongTableError(BadRequestError):
    """The request names another table than the one that is served."""

    error_reason = "WRONG_TABLE"

    def __init__(self, served: str, named: str) -> None:
        super().__init__("table", f"this coordinator serves table {served!r}, not {named!r}")


class EpochUnknownError(StatusError):
    """The epoch's history is not known, or not any more."""

    status = grpc.StatusCode.NOT_FOUND
    error_reason = "EPOCH_UNKNOWN"

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} is not known: it is newer than the last, or too old to be kept")
        self.resource = ("tidemark.epoch", str(epoch))


class EpochNotGivenUpError(StatusError):
    """A retry of an epoch at which the coordinator has not halted; `blocked` is the one at which it has."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "EPOCH_NOT_GIVEN_UP"

    def __init__(self, message: str, blocked: int | None) -> None:
        super().__init__(message)
        self.error_metadata = {} if blocked is None else {"blocked_epoch": str(blocked)}


class NotIndexedColumnError(StatusError):
    """A question for the rows of a value in a column that has no secondary index."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "NOT_INDEXED"


class LaneStoppedError(StatusError):
    """The requested records are behind the offset at which a lane is stopped."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "LANE_STOPPED"

    def __init__(self, stopped: StoppedLane) -> None:
        super().__init__(f"{stopped.sentence()}. docs/runbook.md, TidemarkLaneStopped, says how to go on")
        self.error_metadata = {
            "topic": stopped.topic,
            "partition": str(stopped.partition),
            "offset": str(stopped.offset),
            "stop_reason": stopped.reason.value,
        }


class LaneNotStoppedError(StatusError):
    """A skip of a partition that is not stopped, or is stopped at another offset."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "LANE_NOT_STOPPED"


class SkipFailedError(CoordinatorError):
    """The lane's owner could not tell where the record batch ends."""

    kind = ErrorKind.RETRYABLE
    error_reason = "SKIP_FAILED"
    retry_after_s = 5.0


class ServicesDisabledError(StatusError):
    """An order about table services to a coordinator that runs none."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "SERVICES_DISABLED"

    def __init__(self) -> None:
        super().__init__(
            "Tidemark runs no table services of this table: set table_services.enabled to true in the "
            "configuration and restart the coordinator"
        )


class ServicesHaltedError(StatusError):
    """An order to run a table service while the coordinator has halted, other than for an epoch given up."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "SERVICES_HALTED"

    def __init__(self, why: str) -> None:
        super().__init__(f"the coordinator has halted, and runs no table service: {why}")


class CoordinatorStoppedError(StatusError):
    """An order to pause, or to go on, to a coordinator that does nothing any more."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    error_reason = "COORDINATOR_STOPPED"

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the coordinator has stopped, and takes no order until it is started again: {why}. Give the "
            "order then"
        )


class DeadLetterUnknownError(StatusError):
    """There is no dead letter with that id."""

    status = grpc.StatusCode.NOT_FOUND
    error_reason = "DEAD_LETTER_UNKNOWN"

    def __init__(self, letter_id: int) -> None:
        super().__init__(f"there is no dead letter {letter_id}: `tidemark dead-letter list` has their ids")
        self.resource = ("tidemark.dead_letter", str(letter_id))


class ReplayRunningError(CoordinatorError):
    """Another replay runs: two of them would fence each other."""

    kind = ErrorKind.CONFLICT
    error_reason = "REPLAY_RUNNING"
    retry_after_s = 5.0

    def __init__(self) -> None:
        super().__init__("another replay of this table's dead letters runs: ask again when it has ended")


class StoppingError(CoordinatorError):
    """The coordinator ends before it could answer."""

    kind = ErrorKind.RETRYABLE
    error_reason = "STOPPING"
    retry_after_s = 5.0
