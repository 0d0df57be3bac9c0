"""Errors on the wire: kinds as gRPC status codes and back, and what an error says beyond its status.

| kind      | status              |
|-----------|---------------------|
| CONFLICT  | ABORTED             |
| FENCED    | FAILED_PRECONDITION |
| RETRYABLE | UNAVAILABLE         |
| INVALID   | INVALID_ARGUMENT    |
| CORRUPT   | DATA_LOSS           |

Every error with a `kind` of those names is mapped, whichever of our packages it comes from. One without is a
defect: INTERNAL. A wait that ended before its condition held is DEADLINE_EXCEEDED, and a `StatusError` has a
status of its own.

What else an error says goes into its details, as `google.rpc.Status` in the trailing metadata: every gRPC
library reads it, and grpcurl prints it.

| detail       | when                            | says                                                  |
|--------------|---------------------------------|-------------------------------------------------------|
| ErrorInfo    | always                          | reason, a name for programs; domain `tidemark`; facts |
| RequestInfo  | always                          | the request id                                        |
| RetryInfo    | the same call may succeed later | when to try again                                     |
| BadRequest   | a field of the request is wrong | which, and why                                        |
| ResourceInfo | what was named is not there     | its type and name                                     |

An exception says these by attributes, all optional: `error_reason`, `error_metadata` (text to text),
`retry_after_s`, `violations` (pairs of field and text), `resource` (type, name). The reason defaults to the
name of its class: NoAssignerError is NO_ASSIGNER.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tidemark.errors import ErrorKind, kind_of
from tidemark.stream_runtime.errors import DeadlineExceededError, StreamRuntimeError

DOMAIN: Final = "tidemark"
STATUS_KEY: Final = "grpc-status-details-bin"
_RETRY_AFTER_S: Final = 1.0
_RETRIED: Final = frozenset({ErrorKind.RETRYABLE, ErrorKind.CONFLICT})
_BYTES_MAX: Final = 3_000
"""Metadata travels in the header block, of which peers take 8 KiB by default."""
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class ErrorDetails:
    """What a server told about an error; nothing of it has to be there."""

    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    retry_after_s: float | None = None
    violations: tuple[tuple[str, str], ...] = ()


def reason_of(error: BaseException) -> str:
    """The error's name for programs, in capitals."""
    named = getattr(error, "error_reason", None)
    if isinstance(named, str) and named:
        return named
    return _WORD_START.sub("_", type(error).__name__.removesuffix("Error")).upper()


def encode_details(error: BaseException, code: int, message: str, request_id: str | None) -> bytes:
    """The `google.rpc.Status` for an exception; `code` is the status's number. Metadata and field texts are
    left out where they would not fit.
    """
    whole: bytes = _status(error, code, message, request_id).SerializeToString()
    if len(whole) <= _BYTES_MAX:
        return whole
    bare = error_details_pb2.ErrorInfo(reason=reason_of(error), domain=DOMAIN)
    status = status_pb2.Status(code=code, message=message)
    _add(status, bare)
    if request_id:
        _add(status, error_details_pb2.RequestInfo(request_id=request_id))
    cut: bytes = status.SerializeToString()
    return cut


def decode_details(call: Any) -> ErrorDetails:
    """The details of a failed call (`grpc.RpcError`); empty for a server that sends none."""
    try:
        status = rpc_status.from_call(call)
    except (AttributeError, ValueError, DecodeError):
        # No call of gRPC's own, or details that contradict the status: the status stands.
        return ErrorDetails()
    return ErrorDetails() if status is None else _decoded(status)


def _status(error: BaseException, code: int, message: str, request_id: str | None) -> status_pb2.Status:
    status = status_pb2.Status(code=code, message=message)
    metadata = {str(key): str(value) for key, value in getattr(error, "error_metadata", {}).items()}
    _add(status, error_details_pb2.ErrorInfo(reason=reason_of(error), domain=DOMAIN, metadata=metadata))
    if request_id:
        _add(status, error_details_pb2.RequestInfo(request_id=request_id))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is None and kind_of(error) in _RETRIED:
        retry_after_s = _RETRY_AFTER_S
    if retry_after_s is not None:
        delay = Duration()
        delay.FromMilliseconds(int(retry_after_s * 1000))
        _add(status, error_details_pb2.RetryInfo(retry_delay=delay))
    if violations := getattr(error, "violations", ()):
        wrong = [
            error_details_pb2.BadRequest.FieldViolation(field=name, description=text)
            for name, text in violations
        ]
        _add(status, error_details_pb2.BadRequest(field_violations=wrong))
    if (resource := getattr(error, "resource", None)) is not None:
        kind, name = resource
        _add(status, error_details_pb2.ResourceInfo(resource_type=kind, resource_name=name))
    return status


def _add(status: status_pb2.Status, detail: Message) -> None:
    status.details.add().Pack(detail)


def _decoded(status: status_pb2.Status) -> ErrorDetails:
    found: dict[str, Any] = {}
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.RequestInfo()
    retry, bad = error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Unpack(info):
            found |= {"reason": info.reason, "metadata": dict(info.metadata)}
        elif detail.Unpack(request):
            found["request_id"] = request.request_id
        elif detail.Unpack(retry):
            found["retry_after_s"] = retry.retry_delay.ToMilliseconds() / 1000
        elif detail.Unpack(bad):
            found["violations"] = tuple((each.field, each.description) for each in bad.field_violations)
    return ErrorDetails(**found)


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
