"""Whether there is room for a call, and which threads it runs on: decided before anything of it is read.

Every service of a process has threads of its own and a limit of calls that run on them or wait for them. So
calls of one service cannot keep those of another from being answered: readers that fill the admin service,
or strangers that fill the health service, leave the leases alone. Calls that are answered without being read
(`QUICK`), and refusals, share a few threads, since none of them ever waits for its caller.

Within a service at most so many calls of a group of methods run at once (`CallGroups`). Without this, calls
that wait for long would keep the threads from the service's other methods: nobody would see the status while
many wait for a flush. A call enters its groups before its request is read, so that one that never comes holds
no more than its place.

gRPC's own limit of calls stands above all of these; a call that it turns away is counted as well.
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
"""Of one server, refusals that are still to be sent included: gRPC's own limit."""
_QUICK_THREADS: Final = 4


class TooManyCallsError(StatusError):
    """Ask again a little later."""

    kind = ErrorKind.RETRYABLE
    status = grpc.StatusCode.RESOURCE_EXHAUSTED
    error_reason = "TOO_MANY_CALLS"
    retry_after_s = 1.0


@dataclass(frozen=True)
class Room:
    """What a service has: `threads` of its own; `most` calls that run on them or wait for one."""

    threads: int
    most: int


OF_A_SERVICE: Final = Room(threads=32, most=128)
QUICK: Final = Room(threads=0, most=256)
"""For calls that are answered without being read."""


def service_of(method: str) -> str:
    """The full name of the service in a method's path."""
    return method.lstrip("/").partition("/")[0]


class _Place:
    """One call's place among those of its service; given back once, at the latest when nobody holds it."""

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
        # gRPC had no room for the call and dropped its handler without running it.
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
    """The outermost interceptor of a server.

    `rooms`: by full name of service, or path of a method that has a room of its own; methods of others, which
    nobody serves, are answered on the quick threads. `refusals`: what is laid around a refusal (request id,
    status). `too_many` is told of each call that is turned away for want of room.
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
        """Begins no call any more; those under way are not waited for. Repeatable."""
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
    # The library looks for this attribute where it hands a call to a thread (`_select_thread_pool_for_…`).
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
    """`what` they are, for the error; `methods` by full path; `most` at once."""

    what: str
    methods: frozenset[str]
    most: int


class CallGroups(HandlerInterceptor):
    """A method may be in several groups; one that is in none has no limit of its own."""

    def __init__(self, groups: Sequence[CallGroup], too_many: Callable[[], None] = lambda: None) -> None:
        """``too_many`` is told of each call that is refused here."""
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
