"""A name for every call, the same on both sides: in the logs, in the details of errors, in the answer.

The caller may send one as the metadata `x-request-id`: 1 to 128 of letters, digits and `._:-`. Without one,
or with one that is no such text, the server makes one. It comes back in the trailing metadata under the same
name. A call that is made while another is answered (the coordinator asks an assigner) carries that one's id.
"""

from __future__ import annotations

import contextvars
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.logging import bound
from tidemark.stream_runtime.rpc.handler_interceptor import Handler, HandlerInterceptor

REQUEST_ID: Final = "x-request-id"
_VALID: Final = re.compile(r"[A-Za-z0-9._:\-]{1,128}")
_current: contextvars.ContextVar[str | None] = contextvars.ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """Of the call that this thread answers; None outside of one."""
    return _current.get()


def sent_request_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str | None:
    """The id among a call's metadata, None when there is none that may be used."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _VALID.fullmatch(value):
            return value
    return None


@contextmanager
def answering(request_id: str) -> Iterator[None]:
    """Inside, `current_request_id` is this one, and every logged line has it as the field `request_id`."""
    token = _current.set(request_id)
    try:
        with bound(request_id=request_id):
            yield
    finally:
        _current.reset(token)


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
