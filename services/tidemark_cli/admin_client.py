"""A thin client of `tidemark.admin.v1.Admin`: documents in, documents out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final

import grpc

from stream_runtime.config import TableConfigFile, load_config
from stream_runtime.config.run_file import resolve_addresses, why_silent
from stream_runtime.rpc.channel import call, open_channel
from stream_runtime.rpc.errors import RpcError
from stream_runtime.security.client import ClientSecurity, client_security
from tidemark.admin.v1 import admin_pb2 as pb
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark_cli.errors import CliError
from tidemark_cli.served_table import check_served

# The coordinator answers by its own deadline; the channel's comes a little later.
_MARGIN_S: Final = 5.0
_KEYS_AT_ONCE: Final = 5_000
_RETRY_S: Final = 20.0


class AdminClient:
    """One table's coordinator. Every call raises RpcError, or CliError when nobody answers."""

    def __init__(self, config: TableConfigFile, security: ClientSecurity | None = None) -> None:
        """`config` holds a real address (`resolve_addresses`); `security` None: as it says."""
        self._table = config.table.name
        self._address = config.services.coordinator
        self._file = config.file
        self._state = config.state.path
        self._channel = open_channel(
            self._address,
            message_bytes_max=config.limits.rpc_message_bytes,
            security=security or client_security(config),
        )
        self._stub = admin_pb2_grpc.AdminStub(self._channel)

    def served(self) -> tuple[str, str]:
        """The served table's path and its owner's name (`check_served`)."""
        answer = self._call(self._stub.Serves, pb.ServesRequest(table=self._table))
        return answer.path, answer.served_by

    def status(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The document of `tidemark status`."""
        answer = self._call(self._stub.Status, pb.StatusRequest(table=self._table), timeout_s)
        return dict(json.loads(answer.json))

    def flush(self, timeout_ms: int) -> dict[str, Any]:
        """Returns when all that was in the input topics at the call is committed."""
        request = pb.FlushRequest(table=self._table, timeout_ms=timeout_ms)
        answer = self._call(self._stub.Flush, request, timeout_ms / 1_000 + _MARGIN_S)
        return {"epoch": answer.epoch, "instant": answer.instant or None}

    def lookup(self, keys: Sequence[str]) -> list[dict[str, Any]]:
        """Where each key lives, in the order of the keys."""
        found: list[dict[str, Any]] = []
        for first in range(0, len(keys), _KEYS_AT_ONCE):
            part = keys[first : first + _KEYS_AT_ONCE]
            answer = self._call(self._stub.Lookup, pb.LookupRequest(table=self._table, keys=part))
            found += [_found(each) for each in answer.found]
        return found

    def epochs(self, limit: int) -> list[dict[str, Any]]:
        """Documents of the newest epochs, newest first."""
        answer = self._call(self._stub.ListEpochs, pb.ListEpochsRequest(table=self._table, limit=limit))
        return [json.loads(text) for text in answer.json]

    def epoch(self, number: int) -> dict[str, Any]:
        """The document of one epoch."""
        answer = self._call(self._stub.ShowEpoch, pb.ShowEpochRequest(table=self._table, epoch=number))
        return dict(json.loads(answer.json))

    def retry(self, number: int) -> int:
        """Has the epoch tried again that was given up; returns the number of the attempt that comes next."""
        request = pb.RetryEpochRequest(table=self._table, epoch=number)
        return int(self._call(self._stub.RetryEpoch, request, _RETRY_S).attempt)

    def pause(self, reason: str) -> None:
        """Tagging stops."""
        self._call(self._stub.Pause, pb.PauseRequest(table=self._table, reason=reason))

    def resume(self) -> None:
        """Tagging goes on."""
        self._call(self._stub.Resume, pb.ResumeRequest(table=self._table))

    def close(self) -> None:
        """Releases the channel."""
        self._channel.close()

    def __enter__(self) -> AdminClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call(self, method: Any, request: Any, timeout_s: float | None = None) -> Any:
        try:
            return call(method, request, timeout_s)
        except RpcError as error:
            if error.status is grpc.StatusCode.UNAVAILABLE and _tls_failed(str(error)):
                raise CliError(
                    f"{self._address} answers, but the two sides do not agree on TLS: compare "
                    f"security.tls of {self._file} with the coordinator's (ca, server_name, client_auth) "
                    f"({error.details})"
                ) from error
            if error.status is grpc.StatusCode.UNAVAILABLE and _nobody_there(str(error)):
                raise CliError(
                    f"no coordinator answers at {self._address} (services.coordinator in {self._file}): is "
                    f"`tidemark run -c {self._file}` running{why_silent(self._state)}?"
                ) from error
            raise


def connect(config_file: str) -> AdminClient:
    """The client for a configuration file, of a coordinator that serves this very table.

    Raises ConfigError, RpcError, CliError when nobody answers or another table of that name is served there.
    """
    config = resolve_addresses(load_config(config_file))
    client = AdminClient(config)
    try:
        check_served(config, *client.served())
    except BaseException:
        client.close()
        raise
    return client


def _tls_failed(text: str) -> bool:
    return any(sign in text for sign in ("handshake", "SSL", "Ssl", "certificate", "Peer name"))


def _nobody_there(text: str) -> bool:
    return any(sign in text for sign in ("failed to connect", "Connection refused", "Socket closed"))


def _found(each: Any) -> dict[str, Any]:
    lives = each.tier != "none" and bool(each.file_id)
    return {
        "key": each.key,
        "tier": each.tier,
        "partition_path": each.partition_path if lives else None,
        "file_id": each.file_id or None,
        "shard": each.shard,
        "ordering": each.ordering if each.has_ordering else None,
        "ordering_exact": each.ordering_exact if each.has_ordering else None,
    }
