"""Turns callers away before anything of their request is read (`reading` comes after it).

What nobody serves is guarded too: who may not call learns nothing of what there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc

from tidemark.stream_runtime.rpc.errors import StatusError
from tidemark.stream_runtime.rpc.handler_interceptor import Handler, HandlerInterceptor
from tidemark.stream_runtime.security.access import AccessControl, bearer_token
from tidemark.stream_runtime.security.errors import DeniedError
from tidemark.stream_runtime.security.roles import OPEN


class CallRefusedError(StatusError):
    """UNAUTHENTICATED where other credentials would help, else PERMISSION_DENIED."""

    def __init__(self, denied: DeniedError) -> None:
        super().__init__(str(denied))
        status = grpc.StatusCode
        self.status = status.UNAUTHENTICATED if denied.is_unknown else status.PERMISSION_DENIED


class AccessInterceptor(HandlerInterceptor):
    """Raises CallRefusedError in the place of the handler, unless `access` lets the call pass."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        def found(details: Any) -> Any:
            handler = continuation(details)
            if handler is None and not self._access.is_open:
                return grpc.stream_unary_rpc_method_handler(_nobody_serves)
            return handler

        return super().intercept_service(found, handler_call_details)

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        self._check(method, context)
        return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        self._check(method, context)
        yield from handler(request, context)

    def _check(self, method: str, context: Any) -> None:
        if self._access.is_open or method in OPEN:
            return
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


def _nobody_serves(_: Any, context: Any) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
