"""Errors in gRPC: translates kinds to status codes and back, and encodes an error's details.

| kind      | status              |
|-----------|---------------------|
| CONFLICT  | ABORTED             |
| FENCED    | FAILED_PRECONDITION |
| RETRYABLE | UNAVAILABLE         |
| INVALID   | INVALID_ARGUMENT    |
| CORRUPT   | DATA_LOSS           |

Errors of all our packages are translated by their `kind`. An exception without a kind is a defect: INTERNAL.
A DeadlineExceededError is DEADLINE_EXCEEDED, and a `StatusError` has a status of its own.

An error's details are sent as `google.rpc.Status` in the trailing metadata, which every gRPC library can read
and grpcurl prints.

| detail       | when                            | has                                                   |
|--------------|---------------------------------|-------------------------------------------------------|
| ErrorInfo    | always                          | reason (for programs), domain `tidemark`, facts       |
| RequestInfo  | always                          | the request id                                        |
| RetryInfo    | the same call may succeed later | when to try again                                     |
| BadRequest   | a field of the request is wrong | which, and why                                        |
| ResourceInfo | the named thing does not exist  | its type and name                                     |

They come from attributes of the exception, all of which are optional: `error_reason`, `error_metadata` (text
to text), `retry_after_s`, `violations` (pairs of field and text), `resource` (type, name). Without an
`error_reason` the reason is the name of the class: NO_ASSIGNER for NoAssignerError.
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
RETRIED: Final = frozenset({ErrorKind.RETRYABLE, ErrorKind.CONFLICT})
"""The same request may succeed later."""
_BYTES_MAX: Final = 3_000
"""Trailing metadata is sent in a header block, of which peers accept 8 KiB by default."""
_WORD_START: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


@dataclass(frozen=True)
class ErrorDetails:
    """The details of an error that a server sent. Each field may be empty."""

    reason: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    request_id: str = ""
    retry_after_s: float | None = None
    violations: tuple[tuple[str, str], ...] = ()


def reason_of(error: BaseException) -> str:
    """The reason for programs: `error_reason`, else the name of the class in capitals."""
    named = getattr(error, "error_reason", None)
    if isinstance(named, str) and named:
        return named
    return _WORD_START.sub("_", type(error).__name__.removesuffix("Error")).upper()


def encode_details(error: BaseException, code: int, message: str, request_id: str | None) -> bytes:
    """The `google.rpc.Status` of an exception as bytes; `code` is the number of its status. If all details
    are too long, only reason, domain and request id are sent.
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
    """The details of a failed call (`grpc.RpcError`); empty if the server sent none."""
    try:
        status = rpc_status.from_call(call)
    except (AttributeError, ValueError, DecodeError):
        # Not a call of gRPC's own, or the details contradict the status. The status counts.
        return ErrorDetails()
    return ErrorDetails() if status is None else _decoded(status)


def _status(error: BaseException, code: int, message: str, request_id: str | None) -> status_pb2.Status:
    status = status_pb2.Status(code=code, message=message)
    metadata = {str(key): str(value) for key, value in getattr(error, "error_metadata", {}).items()}
    _add(status, error_details_pb2.ErrorInfo(reason=reason_of(error), domain=DOMAIN, metadata=metadata))
    if request_id:
        _add(status, error_details_pb2.RequestInfo(request_id=request_id))
    retry_after_s = getattr(error, "retry_after_s", None)
    if retry_after_s is None and kind_of(error) in RETRIED:
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
    fields: dict[str, Any] = {}
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.RequestInfo()
    retry, bad = error_details_pb2.RetryInfo(), error_details_pb2.BadRequest()
    for detail in status.details:
        if detail.Unpack(info):
            fields |= {"reason": info.reason, "metadata": dict(info.metadata)}
        elif detail.Unpack(request):
            fields["request_id"] = request.request_id
        elif detail.Unpack(retry):
            fields["retry_after_s"] = retry.retry_delay.ToMilliseconds() / 1000
        elif detail.Unpack(bad):
            fields["violations"] = tuple((wrong.field, wrong.description) for wrong in bad.field_violations)
    return ErrorDetails(**fields)


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
    # Our requests may be sent again without harm, so a call without an answer may be repeated.
    grpc.StatusCode.CANCELLED: ErrorKind.RETRYABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorKind.RETRYABLE,
    grpc.StatusCode.ALREADY_EXISTS: ErrorKind.CONFLICT,
}


_NO_INFO: Final = ErrorDetails()
_TOO_LARGE: Final = "message larger than max"
"""gRPC's text, on either side, for a message above a limit. It has the same status as too many calls
(RESOURCE_EXHAUSTED), and only the text tells them apart. To repeat such a call never helps.
"""


class StatusError(StreamRuntimeError):
    """Base of errors with a status of their own (NOT_FOUND, UNAUTHENTICATED, PERMISSION_DENIED, …), for which
    the status of a kind says too little. `kind` still says what the caller must do.
    """

    status: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT


class RpcError(StreamRuntimeError):
    """A call to another service failed.

    `kind` says what the caller must do, `status` is gRPC's status, `details` the service's text, `info` the
    details for programs.
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
            # Too many calls at once, by our limits or gRPC's. There may be room a little later.
            self.kind = ErrorKind.RETRYABLE


def status_of(error: BaseException) -> grpc.StatusCode:
    """The gRPC status of an exception of any of our packages."""
    if isinstance(error, StatusError):
        return error.status
    if isinstance(error, DeadlineExceededError):
        return grpc.StatusCode.DEADLINE_EXCEEDED
    kind = kind_of(error)
    return grpc.StatusCode.INTERNAL if kind is None else _STATUS_OF_KIND[kind]


def kind_of_status(status: grpc.StatusCode) -> ErrorKind:
    """The kind of a status. A status that no kind has is INVALID: the same request will not succeed."""
    return _KIND_OF_STATUS.get(status, ErrorKind.INVALID)


def from_grpc(method: str, error: Any) -> RpcError:
    """Our error for a `grpc.RpcError`."""
    return RpcError(method, error.code(), error.details() or "", decode_details(error))
