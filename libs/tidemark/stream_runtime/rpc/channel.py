"""Channels to other services. Every call has a deadline, a request id and the process's token, and `call`
turns every failure into an RpcError.

- Certificates: gRPC reads a client's certificate and authority once for each channel, so it would go on using
  a certificate that has expired. When the files change, the next call opens a new channel. Running calls stay
  on the former channel, which is closed when the files change again, usually weeks later.
- Request id: a call that is made while this process answers another one has that one's id, else a new one. An
  id that is already in the call's metadata stays.
- Token (`authorization: Bearer …`): the newest one is read for each call.
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
    """A channel that is opened anew when its credentials change. Thread-safe.

    `newest` returns the credentials: the same object until they change. `open_channel` opens a channel with
    them.
    """

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
        """Watches the state of the channel that is the newest now."""
        self.current().subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Any) -> None:
        """Ends a watch of the channel that is the newest now."""
        self.current().unsubscribe(callback)

    def close(self) -> None:
        """Closes the newest channel and the former one. Repeatable."""
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
    """One method of a service. Each call uses the channel that is the newest at that time."""

    def __init__(self, newest: Callable[[], Any]) -> None:
        self._newest = newest

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._newest()(*arguments, **named)

    def with_call(self, *arguments: Any, **named: Any) -> Any:
        """Calls the method; returns the response and the call."""
        return self._newest().with_call(*arguments, **named)

    def future(self, *arguments: Any, **named: Any) -> Any:
        """Calls the method without waiting; returns the call, which is a future of the response."""
        return self._newest().future(*arguments, **named)


class CallDetails(grpc.ClientCallDetails):
    """A copy of `details`. `timeout_s` and `metadata` replace the call's own if they are given."""

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
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds a request id to every call, of the kinds of calls that our services have."""

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

    def intercept_stream_stream(
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
    """Adds a token to every call. `token` returns the newest one; with None a call has none."""

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
"""For one attempt to connect, including handshakes. With less a busy machine would never finish one."""
_RECONNECT_MS_MIN: Final = 100
_RECONNECT_MS_MAX: Final = 250
"""A coordinator that is started again is found that soon: until then calls fail without a look."""
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
    """A channel to a service. It connects at the first call, and again after a lost connection.

    Calls without a timeout of their own have the deadline `deadline_s`. Raises SecurityConfigError if the
    token would be sent unencrypted.
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
        # Despite its name this is the time that an attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
        ("grpc.initial_reconnect_backoff_ms", _RECONNECT_MS_MIN),
        ("grpc.max_reconnect_backoff_ms", _RECONNECT_MS_MAX),
        # Pings, also between calls, notice a peer that vanished without closing the connection.
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        # Without it gRPC waits a minute for the answer to a ping of a frozen peer.
        ("grpc.http2.ping_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.keepalive_permit_without_calls", 1),
        # Services of one machine or cluster do not use a proxy that the environment names.
        ("grpc.enable_http_proxy", 0),
    ]


def call(method: Callable[..., T], request: Any, timeout_s: float | None = None) -> T:
    """Calls a method of a stub and returns its single response. Raises RpcError."""
    try:
        return method(request, timeout=timeout_s)
    except grpc.RpcError as error:
        name = getattr(method, "_method", "call")
        raise from_grpc(name.decode() if isinstance(name, bytes) else str(name), error) from None


class _DefaultDeadline(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
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

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._ending(client_call_details), request_iterator)

    def _ending(self, details: Any) -> Any:
        return details if details.timeout is not None else CallDetails(details, timeout_s=self._deadline_s)
