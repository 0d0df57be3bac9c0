"""Channels to other services: every call has a deadline, a request id and the process's token, and every
failure is a `stream_runtime.rpc.errors.RpcError`.

A channel is opened anew when the files changed that its credentials come from: gRPC reads a client's
certificate and authority once a channel, and would go on showing a certificate that has expired. Calls under
way stay on the channel that they began on. That one is closed at the next renewal, weeks later as a rule:
until then it is idle.

The request id that is sent is that of the call being answered here, else a new one; a caller that has one
already (its own metadata) keeps it. The token (`authorization: Bearer …`) is asked for anew each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import grpc

from tidemark.config.model import Address
from tidemark.stream_runtime.ids import IdSource, SystemIds
from tidemark.stream_runtime.rpc.errors import from_grpc
from tidemark.stream_runtime.rpc.interceptors import REQUEST_ID, current_request_id, sent_request_id
from tidemark.stream_runtime.rpc.server import MESSAGE_BYTES_MAX
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity

_Open = Callable[[grpc.ChannelCredentials], grpc.Channel]


class RenewedChannel(grpc.Channel):
    """`newest` gives the credentials, another object once they changed; `open_channel` uses them."""

    def __init__(self, newest: Callable[[], grpc.ChannelCredentials], open_channel: _Open) -> None:
        self._newest = newest
        self._open = open_channel
        self._lock = threading.Lock()
        self._closed = False
        self._credentials = newest()
        self._now = open_channel(self._credentials)
        self._former: grpc.Channel | None = None

    def current(self) -> grpc.Channel:
        """The channel for the next call."""
        with self._lock:
            newest = self._newest()
            if newest is not self._credentials and not self._closed:
                if self._former is not None:
                    self._former.close()
                self._former, self._now = self._now, self._open(newest)
                self._credentials = newest
            return self._now

    def unary_unary(self, *arguments: Any, **named: Any) -> Any:
        return _Callable(lambda: self.current().unary_unary(*arguments, **named))

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        return _Callable(lambda: self.current().unary_stream(*arguments, **named))

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        return _Callable(lambda: self.current().stream_unary(*arguments, **named))

    def stream_stream(self, *arguments: Any, **named: Any) -> Any:
        return _Callable(lambda: self.current().stream_stream(*arguments, **named))

    def subscribe(self, callback: Any, try_to_connect: bool = False) -> None:
        """Of the channel that there is now."""
        self.current().subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        """Of the channel that there is now."""
        self.current().unsubscribe(callback)

    def close(self) -> None:
        """Repeatable."""
        with self._lock:
            self._closed = True
            for channel in (self._now, self._former):
                if channel is not None:
                    channel.close()

    def __enter__(self) -> RenewedChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Callable:
    """One method; each call is made on the channel that is the newest then."""

    def __init__(self, newest: Callable[[], Any]) -> None:
        self._newest = newest

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._newest()(*arguments, **named)

    def with_call(self, *arguments: Any, **named: Any) -> Any:
        """The answer and the call."""
        return self._newest().with_call(*arguments, **named)

    def future(self, *arguments: Any, **named: Any) -> Any:
        """The call, whose answer comes later."""
        return self._newest().future(*arguments, **named)


class CallDetails(grpc.ClientCallDetails):
    """A copy of `details`; `timeout_s` and `metadata` replace the call's own where they are given."""

    def __init__(
        self, details: Any, *, timeout_s: float | None = None, metadata: list[tuple[str, str]] | None = None
    ) -> None:
        self.method = details.method
        self.timeout = details.timeout if timeout_s is None else timeout_s
        self.metadata = details.metadata if metadata is None else tuple(metadata)
        self.credentials = details.credentials
        self.wait_for_ready = details.wait_for_ready
        self.compression = details.compression


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
