"""Keys per second that one client looks up through `LookupStream`. Prints its conditions and figures.

    python -m bench.lookup_stream [--keys 1000000] [--shards 8] [--lanes 8] [--kind uuid] [--memory-mib 512]

Three processes, as in production, without Kafka and Spark: an assigner's index with its loop, which only
looks up; a coordinator's part of the call; and the client of `tidemark lookup --file`. The table is that of
`bench.index_lookups`. Each row asks for as many keys as the table has, in random order, and says what the
processes used of the CPU. "Cold" begins with an empty cache folder, and shards are loaded meanwhile.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import numpy as np
import psutil
import pyarrow as pa
from pyarrow import csv

from bench.conditions import load_average
from bench.index_keys import KEYS
from bench.index_tables import make_table_apart
from tidemark.admin.v1 import admin_pb2_grpc
from tidemark.assigner.v1 import assigner_pb2_grpc
from tidemark.cli.text_lines import text_batches
from tidemark.commit_coordinator.admin.limits import SERVICE_NAME, longest_s
from tidemark.commit_coordinator.calls.lookup_streams import LookupStreams
from tidemark.commit_coordinator.calls.lookups import LaneHolders
from tidemark.commit_coordinator.calls.members import Members
from tidemark.config.model import Address
from tidemark.console.key_stream import BATCH_KEYS, KeyStream
from tidemark.epoch_protocol.state import Committed
from tidemark.hudi_format.index_definitions import IndexKind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import MergeMode
from tidemark.index_assigner.adapters import LOOKUP_SERVICE
from tidemark.index_assigner.assign.lookups import LookupQueue, LookupService
from tidemark.index_assigner.assign.warming import WarmRequests
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.runs.loading import ThreadedLoads
from tidemark.ledger_client.asked_lanes import AskedLanes
from tidemark.stream_runtime.allocator import use_system_allocator
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.platform.arrow_alone import use_arrow_alone
from tidemark.stream_runtime.rpc.channel import open_channel
from tidemark.stream_runtime.rpc.server import start_server

_SCHEMA: Final = TableSchema.from_arrow(
    "t", pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("at", pa.int64(), nullable=False)])
)
_LOOPBACK: Final = Address("127.0.0.1", 0)
_WAIT_S: Final = 0.05
_DISK_BYTES: Final = 64 << 30
_MIB: Final = 1 << 20


def assigner(told: Connection, folder: Path, shards: int, lanes: int, memory: int) -> None:
    """Serves look-ups of the table in the folder until it is told to end."""
    use_arrow_alone()
    use_system_allocator()
    limits, clock, locations = IndexLimits(memory, _DISK_BYTES), SystemClock(), Locations(8)
    storage = LocalStorage(str(folder / "table"))
    rocks = RocksTier(folder / "rocks", "b", limits.rocks_memory)
    parts = OrderingParts(_SCHEMA, MergeMode.COMMIT_TIME_ORDERING, None, False, 0)
    index = TieredIndex(
        storage, rocks, locations, shards, lanes, False, limits, parts, clock, loads=ThreadedLoads()
    )
    for lane in range(lanes):
        index.open_lane(lane, MetadataTableSnapshot.load(storage))
    queue = LookupQueue(AskedLanes(IndexKind.GLOBAL, shards, lanes), locations, clock)
    service = LookupService("t", queue, locations, WarmRequests())
    server = start_server(
        _LOOPBACK,
        [(LOOKUP_SERVICE, lambda s: assigner_pb2_grpc.add_IndexAssignerServicer_to_server(service, s))],
    )
    told.send(server.address.port)
    # As the stage's loop: a round answers, then waits for input that never comes.
    while not told.poll(queue.wait_s(_WAIT_S)):
        queue.answer(index, range(lanes), Committed(epoch=1))
    server.stop(0.0)
    index.stop()
    rocks.close()


class _Admin(admin_pb2_grpc.AdminServicer):
    def __init__(self, streams: LookupStreams) -> None:
        self._streams = streams

    def LookupStream(self, request_iterator: Any, _: object) -> Iterator[Any]:  # noqa: N802 - gRPC's name
        return self._streams.answers(request_iterator)


def coordinator(told: Connection, port: int, shards: int, lanes: int) -> None:
    """Serves the admin call for one assigner until it is told to end."""
    use_arrow_alone()
    use_system_allocator()
    member = SimpleNamespace(address=str(Address("127.0.0.1", port)))
    holders = LaneHolders(cast(Members, SimpleNamespace(holder=lambda *_: member)))
    asked = AskedLanes(IndexKind.GLOBAL, shards, lanes)
    admin = _Admin(LookupStreams("t", holders, asked, SystemClock()))  # type: ignore[abstract]
    server = start_server(
        _LOOPBACK,
        [(SERVICE_NAME, lambda s: admin_pb2_grpc.add_AdminServicer_to_server(admin, s))],
        longest_s=longest_s(60.0),
    )
    told.send(server.address.port)
    told.recv()
    server.stop(0.0)


@contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[tuple[psutil.Process, int]]:
    """The process, and the port that it serves."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=target, args=(theirs, *arguments))
    process.start()
    try:
        yield psutil.Process(process.pid), ours.recv()
    finally:
        ours.send(None)
        process.join(30.0)


class StreamBench:
    """One client, and rows of what it asked for."""

    def __init__(self, port: int, servers: dict[str, psutil.Process], kind: str, count: int) -> None:
        self._channel = open_channel(Address("127.0.0.1", port))
        self._stub = admin_pb2_grpc.AdminStub(self._channel)
        self._processes = {**servers, "client": psutil.Process()}
        self._kind, self._count = kind, count
        self._order = np.random.default_rng(17452).permutation(count)
        self._clock = SystemClock()

    def run(self, folder: Path) -> None:
        self._row("cold, shards are loaded", self._batches())
        self._row("again", self._batches())
        self._row("again", self._batches())
        self._row("absent keys", self._batches(1))
        file = folder / "keys.txt"
        with file.open("w") as out:
            for keys in self._batches():
                out.writelines(f"{key}\n" for key in keys.to_pylist())
        with file.open("rb") as lines, (folder / "places.csv").open("wb") as out_csv:
            self._row("from a file of keys to CSV", text_batches(lines, "keys"), out_csv)
        self._channel.close()

    def _batches(self, absent: int = 0) -> Iterator[pa.StringArray]:
        for first in range(0, self._count, BATCH_KEYS):
            yield KEYS[self._kind](self._order[first : first + BATCH_KEYS] * 2 + absent)

    def _row(self, what: str, batches: Iterator[pa.StringArray], out: Any = None) -> None:
        used = self._used()
        started = last = self._clock.monotonic_s()
        between: list[float] = []
        count = rows = 0
        for answer in KeyStream(self._stub.LookupStream, "t", self._clock.sleep).answers(batches):
            count, rows = count + len(answer), rows + len(answer) - answer["file_id"].null_count
            if out is not None:
                csv.write_csv(answer, out, csv.WriteOptions(include_header=False))
            now = self._clock.monotonic_s()
            between.append(now - last)
            last = now
        wall = last - started
        cpu = ", ".join(f"{name} {after - used[name]:.1f}" for name, after in self._used().items())
        p50, p99 = np.percentile(between, [50, 99]) * 1000
        print(
            f"  {what:<28} {count / wall:>9,.0f} keys/s  ({rows} of {count} with a row, {wall:.1f} s; "
            f"CPU s: {cpu}; between answers p50 {p50:.0f} ms, p99 {p99:.0f} ms; load {load_average()[0]})",
            flush=True,
        )

    def _used(self) -> dict[str, float]:
        return {name: sum(process.cpu_times()[:2]) for name, process in self._processes.items()}


def main() -> None:
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = arguments.add_argument
    add("--keys", type=int, default=1_000_000, help="keys of the table")
    add("--shards", type=int, default=8, help="shards of the record index")
    add("--lanes", type=int, default=8, help="lanes, all of one assigner")
    add("--memory-mib", type=int, default=512, help="state.memory of the assigner")
    add("--kind", choices=list(KEYS), default="sequential", help="what the keys look like")
    chosen = arguments.parse_args()
    use_arrow_alone()
    folder = Path(tempfile.mkdtemp(prefix="tidemark-stream-"))
    print(
        f"{chosen.keys} keys ({chosen.kind}), {chosen.shards} shards, {chosen.lanes} lanes, "
        f"batches of {BATCH_KEYS}, {os.cpu_count()} CPUs, load {load_average()}"
    )
    try:
        make_table_apart(folder / "table", chosen.kind, chosen.keys, chosen.shards)
        memory = chosen.memory_mib * _MIB
        with (
            _process(assigner, folder, chosen.shards, chosen.lanes, memory) as (one, port),
            _process(coordinator, port, chosen.shards, chosen.lanes) as (two, admin_port),
        ):
            servers = {"assigner": one, "coordinator": two}
            StreamBench(admin_port, servers, chosen.kind, chosen.keys).run(folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
