"""The interceptors of our servers that give every call a request id, errors as statuses, and a deadline.

All interceptors of a call, outermost first:

1. `Admission` checks that there is room among the calls of the service, and chooses the threads.
2. The interceptors of this module: the call gets its request id, its errors become statuses, its deadline is
   set.
3. `AccessInterceptor` checks who calls, and whether they may.
4. Interceptors that the caller of `start_server` adds (for instance limits of methods).
5. `Reading` reads the request; then the handler runs.

So no request is read before the server knows who sent it and that there is room. An exception of an inner
interceptor or a handler becomes the status of its kind, with details.

**Request ids.** Every call has a name that is the same on both sides: in logs, in details of errors, and in
the answer's trailing metadata. The caller may send one as metadata `x-request-id`: 1 to 128 letters, digits
and `._:-`. Otherwise the server makes one. A call that is made while another one is answered (the coordinator
asks an assigner) has the id of that one.

**Errors.** Failed calls are logged at level info with their request id. UNAVAILABLE, after which clients
repeat the call, and refusals of callers, who could fill the log, are logged at debug (`security.access` logs
refusals). An exception without a kind is a defect: INTERNAL, logged with its traceback.

**Deadlines.** A call may take as long as its caller says, and at most as long as the server allows for the
method. No other thread can interrupt a handler, so handlers check the time themselves: every wait inside a
call takes `left_s`, every long loop checks `is_wanted`. A call whose deadline has passed before it begins is
refused.
"""

from __future__ import annotations

import contextvars
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import grpc

from tidemark.redaction import redact_text
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.ids import IdSource, SystemIds
from tidemark.stream_runtime.logging import bound
from tidemark.stream_runtime.rpc.errors import STATUS_KEY, encode_details, reason_of, status_of

Handler = Callable[[Any, Any], Any]
"""Takes the request (or an iterator of requests) and the servicer context, and returns the response (or an
iterator of responses).
"""


class HandlerInterceptor(grpc.ServerInterceptor):
    """Wraps the handlers of all methods. A subclass overrides `around` for handlers with one response and
    `around_stream` for handlers with a stream of responses. `method` is the full path,
    `/package.Service/Method`.
    """

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        kind = "_".join(
            "stream" if streams else "unary"
            for streams in (handler.request_streaming, handler.response_streaming)
        )
        behavior = getattr(handler, kind)
        around = self.around_stream if handler.response_streaming else self.around
        make: Final = getattr(grpc, f"{kind}_rpc_method_handler")
        return make(
            partial(around, handler_call_details.method, behavior),
            handler.request_deserializer,
            handler.response_serializer,
        )

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        """Answers a call with one response."""
        return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        """Answers a call with a stream of responses."""
        yield from handler(request, context)


REQUEST_ID: Final = "x-request-id"
_VALID: Final = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_request_id: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """The id of the call that this thread answers; None outside of a call."""
    return _request_id.get()


def sent_request_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """The request id in a call's metadata; None if there is none, or it has a wrong form."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _VALID.fullmatch(value):
            return value
    return None


@contextmanager
def answering(request_id: str) -> Iterator[None]:
    """Inside, `current_request_id` returns this id, and logged lines have it as the field `request_id`."""
    token = _request_id.set(request_id)
    try:
        with bound(request_id=request_id):
            yield
    finally:
        _request_id.reset(token)


class RequestIds(HandlerInterceptor):
    """Gives every call its request id, and sends it back in the trailing metadata."""

    def __init__(self, ids: IdSource) -> None:
        self._ids = ids

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        with answering(self._named(context)):
            return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        request_id = self._named(context)
        with answering(request_id):
            answers = iter(handler(request, context))
        while True:
            # Bound only while the handler runs: other calls run on this thread between two answers.
            with answering(request_id):
                try:
                    answer = next(answers)
                except StopIteration:
                    return
            yield answer

    def _named(self, context: Any) -> str:
        request_id = sent_request_id(context.invocation_metadata()) or self._ids.uuid()
        context.set_trailing_metadata(((REQUEST_ID, request_id),))
        return request_id


_MESSAGE_BYTES_MAX: Final = 1_200
_QUIET: Final = frozenset(
    {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
)
_log = logging.getLogger("tidemark.rpc")


class ErrorsByKind(HandlerInterceptor):
    """Turns an exception of a handler into the status of its kind, with details. An exception without a kind
    is logged as a defect.
    """

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        try:
            return handler(request, context)
        except Exception as error:
            _abort(context, method, error)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        try:
            yield from handler(request, context)
        except Exception as error:
            _abort(context, method, error)


def _abort(context: Any, method: str, error: Exception) -> None:
    if context.code() is not None:
        # The handler ended the call itself: abort() raises an exception without a text.
        raise error
    status = status_of(error)
    said = str(error)
    if status is grpc.StatusCode.INTERNAL:
        _log.exception("unexpected error in %s", method)
        said = f"{type(error).__name__}: {error}"
    else:
        level = logging.DEBUG if status in _QUIET else logging.INFO
        _log.log(level, "%s: %s %s: %s", method, status.name, reason_of(error), said)
    # Cut, because it is sent in the header block, where a byte may take three characters.
    said = redact_text(said).encode()[:_MESSAGE_BYTES_MAX].decode(errors="ignore")
    details = encode_details(error, status.value[0], said, current_request_id())
    context.set_trailing_metadata((*(context.trailing_metadata() or ()), (STATUS_KEY, details)))
    context.abort(status, said)


LONGEST_S: Final = 60.0
"""The server's limit for methods without one of their own."""


@dataclass(frozen=True)
class _Call:
    clock: Clock
    ends_s: float
    context: Any


_call: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("call", default=None)


def left_s(most_s: float) -> float:
    """The seconds that the call of this thread may still take, at most `most_s`. Never negative; `most_s`
    outside of a call.
    """
    call = _call.get()
    return most_s if call is None else max(min(most_s, call.ends_s - call.clock.monotonic_s()), 0.0)


def is_wanted() -> bool:
    """Whether the caller still waits for the answer: it has not gone, and the deadline has not passed."""
    call = _call.get()
    return call is None or (call.context.is_active() and call.clock.monotonic_s() < call.ends_s)


class Deadlines(HandlerInterceptor):
    """Sets the deadline of every call. `longest_s`: full path of a method -> its limit in seconds."""

    def __init__(self, clock: Clock, longest_s: Mapping[str, float]) -> None:
        self._clock = clock
        self._longest_s = longest_s

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        with _within(self._begin(method, context)):
            return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        call = self._begin(method, context)
        with _within(call):
            answers = iter(handler(request, context))
        while True:
            with _within(call):
                try:
                    answer = next(answers)
                except StopIteration:
                    return
            yield answer

    def _begin(self, method: str, context: Any) -> _Call:
        asked_s = context.time_remaining()
        allowed_s = self._longest_s.get(method, LONGEST_S)
        if asked_s is not None:
            allowed_s = min(allowed_s, asked_s)
        if allowed_s <= 0:
            raise DeadlineExceededError(f"{method} was not begun: its deadline had passed when its turn came")
        return _Call(self._clock, self._clock.monotonic_s() + allowed_s, context)


@contextmanager
def _within(call: _Call) -> Iterator[None]:
    token = _call.set(call)
    try:
        yield
    finally:
        _call.reset(token)


_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})


def interceptor_chain(
    added: Sequence[grpc.ServerInterceptor] = (),
    longest_s: Mapping[str, float] = _NO_LIMITS,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> list[grpc.ServerInterceptor]:
    """The interceptors of step 2, then `added`. `longest_s`: limits of methods (`Deadlines`). `clock` and
    `ids` are the machine's own by default.
    """
    deadlines = Deadlines(clock or SystemClock(), longest_s)
    return [*naming_errors(ids), deadlines, *added]


def naming_errors(ids: IdSource | None = None) -> list[grpc.ServerInterceptor]:
    """The interceptors for request ids and for errors as statuses, which refusals have around them, too."""
    return [RequestIds(ids or SystemIds()), ErrorsByKind()]
