"""Asks another service whether it serves, by gRPC's standard health protocol."""

from __future__ import annotations

import threading
from typing import Final

from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidemark.config.model import Address
from tidemark.stream_runtime.rpc.channel import call, open_channel
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_runtime.security.client import IN_THE_CLEAR, ClientSecurity

_ASK_EVERY_S: Final = 0.2
_TIMEOUT_S: Final = 2.0


def is_serving(
    address: Address, timeout_s: float = _TIMEOUT_S, security: ClientSecurity = IN_THE_CLEAR
) -> bool:
    """Whether a service answers at the address within `timeout_s` and says that it serves."""
    channel = open_channel(address, security=security)
    try:
        stub = health_pb2_grpc.HealthStub(channel)
        answer = call(stub.Check, health_pb2.HealthCheckRequest(), timeout_s)
    except RpcError:
        return False
    finally:
        channel.close()
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def wait_until_serving(
    address: Address, stop: threading.Event, security: ClientSecurity = IN_THE_CLEAR
) -> bool:
    """Waits until the service serves (True), or `stop` is set (False)."""
    while not stop.is_set():
        if is_serving(address, security=security):
            return True
        stop.wait(_ASK_EVERY_S)
    return False
