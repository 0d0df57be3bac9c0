"""Records per CPU second of the assign stage, without Kafka: tag, place, encode, stage, promote.

    python -m bench.assign_rate [--keys 300000] [--batch 20000] [--batches 40] [--memory-mib 64 ...]

A table with an ordering field and ten columns is filled with inserts and promoted epoch by epoch, then
random keys of it are updated. Each ``--memory-mib`` is one run: what the hot cache cannot hold comes from
RocksDB. Compression of messages is the producer's and not in it. Prints one JSON line per measurement.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from testing.ids import SeededIds
from tidemark.epoch_protocol.batches import (
    KEYED_COLUMNS,
    KeyedOp,
    decode_batch,
    encode_batch,
    with_user_columns,
)
from tidemark.epoch_protocol.messages import EncodedBatch, produced_ranges
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot, bootstrap_metadata_table
from tidemark.hudi_format.model import InstantGenerator
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.record_index_hash import record_index_shard
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import MergeMode, TableDefinition, TableType
from tidemark.index_assigner.assign.emit import EmitLimits, Emitter, outgoing
from tidemark.index_assigner.assign.keyed_batch import keyed_batch
from tidemark.index_assigner.assign.placement import InsertLease, Placement, Want
from tidemark.index_assigner.assign.tagger import BatchTagger
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import IndexLimits
from tidemark.index_assigner.index.rocks import RocksTier
from tidemark.index_assigner.index.slice_values import OrderingParts
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.shuffle.keyed_source import KeyedSlice
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import SystemClock

SHARDS: Final = 8
LANES: Final = 8
PARTITIONS: Final = 10
NAMES: Final = TopicNames("rate")
SCHEMA: Final = TableSchema.from_arrow(
    "rate",
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("day", pa.string(), nullable=False),
            pa.field("at", pa.int64(), nullable=False),
            pa.field("carrier", pa.string()),
            pa.field("origin", pa.string()),
            pa.field("destination", pa.string()),
            pa.field("distance", pa.int32()),
            pa.field("delay", pa.float64()),
            pa.field("cancelled", pa.bool_()),
            pa.field("note", pa.string()),
        ]
    ),
)


class NewGroups:
    """Leases of a new file group for every 50,000 inserts of a partition."""

    def __init__(self) -> None:
        self._made = 0

    def lease(self, wants: Sequence[Want]) -> list[InsertLease]:
        leases = []
        for want in wants:
            for _ in range(-(-want.records // 50_000)):
                self._made += 1
                leases.append(InsertLease(want.partition_path, f"{self._made:08d}-bench-0", 50_000))
        return leases


def keyed_slices(numbers: np.ndarray[tuple[int], np.dtype[np.int64]], at: int) -> list[KeyedSlice]:
    """The keys' rows as the keyed topic holds them, lane by lane; decoded from messages, as they come."""
    count = len(numbers)
    keys = pa.array([f"flight-{n:012d}" for n in numbers])
    days = pa.array([f"2024-01-{n % PARTITIONS + 1:02d}" for n in numbers])
    shards = record_index_shard(keys, SHARDS)
    ours = [
        keys,
        pa.array(shards),
        days.dictionary_encode(),
        pa.array(np.full(count, at, np.int64)),
        pa.array(np.full(count, KeyedOp.UPSERT, np.int8)),
    ]
    user = [
        keys,
        days,
        pa.array(np.full(count, at, np.int64)),
        pa.array(["UA"] * count),
        pa.array(["EWR"] * count),
        pa.array(["SFO"] * count),
        pa.array((numbers % 3000).astype(np.int32)),
        pa.array(numbers / 7),
        pa.array(numbers % 50 == 0),
        pa.array(["on time, gate B22"] * count),
    ]
    rows = pa.RecordBatch.from_arrays([*ours, *user], schema=with_user_columns(KEYED_COLUMNS, SCHEMA.arrow))
    slices = []
    for lane in range(LANES):
        part = rows.filter(pa.array(shards % LANES == lane))
        slices.append(KeyedSlice(str(lane), 0, 1, [decode_batch(encode_batch(part))]))
    return slices


@dataclass
class Rates:
    """CPU seconds of this process, all threads (RocksDB's too), by step."""

    tag_s: float = 0.0
    encode_s: float = 0.0
    stage_s: float = 0.0
    promote_s: float = 0.0
    records: int = 0

    def line(self, what: str, memory_mib: int, bytes_out: int, tiers: dict[str, float]) -> str:
        total = self.tag_s + self.encode_s + self.stage_s + self.promote_s
        return json.dumps(
            {
                "what": what,
                "memory_mib": memory_mib,
                "records": self.records,
                "records_per_cpu_second": round(self.records / total),
                "us_per_record": {
                    "tag": round(self.tag_s / self.records * 1e6, 2),
                    "encode": round(self.encode_s / self.records * 1e6, 2),
                    "stage": round(self.stage_s / self.records * 1e6, 2),
                    "promote": round(self.promote_s / self.records * 1e6, 2),
                },
                "bytes_out_per_record": round(bytes_out / self.records),
                "answered": {name: int(n) for name, n in tiers.items() if name.startswith("keys_")},
            }
        )


class Stage:
    """The assign stage's parts over a real table and RocksDB, driven by hand."""

    def __init__(self, folder: Path, memory_mib: int) -> None:
        clock = SystemClock()
        storage = open_storage(str(folder / "table"))
        create_table(
            storage,
            TableDefinition(
                name="rate",
                table_type=TableType.MERGE_ON_READ,
                record_key_fields=("id",),
                partition_fields=("day",),
                ordering_fields=("at",),
                schema=SCHEMA.avro_json,
            ),
        )
        bootstrap_metadata_table(storage, SHARDS, InstantGenerator(clock))
        limits = IndexLimits(memory_mib << 20, 10 << 30)
        self.locations = Locations(LANES)
        self.rocks = RocksTier(folder / "index", "bench", limits.rocks_memory)
        ordering = OrderingParts(
            SCHEMA, MergeMode.EVENT_TIME_ORDERING, OrderingField.of(SCHEMA, "at"), True, 86_400_000
        )
        self.index = TieredIndex(
            storage, self.rocks, self.locations, SHARDS, LANES, True, limits, ordering, clock
        )
        placement = Placement(NewGroups(), self.locations, SeededIds(1))
        self.tagger = BatchTagger(self.index, self.locations, placement, clock, True, 86_400_000)
        self.emitter = Emitter(SCHEMA, self.locations, LANES, EmitLimits(1 << 20, 16 << 20))
        snapshot = MetadataTableSnapshot.load(storage)
        for lane in range(LANES):
            self.index.open_lane(lane, snapshot)
        self.offset = 0
        self.bytes_out = 0

    def run(self, slices: list[KeyedSlice], rates: Rates) -> None:
        """One transaction, all but Kafka."""
        started = time.process_time()
        batch = keyed_batch(slices, SCHEMA, self.locations)
        tagged = self.tagger.tag(batch)
        tagged_at = time.process_time()
        encoded = self.emitter.encode(tagged)
        self._messages(encoded)
        encoded_at = time.process_time()
        for lane, changes in tagged.staged.items():
            self.index.stage(lane, changes)
        self.index.counted(range(LANES), self.offset)
        self.offset += 1
        rates.tag_s += tagged_at - started
        rates.encode_s += encoded_at - tagged_at
        rates.stage_s += time.process_time() - encoded_at
        rates.records += len(batch)

    def _messages(self, encoded: list[EncodedBatch]) -> None:
        outgoing(encoded, NAMES, "nonce", SCHEMA.fingerprint)
        produced_ranges(encoded, range(len(encoded)))
        self.bytes_out += sum(len(each.value) for each in encoded)

    def promote(self, rates: Rates) -> None:
        """As after an epoch's commit."""
        started = time.process_time()
        self.index.promote(self.offset, f"{20240101000000000 + self.offset}", self.offset)
        rates.promote_s += time.process_time() - started


def measure(folder: Path, memory_mib: int, keys: int, batch: int, batches: int) -> None:
    """Prints the rates of inserts and of updates."""
    stage = Stage(folder, memory_mib)
    inserts = Rates()
    for first in range(0, keys, batch):
        stage.run(keyed_slices(np.arange(first, min(first + batch, keys)), 1), inserts)
        if stage.offset % 4 == 0:
            stage.promote(inserts)
    stage.promote(inserts)
    print(inserts.line("inserts", memory_mib, stage.bytes_out, stage.index.stats()), flush=True)
    updates, before = Rates(), stage.index.stats()
    stage.bytes_out = 0
    dice = np.random.default_rng(1)
    for number in range(batches):
        numbers = dice.choice(keys, min(batch, keys), replace=False)
        stage.run(keyed_slices(numbers, number + 2), updates)
        if stage.offset % 4 == 0:
            stage.promote(updates)
    after = {name: value - before.get(name, 0.0) for name, value in stage.index.stats().items()}
    print(updates.line("updates in place", memory_mib, stage.bytes_out, after), flush=True)
    stage.rocks.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=300_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--memory-mib", type=int, nargs="+", default=[512, 16])
    arguments = parser.parse_args()
    for memory_mib in arguments.memory_mib:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), memory_mib, arguments.keys, arguments.batch, arguments.batches)


if __name__ == "__main__":
    main()
