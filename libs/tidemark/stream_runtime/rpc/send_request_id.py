"""Sends a request id with every call of a channel: that of the call being answered here, else a new one.

A caller that has one already (its own metadata) keeps it.
"""

from __future__ import annotations

from typing import Any

import grpc

from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.rpc.call_details import CallDetails
from tidemark.stream_runtime.rpc.request_ids import REQUEST_ID, current_request_id, sent_request_id


class SendRequestId(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor
):
    """For the kinds of calls that our services have."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._named(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._named(client_call_details), request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._named(client_call_details), request_iterator)

    def _named(self, details: Any) -> Any:
        if sent_request_id(details.metadata) is not None:
            return details
        request_id = current_request_id() or self._ids.uuid()
        return CallDetails(details, metadata=[*(details.metadata or ()), (REQUEST_ID, request_id)])
