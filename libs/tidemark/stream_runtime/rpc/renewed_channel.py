"""A channel that is opened anew when the files changed that its credentials come from: gRPC reads a client's
certificate and authority once a channel, and would go on showing a certificate that has expired.

Calls under way stay on the channel that they began on. That one is closed at the next renewal, weeks later as
a rule: until then it is idle.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

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
