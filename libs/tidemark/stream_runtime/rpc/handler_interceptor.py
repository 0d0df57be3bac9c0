"""How an interceptor of a server wraps the handlers of methods; which there are: `interceptors`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import grpc

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
