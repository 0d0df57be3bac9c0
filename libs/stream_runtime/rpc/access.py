"""Turns callers away before anything of their request is read.

A unary call is served as a stream of one message, for that is read when it is asked for: a stranger's request
is neither parsed nor, beyond gRPC's first window, taken in. What nobody serves is guarded too: who may not
call learns nothing of what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from stream_runtime.rpc.errors import StatusError
from stream_runtime.security.access import AccessControl, bearer_token
from stream_runtime.security.errors import DeniedError
from stream_runtime.security.roles import OPEN


class CallRefusedError(StatusError):
    """UNAUTHENTICATED where other credentials would help, else PERMISSION_DENIED."""

    def __init__(self, denied: DeniedError) -> None:
        super().__init__(str(denied))
        status = grpc.StatusCode
        self.status = status.UNAUTHENTICATED if denied.is_unknown else status.PERMISSION_DENIED


class AccessInterceptor(grpc.ServerInterceptor):
    """Raises CallRefusedError in the place of the handler, unless `access` lets the call pass."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        method = handler_call_details.method
        if self._access.is_open or method in OPEN:
            return handler
        if handler is None:
            return grpc.stream_unary_rpc_method_handler(self._single(_nobody_serves, method))
        inner, formats = _of_requests(handler), (handler.request_deserializer, handler.response_serializer)
        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(self._streaming(inner, method), *formats)
        return grpc.stream_unary_rpc_method_handler(self._single(inner, method), *formats)

    def _single(self, inner: Any, method: str) -> Any:
        def checked(requests: Any, context: Any) -> Any:
            self._check(method, context)
            return inner(requests, context)

        return checked

    def _streaming(self, inner: Any, method: str) -> Any:
        def checked(requests: Any, context: Any) -> Iterator[Any]:
            self._check(method, context)
            yield from inner(requests, context)

        return checked

    def _check(self, method: str, context: Any) -> None:
        shown = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        try:
            caller = self._access.caller(bearer_token(shown), certificate_names(context.auth_context()))
            self._access.check_method(method, caller)
        except DeniedError as error:
            self._access.note(error, context.peer(), method)
            raise CallRefusedError(error) from None


def certificate_names(auth_context: Any) -> list[str]:
    """The names in a client's certificate that TLS has verified, none without one."""
    return [
        name.decode("utf-8", "replace")
        for key in ("x509_subject_alternative_name", "x509_common_name")
        for name in auth_context.get(key, ())
    ]


def _of_requests(handler: Any) -> Any:
    """The handler as a function of an iterator of requests."""
    if handler.request_streaming:
        return handler.stream_stream if handler.response_streaming else handler.stream_unary
    single = handler.unary_stream if handler.response_streaming else handler.unary_unary
    return lambda requests, context: single(next(requests), context)


def _nobody_serves(_: Any, context: Any) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
