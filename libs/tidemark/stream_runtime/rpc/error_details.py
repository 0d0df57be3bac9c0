"""What an error says beyond its status, as `google.rpc.Status` in the trailing metadata: every gRPC library
reads it, and grpcurl prints it.

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

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from tidemark.errors import ErrorKind, kind_of

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
