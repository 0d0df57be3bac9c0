"""Decides whether there is room for a call and on which threads it runs, before its request is read.

There are three limits:

1. Every service of a process has threads of its own, and a limit of calls that run on them or wait for them.
   So calls of one service cannot block another: if callers fill the admin service or the health service,
   leases are renewed all the same. Calls that are answered without being read (`QUICK`) and refusals share a
   few threads, because none of them waits for its caller.
2. Of a group of methods of a service only so many calls run at once (`CallGroups`). Otherwise calls that wait
   for long would take all threads of their service: `status` would not be answered while many wait for a
   flush. A call enters its groups before its request is read.
3. gRPC has a limit of calls for the whole server (`CALLS_MAX`). A call that it refuses is counted, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import grpc

from tidemark.errors import ErrorKind
from tidemark.stream_runtime.rpc.errors import StatusError
from tidemark.stream_runtime.rpc.interceptors import Handler, HandlerInterceptor

CALLS_MAX: Final = 1_024
"""gRPC's limit of calls at a server, including refusals that are not sent yet."""
_QUICK_THREADS: Final = 4


class TooManyCallsError(StatusError):
    """There are too many calls at once. The caller may repeat the call a little later."""

    kind = ErrorKind.RETRYABLE
    status = grpc.StatusCode.RESOURCE_EXHAUSTED
    error_reason = "TOO_MANY_CALLS"
    retry_after_s = 1.0


@dataclass(frozen=True)
class Room:
    """The limits of a service: `threads` of its own (0: it uses the quick threads), and at most `most` calls
    that run on them or wait for one.
    """

    threads: int
    most: int


OF_A_SERVICE: Final = Room(threads=32, most=128)
QUICK: Final = Room(threads=0, most=256)
"""The limits for calls that are answered without being read."""


def service_of(method: str) -> str:
    """The full name of the service in a method's path."""
    return method.lstrip("/").partition("/")[0]


class _Place:
    """The place of one call among those of its service. It is given back once: when the call ends, or when
    this object is deleted because gRPC never ran the call.
    """

    def __init__(self, free: threading.BoundedSemaphore, dropped: Callable[[], None]) -> None:
        self._free = free
        self._dropped = dropped
        self._held = True
        self.taken = False

    def leave(self) -> None:
        if self._held:
            self._held = False
            self._free.release()

    def __del__(self) -> None:
        # Not taken: gRPC had no room for the call and dropped its handler without running it.
        if not self.taken:
            self._dropped()
        self.leave()


class _Threads:
    """The threads and places of one service."""

    def __init__(self, room: Room, pool: ThreadPoolExecutor, name: str) -> None:
        self.free = threading.BoundedSemaphore(room.most)
        self.pool = pool
        self.refusal = f"at most {room.most} calls of {name} at once: try again"


class Admission(grpc.ServerInterceptor):
    """The outermost interceptor of a server: refuses a call without room, else runs it on its service's
    threads.

    `rooms`: limits by full name of a service, or by path of a method that has limits of its own. Calls of
    other methods, which no service has, are answered on the quick threads. `refusals`: interceptors around a
    refusal (request id, status). `too_many` is called for each call that is refused for lack of room.
    """

    def __init__(
        self,
        rooms: Mapping[str, Room],
        refusals: Sequence[grpc.ServerInterceptor],
        too_many: Callable[[], None],
    ) -> None:
        self._quick = ThreadPoolExecutor(_QUICK_THREADS, thread_name_prefix="rpc-quick")
        self._nobodys = _Threads(QUICK, self._quick, "methods that nobody serves")
        self._refusals = refusals
        self._too_many = too_many
        self._threads = {name: self._of(name, room) for name, room in rooms.items()}

    def _of(self, name: str, room: Room) -> _Threads:
        prefix = f"rpc-{name.rsplit('.', 1)[-1]}"
        pool = ThreadPoolExecutor(room.threads, thread_name_prefix=prefix) if room.threads else self._quick
        return _Threads(room, pool, name)

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        threads = self._threads.get(method) or self._threads.get(service_of(method), self._nobodys)
        if not threads.free.acquire(blocking=False):
            self._too_many()
            return self._refusing(threads.refusal, handler_call_details)
        return _placed(handler, _Place(threads.free, self._too_many), threads.pool)

    def close(self) -> None:
        """Begins no further calls, and does not wait for those that run. Repeatable."""
        for threads in (self._nobodys, *self._threads.values()):
            threads.pool.shutdown(wait=False)

    def _refusing(self, text: str, details: Any) -> Any:
        def refuse(_: Any, __: Any) -> None:
            raise TooManyCallsError(text)

        made: Any = grpc.stream_unary_rpc_method_handler(refuse)
        for interceptor in reversed(self._refusals):
            made = interceptor.intercept_service(partial(_given, made), details)
        return _on(self._quick, made.stream_unary, made, streams=False)


def _given(handler: Any, _: Any) -> Any:
    return handler


def _placed(handler: Any, place: _Place, pool: ThreadPoolExecutor) -> Any:
    streams = handler.response_streaming
    inner = handler.stream_stream if streams else handler.stream_unary

    def run(requests: Any, context: Any) -> Any:
        place.taken = True
        try:
            return inner(requests, context)
        finally:
            place.leave()

    def run_stream(requests: Any, context: Any) -> Any:
        place.taken = True
        try:
            yield from inner(requests, context)
        finally:
            place.leave()

    return _on(pool, run_stream if streams else run, handler, streams=streams)


def _on(pool: ThreadPoolExecutor, behavior: Any, handler: Any, *, streams: bool) -> Any:
    # grpcio runs a call on the pool that its behavior's attribute `experimental_thread_pool` names
    # (`_select_thread_pool_for_behavior`).
    behavior_on_pool = _OwnThreads(behavior, pool)
    make: Any = grpc.stream_stream_rpc_method_handler if streams else grpc.stream_unary_rpc_method_handler
    return make(behavior_on_pool, handler.request_deserializer, handler.response_serializer)


class _OwnThreads:
    def __init__(self, behavior: Any, pool: ThreadPoolExecutor) -> None:
        self._behavior = behavior
        self.experimental_thread_pool = pool

    def __call__(self, requests: Any, context: Any) -> Any:
        return self._behavior(requests, context)


@dataclass(frozen=True)
class CallGroup:
    """Methods (by full path) of which at most `most` calls run at once. `what` names them in the error."""

    what: str
    methods: frozenset[str]
    most: int


class CallGroups(HandlerInterceptor):
    """Limits the calls of groups of methods. A method may be in several groups, or in none."""

    def __init__(self, groups: Sequence[CallGroup], too_many: Callable[[], None] = lambda: None) -> None:
        """``too_many`` is called for each call that is refused here."""
        self._too_many = too_many
        self._groups = [(group, threading.BoundedSemaphore(group.most)) for group in groups]

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        with self._entered(method):
            return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        with self._entered(method):
            yield from handler(request, context)

    @contextmanager
    def _entered(self, method: str) -> Iterator[None]:
        with ExitStack() as entered:
            for group, free in self._groups:
                if method not in group.methods:
                    continue
                if not free.acquire(blocking=False):
                    self._too_many()
                    raise TooManyCallsError(f"at most {group.most} {group.what} at once: try again")
                entered.callback(free.release)
            yield
