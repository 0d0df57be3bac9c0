"""The coordinator's gRPC server, with its two services and their limits."""

from __future__ import annotations

from typing import Any

from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.commit.v1 import commit_pb2_grpc
from tidemark.commit_coordinator.admin.limits import CALL_GROUPS, longest_s
from tidemark.commit_coordinator.admin.limits import SERVICE_NAME as ADMIN_SERVICE
from tidemark.commit_coordinator.admin.service import AdminService
from tidemark.commit_coordinator.calls.service import SERVICE_NAME as COMMIT_SERVICE
from tidemark.commit_coordinator.calls.service import CommitService
from tidemark.config import TableConfigFile
from tidemark.stream_runtime.rpc.admission import CallGroups
from tidemark.stream_runtime.rpc.server import RpcServer, start_server
from tidemark.stream_runtime.security.refused_calls import TOO_MANY
from tidemark.stream_runtime.security.server import ServerSecurity


def serve(
    config: TableConfigFile, commit: CommitService, admin: AdminService, security: ServerSecurity
) -> RpcServer:
    """Starts the server. Raises ListenError."""
    services: list[tuple[str, Any]] = [
        (COMMIT_SERVICE, lambda s: commit_pb2_grpc.add_CommitCoordinatorServicer_to_server(commit, s)),
        (ADMIN_SERVICE, lambda s: admin_pb2_grpc.add_AdminServicer_to_server(admin, s)),
    ]
    return start_server(
        config.services.listening(config.services.coordinator),
        services,
        allow_remote=config.services.allow_remote,
        security=security,
        message_bytes_max=config.limits.rpc_message_bytes,
        interceptors=[CallGroups(CALL_GROUPS, lambda: security.access.refused.add(TOO_MANY))],
        longest_s=longest_s(config.verify.timeout_ms / 1000),
    )


def show_health(server: RpcServer, halted: bool) -> None:
    """Sets the commit service's health. A halted coordinator commits nothing, but answers admin calls."""
    server.set_serving(not halted, COMMIT_SERVICE)
