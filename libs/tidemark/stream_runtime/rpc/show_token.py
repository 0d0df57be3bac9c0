"""Shows the process's token with every call (`authorization: Bearer …`), asked for anew each time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from tidemark.stream_runtime.rpc.call_details import CallDetails


class ShowToken(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """`token` gives the newest one; None shows nothing."""

    def __init__(self, token: Callable[[], str | None]) -> None:
        self._token = token

    def _with_token(self, details: Any) -> Any:
        token = self._token()
        if token is None:
            return details
        return CallDetails(
            details, metadata=[*(details.metadata or ()), ("authorization", f"Bearer {token}")]
        )

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request_iterator)

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request_iterator)
