"""The innermost interceptor: reads a call's request, after the caller is known and there is room for the
call.

Every call is served as a stream, whose messages are read only when they are needed. So before that the server
receives no more than gRPC's first window. The wait for a message has a limit: a call without a request holds
its thread for `FIRST_MESSAGE_S`, and is cancelled then.

Many such calls could still hold all threads of a service. So at most half of its threads may wait for
messages. If one more call begins to wait, one is cancelled: of the connection with the most waiting calls the
one that has waited longest. An honest client sends the request together with the call and hardly waits. If
its call is cancelled all the same, it gets CANCELLED, after which our clients repeat the call.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import grpc

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.rpc.admission import service_of
from tidemark.stream_runtime.rpc.errors import StatusError

FIRST_MESSAGE_S: Final = 5.0
"""How long the first message may take, from the moment that a thread takes the call."""
NEXT_MESSAGE_S: Final = 30.0
"""How long the next message of a stream may take."""
_OTHERS_WAITING_MAX: Final = 2
"""How many calls may wait of a service without a limit of its own, which runs on the few quick threads."""
_LOOK_EVERY_S: Final = 0.25


class NoRequestError(StatusError):
    """The call ended or was cancelled before its request came. No caller gets this error."""

    kind = ErrorKind.RETRYABLE
    status = grpc.StatusCode.CANCELLED


class BadRequestError(StatusError):
    """The call has no message, or one that cannot be parsed as its method's request."""


@dataclass(frozen=True)
class _Wait:
    """A call that waits for a message until `end_s` (monotonic time)."""

    context: Any
    service: str
    connection: str
    end_s: float


class SlowCallers:
    """Cancels calls whose message is late, by one thread for all. `late` is called for each of them.

    `waiting_max`: full name of a service -> how many of its calls may wait for a message at once.
    """

    def __init__(self, clock: Clock, late: Any, waiting_max: Mapping[str, int]) -> None:
        self._clock = clock
        self._late = late
        self._waiting_max = waiting_max
        self._lock = threading.Lock()
        # In the order in which they began to wait.
        self._waiting: dict[int, _Wait] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="rpc-slow-callers", daemon=True)
        self._thread.start()

    @contextmanager
    def awaited(self, context: Any, service: str, limit_s: float) -> Iterator[None]:
        """The call may wait inside for a message: for `limit_s`, and as long as it need not make room."""
        wait = _Wait(context, service, context.peer(), self._clock.monotonic_s() + limit_s)
        with self._lock:
            one_too_many = self._one_too_many(wait)
            self._waiting[id(context)] = wait
        self._cut_off(one_too_many)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(id(context), None)

    def close(self) -> None:
        """Ends the thread, so no late call is cancelled any more. Repeatable."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _one_too_many(self, coming: _Wait) -> list[Any]:
        """Removes the call that must make room for `coming`, and returns its context; [] if there is room.
        The caller holds the lock.
        """
        waiting = {key: wait for key, wait in self._waiting.items() if wait.service == coming.service}
        if len(waiting) < self._waiting_max.get(coming.service, _OTHERS_WAITING_MAX):
            return []
        of_connection = Counter([coming.connection, *(wait.connection for wait in waiting.values())])
        # Of several with the same count `max` takes the first, which has waited longest.
        longest = max(waiting, key=lambda key: of_connection[waiting[key].connection])
        return [self._waiting.pop(longest).context]

    def _cut_off(self, contexts: list[Any]) -> None:
        for context in contexts:
            self._late()
            context.cancel()

    def _watch(self) -> None:
        while not self._stopped.wait(_LOOK_EVERY_S):
            now_s = self._clock.monotonic_s()
            with self._lock:
                late = [key for key, wait in self._waiting.items() if wait.end_s <= now_s]
                contexts = [self._waiting.pop(key).context for key in late]
            self._cut_off(contexts)


class Reading(grpc.ServerInterceptor):
    """Turns every handler into one that takes a stream of bytes, and reads and parses the request itself.

    `unread`: methods that are answered without reading the request, because the answer does not need it.
    """

    def __init__(self, slow: SlowCallers, unread: frozenset[str]) -> None:
        self._slow = slow
        self._unread = unread

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        parse = handler.request_deserializer or (lambda content: content)
        if method in self._unread:
            inner = self._answering_unread(handler)
        elif handler.request_streaming:
            inner = self._streaming(handler, method, parse)
        else:
            inner = self._single(handler, method, parse)
        make: Any = grpc.stream_unary_rpc_method_handler
        if handler.response_streaming:
            make = grpc.stream_stream_rpc_method_handler
        return make(inner, None, handler.response_serializer)

    def _answering_unread(self, handler: Any) -> Any:
        return lambda _, context: handler.unary_unary(None, context)

    def _single(self, handler: Any, method: str, parse: Any) -> Any:
        behavior = handler.unary_stream if handler.response_streaming else handler.unary_unary

        def read(requests: Any, context: Any) -> Any:
            content = self._next(requests, context, method, FIRST_MESSAGE_S)
            if content is None:
                raise BadRequestError(f"{method} takes exactly one message")
            return behavior(_parsed(parse, content, method), context)

        return read

    def _streaming(self, handler: Any, method: str, parse: Any) -> Any:
        behavior = handler.stream_stream if handler.response_streaming else handler.stream_unary

        def messages(requests: Any, context: Any) -> Iterator[Any]:
            limit_s = FIRST_MESSAGE_S
            while (content := self._next(requests, context, method, limit_s)) is not None:
                yield _parsed(parse, content, method)
                limit_s = NEXT_MESSAGE_S

        return lambda requests, context: behavior(messages(requests, context), context)

    def _next(self, requests: Any, context: Any, method: str, limit_s: float) -> bytes | None:
        """The next message; None after the last. Raises NoRequestError if the call ended."""
        with self._slow.awaited(context, service_of(method), limit_s):
            try:
                content: bytes = next(requests)
            except StopIteration:
                return None
            except grpc.RpcError:
                raise NoRequestError("the call ended before its request came") from None
        return content


def _parsed(parse: Any, content: bytes, method: str) -> Any:
    try:
        return parse(content)
    except Exception as error:
        # A parser may raise anything for a stranger's bytes.
        raise BadRequestError(f"{method}: the request cannot be parsed: {type(error).__name__}") from None
