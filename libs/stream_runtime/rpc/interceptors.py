"""The interceptors of a server of ours, as one list.

Outermost first: the call gets its request id, its errors become statuses, its deadline holds; then come those
that the caller of `start_server` adds (who may call what), then the handler. An error that an inner one
raises, at the call or in a handler that it returns, becomes the status of its kind, with details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import grpc

from stream_runtime.clock import Clock, SystemClock
from stream_runtime.ids import IdSource, SystemIds
from stream_runtime.rpc.deadlines import Deadlines
from stream_runtime.rpc.errors_by_kind import ErrorsByKind
from stream_runtime.rpc.request_ids import RequestIds

_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})


def interceptor_chain(
    added: Sequence[grpc.ServerInterceptor] = (),
    longest_s: Mapping[str, float] = _NO_LIMITS,
    clock: Clock | None = None,
    ids: IdSource | None = None,
) -> list[grpc.ServerInterceptor]:
    """All interceptors of a server. `longest_s`: limits of methods (`Deadlines`). `clock` and `ids`: the
    machine's own when not given.
    """
    deadlines = Deadlines(clock or SystemClock(), longest_s)
    return [RequestIds(ids or SystemIds()), ErrorsByKind(), deadlines, *added]
