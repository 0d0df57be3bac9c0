"""A gRPC server as every service of ours runs it: limits, health, reflection, TLS, callers, errors by kind.

What bounds strangers: connections at a time, where those without calls make room for newcomers
(`connections`); their handshake, their idle time and age; calls of a connection; per service its calls and
threads (`admission`); the wait for a request, how many of them wait (`reading`), and its size.

Callers are turned away before anything of their request is read (`AccessInterceptor`; `reading` comes after
it). What nobody serves is guarded too: who may not call learns nothing of what there is.

Health's `Check` and `List` are open to everybody, so they are answered without reading the request: a
stranger's request may be of any size, or never come. `Check` answers for the process, whatever service it
names; `List` tells of every service, and its request is empty. Who has the role `read` may `Watch` one
service by name.

Beyond loopback it listens only where calls are encrypted and callers known (`security`), or when the
configuration says `services.allow_remote: true`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from tidemark.config.model import Address
from tidemark.stream_runtime.clock import Clock, SystemClock
from tidemark.stream_runtime.rpc.admission import CALLS_MAX, OF_A_SERVICE, QUICK, Admission, Room
from tidemark.stream_runtime.rpc.connections import CallsOfConnections, RoomForNewcomers, bounds
from tidemark.stream_runtime.rpc.errors import StatusError
from tidemark.stream_runtime.rpc.interceptors import (
    Handler,
    HandlerInterceptor,
    interceptor_chain,
    naming_errors,
)
from tidemark.stream_runtime.rpc.reading import Reading, SlowCallers
from tidemark.stream_runtime.security.access import AccessControl, bearer_token
from tidemark.stream_runtime.security.errors import DeniedError
from tidemark.stream_runtime.security.listening import AddressTakenError, check_listen_address
from tidemark.stream_runtime.security.refused_calls import TOO_MANY, TOO_SLOW
from tidemark.stream_runtime.security.roles import OPEN
from tidemark.stream_runtime.security.server import ServerSecurity, open_security


class CallRefusedError(StatusError):
    """UNAUTHENTICATED where other credentials would help, else PERMISSION_DENIED."""

    def __init__(self, denied: DeniedError) -> None:
        super().__init__(str(denied))
        status = grpc.StatusCode
        self.status = status.UNAUTHENTICATED if denied.is_unknown else status.PERMISSION_DENIED


class AccessInterceptor(HandlerInterceptor):
    """Raises CallRefusedError in the place of the handler, unless `access` lets the call pass."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        def found(details: Any) -> Any:
            handler = continuation(details)
            if handler is None and not self._access.is_open:
                return grpc.stream_unary_rpc_method_handler(_nobody_serves)
            return handler

        return super().intercept_service(found, handler_call_details)

    def around(self, method: str, handler: Handler, request: Any, context: Any) -> Any:
        self._check(method, context)
        return handler(request, context)

    def around_stream(self, method: str, handler: Handler, request: Any, context: Any) -> Iterator[Any]:
        self._check(method, context)
        yield from handler(request, context)

    def _check(self, method: str, context: Any) -> None:
        if self._access.is_open or method in OPEN:
            return
        shown = {key: value for key, value in context.invocation_metadata() if isinstance(value, str)}
        try:
            caller = self._access.caller(bearer_token(shown), certificate_names(context.auth_context()))
            self._access.check_method(method, caller)
        except DeniedError as error:
            self._access.note(error, context.peer(), method)
            raise CallRefusedError(error) from None


def certificate_names(auth_context: Any) -> list[str]:
    """The names in a client's certificate that TLS has verified, none without one."""
    return [
        name.decode("utf-8", "replace")
        for key in ("x509_subject_alternative_name", "x509_common_name")
        for name in auth_context.get(key, ())
    ]


def _nobody_serves(_: Any, context: Any) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


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


MESSAGE_BYTES_MAX: Final = 64 << 20
REQUEST_BYTES_MAX: Final = 4 << 20
"""Of one message to a server, whatever its answers may have: many callers may send at once. What is larger
is sent in parts."""
_ROOM_TO_LOOK: Final = Room(threads=8, most=8)
_STREAMS_MAX: Final = 128
_HANDSHAKE_MS: Final = 10_000
_IDLE_MS: Final = 60_000
# Calls that run go on; new ones come on another connection.
_AGE_MS: Final = 30 * 60_000
_KEEPALIVE_MS: Final = 30_000
_KEEPALIVE_TIMEOUT_MS: Final = 10_000
_STOP_GRACE_S: Final = 5.0
_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})

Register = Callable[[grpc.Server], None]


class RpcServer:
    """One running server. `address` is where it listens (the port is real even when 0 was asked for)."""

    def __init__(
        self,
        server: grpc.Server,
        health_servicer: HealthServicer,
        names: Sequence[str],
        address: Address,
        ends_with_it: ExitStack,
    ) -> None:
        """`ends_with_it` is closed once the server has stopped."""
        self._ends_with_it = ends_with_it
        self._server = server
        self._health = health_servicer
        self._names = names
        self._shown: dict[str, bool] = {}
        self.address = address

    def set_serving(self, serving: bool, *names: str) -> None:
        """What the health protocol answers for these services; none named: for all, and the whole server."""
        status = health_pb2.HealthCheckResponse
        for name in names or ("", *self._names):
            # Who watches is sent every answer that is set: only news are.
            if self._shown.get(name) is not serving:
                self._shown[name] = serving
                self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """Takes no new calls, lets running ones end within `grace_s`. Repeatable."""
        self._health.enter_graceful_shutdown()
        self._server.stop(grace_s).wait(grace_s + 1.0)
        self._ends_with_it.close()


def start_server(
    listen: Address,
    services: Sequence[tuple[str, Register]],
    *,
    allow_remote: bool = False,
    security: ServerSecurity | None = None,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    interceptors: Sequence[grpc.ServerInterceptor] = (),
    longest_s: Mapping[str, float] = _NO_LIMITS,
    clock: Clock | None = None,
) -> RpcServer:
    """Starts serving; health says NOT_SERVING until `set_serving(True)`.

    `services`: full proto name and a function that adds the servicer. `interceptors`: outermost first, inside
    our own (`interceptor_chain`). `longest_s`: method's full path -> limit of its calls, where it is not the
    usual one (`Deadlines`). `message_bytes_max`: of an answer; a request has at most `REQUEST_BYTES_MAX`
    even so. `clock` None: the machine's own. `security` None: in the clear, open to whoever reaches the port.
    Raises ListenError.
    """
    security = security or open_security()
    check_listen_address(listen, allow_remote, security.config)
    names = [name for name, _ in services]
    ends_with_it, refused = ExitStack(), security.access.refused
    clock = clock or SystemClock()
    rooms, connections = _rooms(names), bounds()
    calls = CallsOfConnections(connections.accepted)
    admission = Admission(rooms, naming_errors(), lambda: refused.add(TOO_MANY))
    ends_with_it.callback(admission.close)
    waiting_max = {name: room.threads // 2 for name, room in rooms.items()}
    slow = SlowCallers(clock, lambda: refused.add(TOO_SLOW), waiting_max)
    ends_with_it.callback(slow.close)
    inner = [AccessInterceptor(security.access), calls, *interceptors, Reading(slow, UNREAD)]
    server = grpc.server(
        ThreadPoolExecutor(1, thread_name_prefix="rpc"),
        interceptors=[admission, *interceptor_chain(inner, longest_s, clock)],
        maximum_concurrent_rpcs=CALLS_MAX,
        options=_options(message_bytes_max, connections.accepted),
    )
    for _, register in services:
        register(server)
    health_servicer = HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    port = _listening(server, listen, security)
    if port == 0:
        ends_with_it.close()
        raise AddressTakenError(
            f"cannot listen on {listen}: another process has it, or the host is not this machine"
        )
    newcomers = RoomForNewcomers(port, calls, connections.kept, clock, lambda: refused.add(TOO_SLOW))
    ends_with_it.callback(newcomers.close)
    running = RpcServer(server, health_servicer, names, Address(listen.host, port), ends_with_it)
    running.set_serving(False)
    server.start()
    return running


def _listening(server: grpc.Server, listen: Address, security: ServerSecurity) -> int:
    """The port, 0 where it cannot listen."""
    try:
        if security.tls is None:
            return server.add_insecure_port(str(listen))
        return server.add_secure_port(str(listen), security.tls.grpc_credentials())
    except RuntimeError:
        return 0


def _rooms(names: Sequence[str]) -> dict[str, Room]:
    """Each of our services by itself; Watch and reflection may hold their threads for long, and are few."""
    return {
        **dict.fromkeys(names, OF_A_SERVICE),
        **dict.fromkeys((health.SERVICE_NAME, reflection.SERVICE_NAME), _ROOM_TO_LOOK),
        **dict.fromkeys(UNREAD, QUICK),
    }


def _options(message_bytes_max: int, connections_max: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", min(message_bytes_max, REQUEST_BYTES_MAX)),
        ("grpc.max_send_message_length", message_bytes_max),
        # Or two processes could share one port, and each would get some of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_MS),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.max_concurrent_streams", _STREAMS_MAX),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        ("grpc.max_connection_idle_ms", _IDLE_MS),
        ("grpc.max_connection_age_ms", _AGE_MS),
    ]
