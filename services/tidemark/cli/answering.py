"""The table's coordinator for commands that can do without one."""

from __future__ import annotations

from typing import Final

import grpc

from tidemark.config import TableConfigFile
from tidemark.config.run_file import read_run_file
from tidemark.console.admin_client import AdminClient, NobodyAnswersError, connect
from tidemark.stream_runtime.rpc.errors import RpcError

_NOT_NOW: Final = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})


def answering_coordinator(config: TableConfigFile, config_file: str) -> AdminClient | None:
    """The client of the coordinator, or None when none answers."""
    needs_run = config.kafka.embedded or not config.services.coordinator.port
    if needs_run and read_run_file(config.state.path) is None:
        return None
    try:
        return connect(config_file)
    except NobodyAnswersError:
        return None
    except RpcError as error:
        if error.status in _NOT_NOW:
            return None
        raise
