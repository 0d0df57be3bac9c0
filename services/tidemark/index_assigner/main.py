"""`tidemark assigner -c F --stages shuffle,assign`: one index-assigner process of a table."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Mapping
from typing import Final

from tidemark.config import Address, TableConfigFile
from tidemark.epoch_protocol.entries import Stage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.index_assigner.assign_stage import assign_work
from tidemark.index_assigner.bootstrap import AssignerService, Ports, shuffle_work
from tidemark.index_assigner.circles import search_seldom
from tidemark.index_assigner.failpoints import AssignerFailpoint
from tidemark.index_assigner.input.careful_frames import CarefulSettings
from tidemark.index_assigner.stage_context import StageFactory
from tidemark.stream_runtime.allocator import use_system_allocator
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.failpoint import FailpointRegistry
from tidemark.stream_runtime.ids import SystemIds
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.platform.signals import set_by_signals
from tidemark.stream_runtime.service_http import served

FACTORIES: Final[Mapping[Stage, StageFactory]] = {
    Stage.SHUFFLE: shuffle_work,
    Stage.ASSIGN: assign_work,
}


def run(
    config: TableConfigFile,
    stages: Collection[Stage] = frozenset(Stage),
    foreign_failpoints: frozenset[str] = frozenset(),
    http: Address | None = None,
) -> None:
    """Runs the stages until SIGTERM or SIGINT, and serves metrics at ``http``.

    Raises the error that stopped a stage or kept the process from starting: InputLostError, SetupError,
    RpcError, ListenError …
    """
    search_seldom()
    use_system_allocator()
    clock = SystemClock.from_environment(os.environ)
    kafka = ConfluentKafkaClient.from_config(config, clock=clock)
    ports = Ports(
        kafka=kafka,
        storage=open_storage(config.table.path),
        clock=clock,
        ids=SystemIds(),
        failpoints=FailpointRegistry.from_environment(AssignerFailpoint, os.environ, foreign_failpoints),
        careful_settings=CarefulSettings(*kafka.careful_settings()),
    )
    service = AssignerService(config, ports, {s: f for s, f in FACTORIES.items() if s in stages})
    stop = threading.Event()
    set_by_signals(stop)
    with served(http, config, service.metrics.metrics, service.ready):
        service.run(stop)
