"""The interceptors of a server of ours, as one list.

Outermost first:

1. `Admission`: is there room among the calls of this service, and on which threads does it run;
2. the call gets its request id, its errors become statuses, its deadline holds;
3. who calls, and may they (`access`);
4. those that the caller of `start_server` adds (how many of which method at once);
5. the request is read (`Reading`), then comes the handler.

So nothing of a request is read before it is known who sends it and that there is room for it. An error that
an inner one raises, at the call or in a handler that it returns, becomes its kind's status, with details.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import grpc

from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.ids import IdSource, SystemIds
from tidemark.stream_runtime.rpc.deadlines import Deadlines
from tidemark.stream_runtime.rpc.errors_by_kind import ErrorsByKind
from tidemark.stream_runtime.rpc.request_ids import RequestIds

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
