"""What a server of ours answers by the standard health protocol.

`Check` and `List` are open to everybody, so they are answered without reading the request: a stranger's
request may be of any size, or never come. `Check` answers for the process, whatever service it names; `List`
tells of every service, and its request is empty. Who has the role `read` may `Watch` one service by name.
"""

from __future__ import annotations

from typing import Any, Final

from grpc_health.v1 import health, health_pb2

UNREAD: Final = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List"})
"""Answered without their requests."""
_PROCESS: Final = ""


class HealthServicer(health.HealthServicer):  # type: ignore[misc] # the library has no types
    """Statuses are set by service name; the empty name is the process."""

    def __init__(self) -> None:
        # Every other call of ours holds a thread while it runs, and so does Watch, on threads of its own.
        super().__init__(experimental_non_blocking=False)

    def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802 - gRPC's name
        """The process's status."""
        with self._lock:
            return health_pb2.HealthCheckResponse(status=self._server_status[_PROCESS])

    def List(self, request: Any, context: Any) -> health_pb2.HealthListResponse:  # noqa: N802
        """Every service's status."""
        with self._lock:
            shown = dict(self._server_status)
        answers = {name: health_pb2.HealthCheckResponse(status=status) for name, status in shown.items()}
        return health_pb2.HealthListResponse(statuses=answers)
