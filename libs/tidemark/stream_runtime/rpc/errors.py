"""Error kinds as gRPC status codes, and back.

| kind      | status              |
|-----------|---------------------|
| CONFLICT  | ABORTED             |
| FENCED    | FAILED_PRECONDITION |
| RETRYABLE | UNAVAILABLE         |
| INVALID   | INVALID_ARGUMENT    |
| CORRUPT   | DATA_LOSS           |

Every error with a `kind` of those names is mapped, whichever of our packages it comes from. One without is a
defect: INTERNAL. A wait that ended before its condition held is DEADLINE_EXCEEDED, and a `StatusError` has a
status of its own. What else an error says goes into its details (`error_details`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc

from tidemark.errors import ErrorKind, kind_of
from tidemark.stream_runtime.errors import DeadlineExceededError, StreamRuntimeError
from tidemark.stream_runtime.rpc.error_details import ErrorDetails, decode_details

_STATUS_OF_KIND: Final[Mapping[ErrorKind, grpc.StatusCode]] = {
    ErrorKind.CONFLICT: grpc.StatusCode.ABORTED,
    ErrorKind.FENCED: grpc.StatusCode.FAILED_PRECONDITION,
    ErrorKind.RETRYABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorKind.INVALID: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorKind.CORRUPT: grpc.StatusCode.DATA_LOSS,
}
assert _STATUS_OF_KIND.keys() == set(ErrorKind)

_KIND_OF_STATUS: Final[Mapping[grpc.StatusCode, ErrorKind]] = {
    **{status: kind for kind, status in _STATUS_OF_KIND.items()},
    # Our requests carry an idempotency id, so an unanswered one may be sent again.
    grpc.StatusCode.CANCELLED: ErrorKind.RETRYABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorKind.RETRYABLE,
    grpc.StatusCode.ALREADY_EXISTS: ErrorKind.CONFLICT,
}


_NO_INFO: Final = ErrorDetails()
_TOO_LARGE: Final = "message larger than max"
"""How gRPC says, on either side, that a message exceeds a limit: under the status of calls that are too many,
and told apart by nothing else. Such a message is refused again however often it is sent."""


class StatusError(StreamRuntimeError):
    """Base of refusals with a status of their own, where that of a kind says too little (NOT_FOUND,
    UNAUTHENTICATED, PERMISSION_DENIED, …); `kind` still says what the caller must do.
    """

    status: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT


class RpcError(StreamRuntimeError):
    """A call to another service failed; `kind` is what that service meant, `status` how gRPC carried it,
    `details` its words alone, `info` what it said for programs.
    """

    def __init__(
        self, method: str, status: grpc.StatusCode, details: str, info: ErrorDetails = _NO_INFO
    ) -> None:
        self.details = details or status.name
        super().__init__(f"{method}: {self.details}")
        self.method = method
        self.status = status
        self.info = info
        self.kind = kind_of_status(status)
        if status is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE not in details:
            # Too many calls at once, by our limits or gRPC's own: there is room a little later.
            self.kind = ErrorKind.RETRYABLE


def status_of(error: BaseException) -> grpc.StatusCode:
    """The status for an exception of any of our packages."""
    if isinstance(error, StatusError):
        return error.status
    if isinstance(error, DeadlineExceededError):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    kind = kind_of(error)
    return grpc.StatusCode.INTERNAL if kind is None else _STATUS_OF_KIND[kind]


def kind_of_status(status: grpc.StatusCode) -> ErrorKind:
    """What a caller must do; a status that no kind maps to is a request that will not succeed unchanged."""
    return _KIND_OF_STATUS.get(status, ErrorKind.INVALID)


def from_grpc(method: str, error: Any) -> RpcError:
    """Our error for a `grpc.RpcError`."""
    return RpcError(method, error.code(), error.details() or "", decode_details(error))
