"""Exceptions of handlers as statuses with details (`error_details`), and in the log.

The log has every failed call at level info, with its request id; UNAVAILABLE, which clients answer by asking
again, at debug, as refusals of strangers, who could fill it (`security.access` tells of those). An exception
without a kind is a defect: INTERNAL, with its traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import grpc

from tidemark.redaction import redact_text
from tidemark.stream_runtime.rpc.error_details import STATUS_KEY, encode_details, reason_of
from tidemark.stream_runtime.rpc.errors import status_of
from tidemark.stream_runtime.rpc.handler_interceptor import Handler, HandlerInterceptor
from tidemark.stream_runtime.rpc.request_ids import current_request_id

_MESSAGE_BYTES_MAX: Final = 1_200
_QUIET: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
)
_log = logging.getLogger("tidemark.rpc")


class ErrorsByKind(HandlerInterceptor):
    """Turns an exception of a handler into the status of its kind; one without a kind is logged as a
    defect.
    """

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        try:
            return handler(request, context)
        except Exception as error:
            _abort(context, method, error)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        try:
            yield from handler(request, context)
        except Exception as error:
            _abort(context, method, error)


def _abort(context: Any, method: str, error: Exception) -> None:
    if context.code() is not None:
        # The handler ended the call itself: abort() tells so by an exception without content.
        raise error
    status = status_of(error)
    said = str(error)
    if status is grpc.StatusCode.INTERNAL:
        _log.exception("unexpected error in %s", method)
        said = f"{type(error).__name__}: {error}"
    else:
        level = logging.DEBUG if status in _QUIET else logging.INFO
        _log.log(level, "%s: %s %s: %s", method, status.name, reason_of(error), said)
    # It travels in the header block, with up to three characters a byte.
    said = redact_text(said).encode()[:_MESSAGE_BYTES_MAX].decode(errors="ignore")
    details = encode_details(error, status.value[0], said, current_request_id())
    context.set_trailing_metadata((*(context.trailing_metadata() or ()), (STATUS_KEY, details)))
    context.abort(status, said)
