"""The interceptors of a server of ours as one list, and how each wraps a method's handler.

Order, outermost first: errors by kind, then what the caller of `start_server` adds (who may call what), then
the handler. An error that an inner one raises, at the call or in a handler that it returns, becomes the
status of its kind.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import grpc

from stream_runtime.rpc.errors import status_of

Handler = Callable[[Any, Any], Any]
"""Of (request, or an iterator of requests; servicer context); a streaming one answers an iterator."""
_log = logging.getLogger("tidemark.rpc")


def interceptor_chain(added: Sequence[grpc.ServerInterceptor] = ()) -> list[grpc.ServerInterceptor]:
    """All interceptors of a server, outermost first; `added` stand inside ours."""
    return [ErrorsByKind(), *added]


class HandlerInterceptor(grpc.ServerInterceptor):
    """Wraps every handler; a subclass says what happens around one that answers once, and around one that
    streams. `method` is the full path, `/package.Service/Method`.

    A handler that sends by itself, without holding a thread (health's `Watch`), is left as it is.
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
        if getattr(behavior, "experimental_non_blocking", False):
            return handler
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
    if status is grpc.StatusCode.INTERNAL:
        _log.exception("unexpected error in %s", method)
        context.abort(status, f"{type(error).__name__}: {error}")
    context.abort(status, str(error))
