"""Channels to other services: every call has a deadline, every failure is a
`stream_runtime.rpc.errors.RpcError`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from tidemark.config.model import Address
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.rpc.call_details import CallDetails
from tidemark.stream_runtime.rpc.errors import from_grpc
from tidemark.stream_runtime.rpc.renewed_channel import RenewedChannel
from tidemark.stream_runtime.rpc.send_request_id import SendRequestId
from tidemark.stream_runtime.rpc.server import MESSAGE_BYTES_MAX
from tidemark.stream_runtime.rpc.show_token import ShowToken
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity

DEADLINE_S: Final = 10.0
_CONNECT_MS: Final = 5_000
"""For one try at a connection, handshakes included: less, and a busy machine never gets through one."""
_RECONNECT_MS_MIN: Final = 100
_RECONNECT_MS_MAX: Final = 1_000
_KEEPALIVE_MS: Final = 10_000
_KEEPALIVE_TIMEOUT_MS: Final = 5_000

T = TypeVar("T")


def open_channel(
    address: Address,
    *,
    deadline_s: float = DEADLINE_S,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    security: ClientSecurity = IN_THE_CLEAR,
) -> grpc.Channel:
    """A channel whose calls carry a request id and end within `deadline_s` unless they say otherwise.
    Connects lazily, and again. Raises SecurityConfigError where its token would travel in the clear.
    """
    security.token_for(address)
    options = _options(message_bytes_max)
    if security.server_name is not None:
        options.append(("grpc.ssl_target_name_override", security.server_name))
    channel: grpc.Channel
    if security.credentials is None:
        channel = grpc.insecure_channel(str(address), options=options)
    else:
        channel = RenewedChannel(
            security.credentials, lambda newest: grpc.secure_channel(str(address), newest, options=options)
        )
    return grpc.intercept_channel(
        channel,
        _DefaultDeadline(deadline_s),
        SendRequestId(SystemIds()),
        ShowToken(lambda: security.token_for(address)),
    )


def _options(message_bytes_max: int) -> list[tuple[str, int | str]]:
    return [
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", message_bytes_max),
        # Despite its name the time that a try may take.
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        # A peer that vanished without closing is noticed by pings, also between calls.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # Without it a ping that no frozen peer answers is waited for a minute.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # A proxy of the environment has no business between services of one machine or cluster.
        ("grpc.enable_http_proxy", 0),
    ]


def call(method: Callable[..., T], request: Any, timeout_s: float | None = None) -> T:
    """Calls one method of a stub that answers once. Raises RpcError by kind."""
    try:
        return method(request, timeout=timeout_s)
    except grpc.RpcError as error:
        name = getattr(method, "_method", "call")
        raise from_grpc(name.decode() if isinstance(name, bytes) else str(name), error) from None


class _DefaultDeadline(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamUnaryClientInterceptor
):
    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s

    def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._ending(client_call_details), request)

    def intercept_unary_stream(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        return continuation(self._ending(client_call_details), request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._ending(client_call_details), request_iterator)

    def _ending(self, details: Any) -> Any:
        return details if details.timeout is not None else CallDetails(details, timeout_s=self._deadline_s)
