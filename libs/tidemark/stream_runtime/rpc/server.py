"""The gRPC server that every service of ours runs: limits, health, reflection, TLS, access, errors by kind.

Limits for strangers:

- the number of connections (those without calls make room for new ones: `connections`), and the time of a
  handshake, of an idle connection and of any connection;
- the number of calls of a connection, and for each service its calls and threads (`admission`);
- the time until a request comes, the number of calls that wait for one (`reading`), and its size.

A caller without access is refused before the request is read (`AccessInterceptor` is outside `reading`). That
holds for methods that do not exist, too, so such a caller does not learn which methods there are.

Everybody may call `Check` and `List` of the health service. They are answered without reading the request,
because a stranger's request may be large or never come. `Check` answers for the process, whatever service the
request names; `List` answers for every service. With the role `read` a caller may `Watch` one service by
name.

Beyond loopback the server listens only if calls are encrypted and callers known (`security`), or the
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
    """The caller may not make this call. The status is UNAUTHENTICATED if other credentials would help, else
    PERMISSION_DENIED.
    """

    def __init__(self, denied: DeniedError) -> None:
        super().__init__(str(denied))
        status = grpc.StatusCode
        self.status = status.UNAUTHENTICATED if denied.is_unknown else status.PERMISSION_DENIED


class AccessInterceptor(HandlerInterceptor):
    """Lets a call pass to its handler if `access` allows it, else raises CallRefusedError."""

    def __init__(self, access: AccessControl) -> None:
        self._access = access

    def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        def handler_of(details: Any) -> Any:
            handler = continuation(details)
            if handler is None and not self._access.is_open:
                return grpc.stream_unary_rpc_method_handler(_nobody_serves)
            return handler

        return super().intercept_service(handler_of, handler_call_details)

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
    """The names in the client's certificate, which TLS has verified; [] without one."""
    return [
        name.decode("utf-8", "replace")
        for key in ("x509_subject_alternative_name", "x509_common_name")
        for name in auth_context.get(key, ())
    ]


def _nobody_serves(_: Any, context: Any) -> None:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")


UNREAD: Final = frozenset({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/List"})
"""Methods that are answered without reading their requests."""
_PROCESS: Final = ""


class HealthServicer(health.HealthServicer):  # type: ignore[misc] # the library has no types
    """The health service. Statuses are set by service name; the empty name stands for the process."""

    def __init__(self) -> None:
        # A Watch holds a thread while it runs, like our other calls; the health service has its own threads.
        super().__init__(experimental_non_blocking=False)

    def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:  # noqa: N802 - gRPC's name
        """The status of the process, whatever service the request names."""
        with self._lock:
            return health_pb2.HealthCheckResponse(status=self._server_status[_PROCESS])

    def List(self, request: Any, context: Any) -> health_pb2.HealthListResponse:  # noqa: N802
        """The status of every service."""
        with self._lock:
            shown = dict(self._server_status)
        answers = {name: health_pb2.HealthCheckResponse(status=status) for name, status in shown.items()}
        return health_pb2.HealthListResponse(statuses=answers)


MESSAGE_BYTES_MAX: Final = 64 << 20
REQUEST_BYTES_MAX: Final = 4 << 20
"""The limit of a message to a server, whatever its responses may have, because many callers may send at once.
Larger requests are sent in parts.
"""
_ROOM_TO_LOOK: Final = Room(threads=8, most=8)
_STREAMS_MAX: Final = 128
_HANDSHAKE_MS: Final = 10_000
_IDLE_MS: Final = 60_000
# After that time a connection takes no new calls; running ones go on.
_AGE_MS: Final = 30 * 60_000
_KEEPALIVE_MS: Final = 30_000
_KEEPALIVE_TIMEOUT_MS: Final = 10_000
_STOP_GRACE_S: Final = 5.0
_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})

Register = Callable[[grpc.Server], None]


class RpcServer:
    """A running server. `address` has the port that it listens on, also when port 0 was asked for."""

    def __init__(
        self,
        server: grpc.Server,
        health_servicer: HealthServicer,
        names: Sequence[str],
        address: Address,
        ends_with_it: ExitStack,
    ) -> None:
        """`ends_with_it` is closed after the server has stopped."""
        self._ends_with_it = ends_with_it
        self._server = server
        self._health = health_servicer
        self._names = names
        self._shown: dict[str, bool] = {}
        self.address = address

    def set_serving(self, serving: bool, *names: str) -> None:
        """Sets what the health service answers for these services; without names for all and the process."""
        status = health_pb2.HealthCheckResponse
        for name in names or ("", *self._names):
            # Every status that is set is sent to those who watch, so only changes are set.
            if self._shown.get(name) is not serving:
                self._shown[name] = serving
                self._health.set(name, status.SERVING if serving else status.NOT_SERVING)

    def stop(self, grace_s: float = _STOP_GRACE_S) -> None:
        """Takes no new calls, and cancels running ones that do not end within `grace_s`. Repeatable."""
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
    """Starts a server. The health service says NOT_SERVING until `set_serving(True)`.

    - `services`: full names in proto, each with a function that adds the servicer.
    - `security` None: unencrypted, and everybody who reaches the port may do everything.
    - `message_bytes_max`: the limit of a response; a request also has at most `REQUEST_BYTES_MAX`.
    - `interceptors`: inside our own (`interceptor_chain`), outermost first.
    - `longest_s`: full path of a method -> limit of its calls, for those without the usual one (`Deadlines`).
    - `clock` None: the machine's own.

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
            f"cannot listen on {listen}: another process has the port, or the host is not this machine"
        )
    newcomers = RoomForNewcomers(port, calls, connections.kept, clock, lambda: refused.add(TOO_SLOW))
    ends_with_it.callback(newcomers.close)
    running = RpcServer(server, health_servicer, names, Address(listen.host, port), ends_with_it)
    running.set_serving(False)
    server.start()
    return running


def _listening(server: grpc.Server, listen: Address, security: ServerSecurity) -> int:
    """The port that the server listens on, 0 if it cannot."""
    try:
        if security.tls is None:
            return server.add_insecure_port(str(listen))
        return server.add_secure_port(str(listen), security.tls.grpc_credentials())
    except RuntimeError:
        return 0


def _rooms(names: Sequence[str]) -> dict[str, Room]:
    """The limits by service, and by path for unread methods. Calls of Watch and reflection may hold a thread
    for long, so there may be only a few.
    """
    return {
        **dict.fromkeys(names, OF_A_SERVICE),
        **dict.fromkeys((health.SERVICE_NAME, reflection.SERVICE_NAME), _ROOM_TO_LOOK),
        **dict.fromkeys(UNREAD, QUICK),
    }


def _options(message_bytes_max: int, connections_max: int) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", min(message_bytes_max, REQUEST_BYTES_MAX)),
        ("grpc.max_send_message_length", message_bytes_max),
        # Else two processes could listen on one port, and each would get some of the calls.
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
