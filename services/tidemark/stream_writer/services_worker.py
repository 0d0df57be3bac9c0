"""Puts the loop of table services together, for the writer's process and for `tidemark services serve`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tidemark.commit.v1 import commit_pb2
from tidemark.config import TableConfigFile
from tidemark.config.table_services_model import ServicesRun
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_services.operations import CompactionPlan
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.security.client import ClientSecurity
from tidemark.stream_writer.failpoints import WriterFailpoint
from tidemark.stream_writer.same_table import check_same_ledger
from tidemark.stream_writer.table_services.services_client import GrpcServices, read_plan
from tidemark.stream_writer.table_services.services_loop import MergeEngine, MergeSettings, ServicesLoop

_ENDS_S: Final = 10.0


def share_in_writer(config: TableConfigFile) -> float:
    """The part of the writer's slots that services take, as configured; 0 if they do not run there."""
    services = config.table_services
    return services.share if services.enabled and services.run is ServicesRun.WRITER else 0.0


def open_services(config: TableConfigFile, ids: IdSource, security: ClientSecurity) -> GrpcServices:
    """The coordinator's calls about services. It opens the table's folder at the first plan: before that the
    table may not exist.
    """

    def plan_of(begun: commit_pb2.BeginServiceResponse) -> CompactionPlan:
        storage = open_storage(config.table.path)
        check_same_ledger(config, storage, begun.ledger)
        return read_plan(storage, begun.plan_path, begun.plan_sha256)

    return GrpcServices(
        config.services.coordinator,
        config.table.name,
        ids.uuid(),
        config.limits.rpc_message_bytes,
        plan_of,
        security,
    )


def services_loop(
    config: TableConfigFile,
    coordinator: GrpcServices,
    engine: MergeEngine,
    scratch: Path | None,
    reached: Callable[[WriterFailpoint], None] = lambda _: None,
) -> ServicesLoop:
    """The loop. `scratch`: a folder of this machine for what does not fit the memory; None: executors run
    elsewhere, and take Spark's local folders there.
    """
    services = config.table_services
    if scratch is not None:
        scratch.mkdir(parents=True, exist_ok=True)
    settings = MergeSettings(
        open_storage(config.table.path).base_uri,
        services.task_memory_bytes,
        "" if scratch is None else str(scratch),
    )
    return ServicesLoop(coordinator, engine, settings, reached)


@contextmanager
def beside_epochs(loop: ServicesLoop, cancel: Callable[[], None]) -> Iterator[None]:
    """Runs the loop on a thread of its own until the block is left; then `cancel` ends a wave that runs. What
    is merged stays prepared, and the action is handed out again.
    """
    stop = threading.Event()
    thread = threading.Thread(target=loop.run, args=(stop,), name="table-services", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        cancel()
        thread.join(_ENDS_S)
