"""Reads a call's request, the innermost of the interceptors: who calls, and whether there is room, is known.

Every call is served as a stream, whose messages are read when they are asked for. So nothing but gRPC's first
window is taken in before somebody asks, and the wait for a message has a limit: a caller that opens a call
and sends nothing holds its thread for `FIRST_MESSAGE_S` and is cut off.

Many such callers at once would still hold all threads of a service. So at most half of its threads wait for
messages: when one more begins to wait, the connection with the most waiting calls loses the one that has
waited longest. A client that means its call sends the request with it and waits for nothing; should it be
cut off all the same, it hears CANCELLED, which our clients take for "ask again".
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
"""From the moment that a thread takes the call."""
NEXT_MESSAGE_S: Final = 30.0
"""Between two messages of a stream."""
_OTHERS_WAITING_MAX: Final = 2
"""Of a service without a limit of its own: its calls run on the few quick threads."""
_LOOK_EVERY_S: Final = 0.25


class NoRequestError(StatusError):
    """The call ended, or was cut off, before its request was there: nobody hears this."""

    kind = ErrorKind.RETRYABLE
    status = grpc.StatusCode.CANCELLED


class BadRequestError(StatusError):
    """The request is none of its method: without a message, or with one that cannot be parsed."""


@dataclass(frozen=True)
class _Wait:
    """A call whose message is awaited, until `end_s` (monotonic)."""

    context: Any
    service: str
    connection: str
    end_s: float


class SlowCallers:
    """Cuts off calls whose message is late; one thread for all of them. `late` is told of each.

    `waiting_max`: by full name of service, how many of its calls may wait for a message at once.
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
        """Inside, a message of the call is waited for, at most so long, and while there is room to wait."""
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
        """Cuts nobody off any more. Repeatable."""
        self._stopped.set()
        self._thread.join(timeout=5.0)

    def _one_too_many(self, coming: _Wait) -> list[Any]:
        """Takes out who makes room for the coming call; the lock is held."""
        waiting = {key: wait for key, wait in self._waiting.items() if wait.service == coming.service}
        if len(waiting) < self._waiting_max.get(coming.service, _OTHERS_WAITING_MAX):
            return []
        of_connection = Counter([coming.connection, *(wait.connection for wait in waiting.values())])
        # Of equal ones `max` takes the first, which has waited longest.
        key = max(waiting, key=lambda each: of_connection[waiting[each].connection])
        return [self._waiting.pop(key).context]

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
    """Makes of every handler one that takes a stream of bytes. `unread`: methods whose request says nothing
    that their answer needs; they are answered without it.
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
        """The next message; None after the last."""
        with self._slow.awaited(context, service_of(method), limit_s):
            try:
                content: bytes = next(requests)
            except StopIteration:
                return None
            except grpc.RpcError:
                raise NoRequestError("the call ended before its request was there") from None
        return content


def _parsed(parse: Any, content: bytes, method: str) -> Any:
    try:
        return parse(content)
    except Exception as error:
        # Whatever a parser says of a stranger's bytes.
        raise BadRequestError(f"{method}: the request cannot be parsed: {type(error).__name__}") from None
