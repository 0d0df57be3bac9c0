"""What stands in for network and disk while a world runs; everything behind it is the product's own code.

================================= ===================================================================
gRPC server and channel           a switchboard: a call runs the product's handler on the caller's thread
RocksDB folder                    `LightRocks`, a dictionary; a machine's crash takes its newest batches
Storage that tasks open by URI    the world's storage, as the writer's process sees it
Process that merges for a service its code, on the writer's thread
Threads that publish files        none: files are published in the order in which they are made
Thread that finds a batch's end   none
Schema registry                   a dictionary (`encoding`)
Child that reads lanes apart      its code, a task when it is asked what was found (`deadly_input`)
Waits of a reader for a message   one sleep: nothing can come while one process alone runs
Locks of `cached_property`        none: Python 3.11 has one a class, so a frozen process would hold others up
================================= ===================================================================
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Any, Final
from unittest.mock import patch

import testing.kafka.readers as memory_readers
import tidemark.commit_coordinator.bootstrap as coordinator_bootstrap
import tidemark.commit_coordinator.server as coordinator_serving
import tidemark.hudi_format.hfile.writer as hfile_writer
import tidemark.hudi_format.metadata_table.partitions.secondary_index_codec as secondary_index_codec
import tidemark.index_assigner.assign_stage as assign_wiring
import tidemark.index_assigner.bootstrap as assigner_bootstrap
import tidemark.index_assigner.index.due_loads as due_loads
import tidemark.index_assigner.index.limits as index_limits
import tidemark.index_assigner.index.table_index as table_index
import tidemark.index_assigner.input.lane_skips as lane_skips
import tidemark.record_formats.choose as choose
import tidemark.stream_writer.coordinator_client as writer_client
import tidemark.stream_writer.table_services.services_client as services_client
import tidemark.stream_writer.tasks as writer_tasks
from testing.objects.publication import ObjectAttempt, ObjectPublication
from tests.simulation.world.deadly_input import DeadlyInput
from tests.simulation.world.encoding import Registry
from tests.simulation.world.input_operator import Operator
from tests.simulation.world.process import Process
from tests.simulation.world.rocks import LightRocks
from tests.simulation.world.script import Setup
from tests.simulation.world.watched_caches import WatchedCaches
from tidemark.commit_coordinator.commit import trimming
from tidemark.commit_coordinator.table_services import kinds
from tidemark.config.model import Address
from tidemark.hudi_format.hfile.reader import HFileReader
from tidemark.hudi_format.metadata_table.shard import ShardSnapshot
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.storage.base import Storage
from tidemark.index_assigner.index.partitioned import PartitionedIndex
from tidemark.index_assigner.runs.loading import SteppedLoads

_READ_WAIT_S: Final = 3_600.0
INDEXED_BYTES_MAX: Final = 8_193
"""Of an entry of a secondary index, so that a record key which is not too long itself can be."""
_RENEW: Final = "/tidemark.commit.v1.CommitCoordinator/Renew"
Handlers = dict[str, Callable[[Any, Any], Any]]
"""Method path -> handler of (request, context)."""
Call = Callable[[Process, str, Any], Any]
"""(caller, method path, request) -> answer; raises RpcError."""


class SwitchboardServer:
    """Takes the place of `RpcServer`, and of the gRPC server that handlers are added to."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.serving = False
        self.handlers: Handlers = {}

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        return None

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self.handlers.update({f"/{service}/{name}": each.unary_unary for name, each in handlers.items()})

    def set_serving(self, serving: bool, *names: str) -> None:
        if not names:
            self.serving = serving

    def stop(self, grace_s: float = 0.0) -> None:
        self.serving = False


class _Channel:
    """Takes the place of a gRPC channel; the generated stubs ask it for their methods."""

    def __init__(self, caller: Process, call: Call) -> None:
        self._caller = caller
        self._call = call

    def unary_unary(self, path: str, **_: Any) -> Callable[..., Any]:
        return lambda request, timeout=None: self._call(self._caller, path, request)

    def stream_unary(self, path: str, **_: Any) -> Callable[..., Any]:
        """The messages come as a tuple: a call that a fault repeats finds them again."""
        return lambda requests, timeout=None: self._call(self._caller, path, tuple(requests))

    def close(self) -> None:
        return None


def _lazy_reads() -> Iterator[cached_property[Any]]:
    """The properties that read storage when they are first asked: a process can be frozen in them."""
    for owner in (HFileReader, MetadataTableSnapshot, ShardSnapshot):
        yield from (each for each in vars(owner).values() if isinstance(each, cached_property))


def _small_sizes(setup: Setup) -> Iterator[AbstractContextManager[object]]:
    """Smaller than a configuration may ask for: a world has few keys, and short values."""
    yield patch.object(secondary_index_codec, "KEY_BYTES_MAX", INDEXED_BYTES_MAX)
    yield patch.object(due_loads, "_ENTRIES_MIN", 0)
    if setup.cache_bytes:
        yield patch.object(index_limits, "STATE_MEMORY_MIN", 0)
    if setup.block_bytes:
        yield patch.object(hfile_writer, "_block_bytes", lambda _: setup.block_bytes)


def _partitioned(setup: Setup) -> Iterator[AbstractContextManager[object]]:
    """So many parts of a partitioned record index are open at once."""
    if setup.units:
        yield patch.object(table_index, "PartitionedIndex", partial(PartitionedIndex, units_max=setup.units))


def _objects() -> Iterator[AbstractContextManager[object]]:
    """Files are published as a store without folders and renames has it."""
    yield patch.object(coordinator_bootstrap, "open_publication", ObjectPublication)
    yield patch.object(writer_tasks, "attempt_of", ObjectAttempt)


class _InOrder:
    """`Publishers`, and a pool, without threads."""

    def __enter__(self) -> _InOrder:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, work: Callable[..., Any], *asked: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(work(*asked, **named))
        return done

    def shutdown(self, **_: Any) -> None:
        return None


class Edges:
    """One per world. ``building``: the process whose parts are being made."""

    def __init__(
        self,
        call: Call,
        open_cache: Callable[[Process, str], LightRocks],
        caches: WatchedCaches,
        deadly: DeadlyInput,
    ) -> None:
        self._call = call
        self._caches, self.deadly = caches, deadly
        self._open_cache = open_cache
        # A step that is frozen in the middle of a start has a thread of its own.
        self._here = threading.local()
        self.storages: dict[str, Storage] = {}

    @contextmanager
    def building(self, process: Process) -> Iterator[None]:
        """Channels, caches and servers that are made inside are the process's."""
        self._here.process = process
        try:
            yield
        finally:
            self._here.process = None

    def skips_of(self, server: SwitchboardServer) -> Operator:
        """An operator's `input skip` at the coordinator that listens there."""
        return Operator(server.handlers[_RENEW].__self__._skips)  # type: ignore[attr-defined]

    def take_server(self) -> SwitchboardServer | None:
        """The server that was started last, if it was not taken yet."""
        server: SwitchboardServer | None = getattr(self._here, "server", None)
        self._here.server = None
        return server

    @contextmanager
    def in_place(self, setup: Setup) -> Iterator[None]:
        """Inside, the product meets these edges, and has the limits of the setup."""
        patches: list[AbstractContextManager[object]] = [
            patch.object(coordinator_serving, "start_server", self._start_server),
            patch.object(assigner_bootstrap, "start_server", self._start_server),
            patch.object(assigner_bootstrap, "open_channel", self._open_channel),
            patch.object(writer_client, "open_channel", self._open_channel),
            patch.object(assign_wiring, "ThreadedLoads", SteppedLoads),
            patch.object(assign_wiring, "open_cache", lambda _, identity, memory: self._cache(identity)),
            patch.object(writer_tasks, "open_storage", self.storages.__getitem__),
            patch.object(writer_tasks, "Publishers", _InOrder),
            patch.object(choose, "ConfluentSchemaSource", Registry),
            patch.object(services_client, "open_channel", self._open_channel),
            patch.object(kinds, "ThreadPoolExecutor", lambda *_, **__: _InOrder()),
            patch.object(lane_skips, "in_background", _InOrder().submit),
            patch.object(memory_readers, "_WAIT_STEP_S", _READ_WAIT_S),
            patch.object(trimming, "EPOCHS_BETWEEN", setup.trim or 1 << 30),
            patch.object(trimming, "SECONDS_BETWEEN", 1 << 40),
            patch.object(trimming, "_SECONDS_BETWEEN_MIN", 0),
            *(patch.object(each, "lock", nullcontext()) for each in _lazy_reads()),
            *self._caches.patches(),
            *self.deadly.patches(self._owner),
            *_small_sizes(setup),
            *_partitioned(setup),
            *(_objects() if setup.store == "objects" else ()),
        ]
        with ExitStack() as stack:
            for each in patches:
                stack.enter_context(each)
            yield

    def _owner(self) -> Process:
        process: Process | None = getattr(self._here, "process", None)
        assert process is not None, "a channel, cache or server was made outside of `building`"
        return process

    def _start_server(
        self, listen: Address, services: Sequence[tuple[str, Callable[[Any], None]]], **_: Any
    ) -> SwitchboardServer:
        server = SwitchboardServer(listen)
        for _name, register in services:
            register(server)
        self._here.server = server
        return server

    def _open_channel(self, address: Address, **_: Any) -> _Channel:
        return _Channel(self._owner(), self._call)

    def _cache(self, identity: str) -> LightRocks:
        return self._open_cache(self._owner(), identity)
