"""The reports of a writer that is no longer the writer: late, twice, for an attempt that others write."""

from __future__ import annotations

import contextlib
from typing import Final

from tests.chaos.cluster import TABLE, Cluster
from tidemark.config import load_config
from tidemark.errors import ErrorKind
from tidemark.hudi_format.table_services.operations import CompactionPlan
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer.coordinator_client import GrpcCoordinator, PlannedEpoch
from tidemark.stream_writer.table_services.services_client import GrpcServices

_MESSAGE_BYTES: Final = 4 << 20
_ASK_S: Final = 0.3


class StrayWriter:
    """Asks the coordinator as a writer does, and writes nothing."""

    def __init__(self, cluster: Cluster) -> None:
        config = load_config(cluster.admin_config())
        self._coordinator = GrpcCoordinator(config.services.coordinator, TABLE, "stray", _MESSAGE_BYTES)
        self._services = GrpcServices(
            config.services.coordinator, TABLE, "stray", _MESSAGE_BYTES, _no_plan_is_read
        )
        self._last: PlannedEpoch | None = None

    def fail_open_attempt(self) -> bool:
        """Whether there was an attempt to report; its real writer may be writing it."""
        with contextlib.suppress(RpcError):
            planned = self._coordinator.next_epoch(_ASK_S)
            if planned is not None:
                for _ in range(2):
                    with contextlib.suppress(RpcError):
                        self._coordinator.report_failed(planned, "stray", checksum_mismatch=False)
                self._last = planned
                return True
        return False

    def fail_open_service(self) -> bool:
        """Whether there was a service action whose tasks nobody had: after three such reports it is void."""
        with contextlib.suppress(RpcError):
            planned = self._services.next_service(_ASK_S)
            if planned is not None:
                self._services.report_service_failed(planned.number, "stray")
                return True
        return False

    def repeat_last(self) -> None:
        """Raises AssertionError when a report for an attempt that is over is taken."""
        assert self._last is not None
        try:
            self._coordinator.report_failed(self._last, "stray, late", checksum_mismatch=True)
        except RpcError as error:
            if error.kind in (ErrorKind.FENCED, ErrorKind.RETRYABLE):
                return
            raise
        raise AssertionError(f"the coordinator took a report for {self._last}, which is over")

    def close(self) -> None:
        self._coordinator.close()
        self._services.close()


def _no_plan_is_read(_: object) -> CompactionPlan:
    raise AssertionError("a stray worker begins nothing")
