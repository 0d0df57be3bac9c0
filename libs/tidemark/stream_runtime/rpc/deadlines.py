"""How long a call may take: the caller's deadline, and the server's own limit for the method.

A handler runs on a thread that nobody can take away from it, so it has to ask: every wait inside a call takes
`left_s`, every long loop looks at `is_wanted`. A call whose time was over before its turn came is not begun.
"""

from __future__ import annotations

import contextvars
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.errors import DeadlineExceededError
from tidemark.stream_runtime.rpc.handler_interceptor import Handler, HandlerInterceptor

LONGEST_S: Final = 60.0
"""Of a method that no limit is named for."""


@dataclass(frozen=True)
class _Call:
    clock: Clock
    ends_s: float
    context: Any


_current: contextvars.ContextVar[_Call | None] = contextvars.ContextVar("call", default=None)


def left_s(most_s: float) -> float:
    """Seconds that the call of this thread may still take, at most `most_s`; never negative."""
    call = _current.get()
    return most_s if call is None else max(min(most_s, call.ends_s - call.clock.monotonic_s()), 0.0)


def is_wanted() -> bool:
    """Whether somebody still waits for the answer: the caller is there, and the time is not over."""
    call = _current.get()
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
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)
