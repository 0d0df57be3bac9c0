"""A gRPC server as every service of ours runs it: limits, health, reflection, TLS, callers, errors by kind.

Beyond loopback it listens only where calls are encrypted and callers known (`security`), or when the
configuration says `services.allow_remote: true`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, Final

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from stream_runtime.config.model import Address
from stream_runtime.rpc.access import AccessInterceptor
from stream_runtime.rpc.interceptors import interceptor_chain
from stream_runtime.security.listening import ListenError, check_listen_address
from stream_runtime.security.server import ServerSecurity, open_security

__all__ = ["MESSAGE_BYTES_MAX", "ListenError", "RpcServer", "check_listen_address", "start_server"]

MESSAGE_BYTES_MAX: Final = 64 << 20
_WORKERS: Final = 16
_CONCURRENT_CALLS_MAX: Final = 256
_STOP_GRACE_S: Final = 5.0
_NO_LIMITS: Final[Mapping[str, float]] = MappingProxyType({})

Register = Callable[[grpc.Server], None]


class RpcServer:
    """One running server. `address` is where it listens (the port is real even when 0 was asked for)."""

    def __init__(
        self, server: grpc.Server, health_servicer: Any, names: Sequence[str], address: Address
    ) -> None:
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


def start_server(
    listen: Address,
    services: Sequence[tuple[str, Register]],
    *,
    allow_remote: bool = False,
    security: ServerSecurity | None = None,
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    interceptors: Sequence[grpc.ServerInterceptor] = (),
    longest_s: Mapping[str, float] = _NO_LIMITS,
) -> RpcServer:
    """Starts serving; health says NOT_SERVING until `set_serving(True)`.

    `services`: full proto name and a function that adds the servicer. `interceptors`: outermost first, inside
    our own (`interceptor_chain`). `longest_s`: method's full path -> limit of its calls, where it is not the
    usual one (`deadlines`). `security` None: in the clear, open to whoever reaches the port. Raises
    ListenError.
    """
    security = security or open_security()
    check_listen_address(listen, allow_remote, security.config)
    server = grpc.server(
        ThreadPoolExecutor(_WORKERS, thread_name_prefix="rpc"),
        interceptors=interceptor_chain([AccessInterceptor(security.access), *interceptors], longest_s),
        maximum_concurrent_rpcs=_CONCURRENT_CALLS_MAX,
        options=[
            ("grpc.max_receive_message_length", message_bytes_max),
            ("grpc.max_send_message_length", message_bytes_max),
            # Or two processes could share one port, and each would get some of the calls.
            ("grpc.so_reuseport", 0),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
        ],
    )
    names = [name for name, _ in services]
    for _, register in services:
        register(server)
    health_servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    try:
        if security.tls is None:
            port = server.add_insecure_port(str(listen))
        else:
            port = server.add_secure_port(str(listen), security.tls.grpc_credentials())
    except RuntimeError:
        port = 0
    if port == 0:
        raise ListenError(
            f"cannot listen on {listen}: another process has it, or the host is not this machine"
        )
    running = RpcServer(server, health_servicer, names, Address(listen.host, port))
    running.set_serving(False)
    server.start()
    return running
