"""The reports of a writer that is no longer the writer: late, twice, for an attempt that others write."""

from __future__ import annotations

import contextlib
from typing import Final

from tests.chaos.cluster import TABLE, Cluster
from tidemark.config import load_config
from tidemark.console.admin_client import AdminClient
from tidemark.errors import ErrorKind, TidemarkError
from tidemark.hudi_format.table_services.operations import CompactionPlan
from tidemark.stream_runtime.rpc.errors import RpcError
from tidemark.stream_writer.coordinator_client import GrpcCoordinator, PlannedEpoch
from tidemark.stream_writer.table_services.services_client import GrpcServices

_MESSAGE_BYTES: Final = 4 << 20
_ASK_S: Final = 0.3
_NAME: Final = "stray"


class StrayWriter:
    """Asks the coordinator as a writer does, and writes nothing."""

    def __init__(self, cluster: Cluster) -> None:
        config = load_config(cluster.admin_config())
        self._address = config.services.coordinator
        self._coordinator = GrpcCoordinator(self._address, TABLE, _NAME, _MESSAGE_BYTES)
        self._admin = AdminClient(config)
        self._last: PlannedEpoch | None = None

    def fail_open_attempt(self) -> bool:
        """Whether there was an attempt to report; its real writer may be writing it."""
        with contextlib.suppress(RpcError):
            planned = self._coordinator.next_epoch(_ASK_S)
            if planned is not None:
                for _ in range(2):
                    with contextlib.suppress(RpcError):
                        self._coordinator.report_failed(planned, _NAME, checksum_mismatch=False)
                self._last = planned
                return True
        return False

    def fail_open_service(self) -> bool:
        """Whether there was a service action whose tasks somebody works on, or may begin: it is told that
        they failed, in the name of who has them. After three such reports the action is void. (To ask for the
        tasks is not enough: the writer is as fast, and then they do not fail.)
        """
        with contextlib.suppress(TidemarkError):
            for kind in self._admin.services()[0].kinds:
                if kind.open is None or kind.open.step != "planned":
                    continue
                services = GrpcServices(
                    self._address, TABLE, kind.open.worker or _NAME, _MESSAGE_BYTES, _no_plan_is_read
                )
                try:
                    services.report_service_failed(kind.open.number, _NAME, 0, [])
                    return True
                finally:
                    services.close()
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
        self._admin.close()


def _no_plan_is_read(_: object) -> CompactionPlan:
    raise AssertionError("a stray worker begins nothing")
