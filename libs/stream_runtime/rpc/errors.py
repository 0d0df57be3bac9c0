"""Error kinds as gRPC status codes, and back.

| kind      | status              |
|-----------|---------------------|
| CONFLICT  | ABORTED             |
| FENCED    | FAILED_PRECONDITION |
| RETRYABLE | UNAVAILABLE         |
| INVALID   | INVALID_ARGUMENT    |
| CORRUPT   | DATA_LOSS           |

Every error with a `kind` of those names is mapped, whichever of our packages it comes from. One without is a
defect: INTERNAL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import grpc

from stream_runtime.errors import ErrorKind, StreamRuntimeError

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


class StatusError(StreamRuntimeError):
    """Base of refusals with a status of their own, where that of a kind says too little (NOT_FOUND,
    UNAUTHENTICATED, PERMISSION_DENIED, …); `kind` still says what the caller must do.
    """

    status: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT


class RpcError(StreamRuntimeError):
    """A call to another service failed; `kind` is what that service meant, `status` how gRPC carried it,
    `details` its words alone.
    """

    def __init__(self, method: str, status: grpc.StatusCode, details: str) -> None:
        self.details = details or status.name
        super().__init__(f"{method}: {self.details}")
        self.method = method
        self.status = status
        self.kind = kind_of_status(status)


def status_of(error: BaseException) -> grpc.StatusCode:
    """The status for an exception of any of our packages."""
    if isinstance(error, StatusError):
        return error.status
    name = getattr(getattr(error, "kind", None), "name", None)
    if not isinstance(name, str) or name not in ErrorKind.__members__:
        return grpc.StatusCode.INTERNAL
    return _STATUS_OF_KIND[ErrorKind[name]]


def kind_of_status(status: grpc.StatusCode) -> ErrorKind:
    """What a caller must do; a status that no kind maps to is a request that will not succeed unchanged."""
    return _KIND_OF_STATUS.get(status, ErrorKind.INVALID)


def from_grpc(method: str, error: Any) -> RpcError:
    """Our error for a `grpc.RpcError`."""
    return RpcError(method, error.code(), error.details() or "")
