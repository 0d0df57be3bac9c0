"""At most so many calls of a group of methods at once.

A service answers on a bounded number of threads (`admission`). Without this, calls that wait for long would
keep the threads from the service's other methods: nobody would see the status while many wait for a flush. A
call enters its groups before its request is read, so that one that never comes holds no more than its place.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from tidemark.stream_runtime.rpc.admission import TooManyCallsError
from tidemark.stream_runtime.rpc.handler_interceptor import Handler, HandlerInterceptor


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
