"""What a server of ours lays around every handler: a request id, errors as statuses, a deadline.

All that is laid around one, outermost first:

1. `Admission`: is there room among the calls of this service, and on which threads does it run;
2. the call gets its request id, its errors become statuses, its deadline holds;
3. who calls, and may they (`AccessInterceptor`);
4. those that the caller of `start_server` adds (how many of which method at once);
5. the request is read (`Reading`), then comes the handler.

So nothing of a request is read before it is known who sends it and that there is room for it. An error that
an inner one raises, at the call or in a handler that it returns, becomes its kind's status, with details.

**Request ids.** A name for every call, the same on both sides: in the logs, in the details of errors, in the
answer. The caller may send one as the metadata `x-request-id`: 1 to 128 of letters, digits and `._:-`.
Without one, or with one that is no such text, the server makes one. It comes back in the trailing metadata
under the same name. A call that is made while another is answered (the coordinator asks an assigner) carries
that one's id.

**Errors.** The log has every failed call at level info, with its request id; UNAVAILABLE, which clients
answer by asking again, at debug, as refusals of strangers, who could fill it (`security.access` tells of
those). An exception without a kind is a defect: INTERNAL, with its traceback.

**Deadlines.** A call may take as long as its caller says, and at most as long as the server allows the
method. A handler runs on a thread that nobody can take away from it, so it has to ask: every wait inside a
call takes `left_s`, every long loop looks at `is_wanted`. A call whose time was over before its turn came is
not begun.
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
"""Of (request, or an iterator of requests; servicer context); a streaming one answers an iterator."""


class HandlerInterceptor(grpc.ServerInterceptor):
    """Wraps every handler; a subclass says what happens around one that answers once, and around one that
    streams. `method` is the full path, `/package.Service/Method`.
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
    """Of the call that this thread answers; None outside of one."""
    return _request_id.get()


def sent_request_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """The id among a call's metadata, None when there is none that may be used."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _VALID.fullmatch(value):
            return value
    return None


@contextmanager
def answering(request_id: str) -> Iterator[None]:
    """Inside, `current_request_id` is this one, and every logged line has it as the field `request_id`."""
    token = _request_id.set(request_id)
    try:
        with bound(request_id=request_id):
            yield
    finally:
        _request_id.reset(token)


class RequestIds(HandlerInterceptor):
    """Gives every call its id."""

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
            # What is bound may not stay bound while others hold the generator.
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
    """Turns an exception of a handler into the status of its kind; one without a kind is logged as a
    defect.
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
        # The handler ended the call itself: abort() tells so by an exception without content.
        raise error
    status = status_of(error)
    said = str(error)
    if status is grpc.StatusCode.INTERNAL:
        _log.exception("unexpected error in %s", method)
        said = f"{type(error).__name__}: {error}"
    else:
        level = logging.DEBUG if status in _QUIET else logging.INFO
        _log.log(level, "%s: %s %s: %s", method, status.name, reason_of(error), said)
    # It travels in the header block, with up to three characters a byte.
    said = redact_text(said).encode()[:_MESSAGE_BYTES_MAX].decode(errors="ignore")
    details = encode_details(error, status.value[0], said, current_request_id())
    context.set_trailing_metadata((*(context.trailing_metadata() or ()), (STATUS_KEY, details)))
    context.abort(status, said)


LONGEST_S: Final = 60.0
"""Of a method that no limit is named for."""


@dataclass(frozen=True)
class _Call:
    clock: Clock
    ends_s: float
    context: Any


_call: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("call", default=None)


def left_s(most_s: float) -> float:
    """Seconds that the call of this thread may still take, at most `most_s`; never negative."""
    call = _call.get()
    return most_s if call is None else max(min(most_s, call.ends_s - call.clock.monotonic_s()), 0.0)


def is_wanted() -> bool:
    """Whether somebody still waits for the answer: the caller is there, and the time is not over."""
    call = _call.get()
    return call is None or (call.context.is_active() and call.clock.monotonic_s() < call.ends_s)


class Deadlines(HandlerInterceptor):
    """`longest_s`: method's full path -> the server's limit in seconds."""

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
    """Those of step 2, then `added`. `longest_s`: limits of methods (`Deadlines`). `clock` and `ids`: the
    machine's own when not given.
    """
    deadlines = Deadlines(clock or SystemClock(), longest_s)
    return [*naming_errors(ids), deadlines, *added]


def naming_errors(ids: IdSource | None = None) -> list[grpc.ServerInterceptor]:
    """What is laid around everything that may fail, refusals too: request id, and errors as statuses."""
    return [RequestIds(ids or SystemIds()), ErrorsByKind()]
