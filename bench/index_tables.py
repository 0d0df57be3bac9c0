"""A table whose record index lies in compacted base files and names many file groups and insert instants."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from bench.index_keys import KEYS, Int64Array, numbers_by_shard
from tidemark.hudi_format.commit.create_table import create_table
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.metadata_table.bootstrap import bootstrap_metadata_table
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX_FOLDER
from tidemark.hudi_format.metadata_table.partitions.record_index_codec import encode_values
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.model import InstantGenerator, RecordLocation
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.local import LocalStorage
from tidemark.hudi_format.table_config import TableDefinition, TableType
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.stream_runtime.clock import SystemClock

FILE_GROUPS: Final = 2_000
INSERT_INSTANTS: Final = 50
_INSTANTS_MS: Final = 1_700_000_000_000 + np.arange(INSERT_INSTANTS) * 86_400_123
_SEED: Final = 17452


def make_table_apart(
    folder: Path, kind: str, count: int, shards: int, groups: int = FILE_GROUPS, partitions: int = 1
) -> None:
    """Makes the table in a process of its own, so that its memory does not count as the index's."""
    process = multiprocessing.get_context("spawn").Process(
        target=make_table, args=(folder, kind, count, shards, groups, partitions)
    )
    process.start()
    process.join()
    if process.exitcode != 0:
        raise RuntimeError(f"the table in {folder} could not be made: exit code {process.exitcode}")


def make_table(
    folder: Path, kind: str, count: int, shards: int, groups: int = FILE_GROUPS, partitions: int = 1
) -> None:
    """A MERGE_ON_READ table without rows: its record index alone, as after a compaction.

    Each key has one of so many file groups, which lie in so many partitions, and one of 50 insert instants:
    with 2 000 groups 100 000 distinct values, where there are enough keys.
    """
    folder.mkdir(exist_ok=True)
    storage, clock = LocalStorage(str(folder)), SystemClock()
    definition = TableDefinition(
        name="t",
        table_type=TableType.MERGE_ON_READ,
        record_key_fields=("id",),
        partition_fields=("region",) if partitions > 1 else (),
        ordering_fields=("at",),
    )
    create_table(storage, definition)
    times = InstantGenerator(clock)
    bootstrap_metadata_table(storage, shards, times)
    numbers = numbers_by_shard(kind, count, shards)
    places = _locations(groups, partitions)
    compact_record_index(
        storage, times, shards, lambda shard: _base_file(kind, numbers[shard], shard, places)
    )


def compact_again(folder: Path, shards: int) -> None:
    """One more compaction of the metadata table: base files of the same content under new names."""
    storage = LocalStorage(str(folder))
    formers = sorted((folder / RECORD_INDEX_FOLDER).glob("*.hfile"))
    newest = formers[-1].name.rpartition("_")[2]
    former = {int(each.name.split("-")[2]): each for each in formers if each.name.endswith(newest)}
    compact_record_index(
        storage, InstantGenerator(SystemClock()), shards, lambda shard: former[shard].read_bytes()
    )


def compact_record_index(
    storage: LocalStorage, times: InstantGenerator, shards: int, content: Callable[[int], bytes]
) -> None:
    """A compaction of the record index after which `content` of a shard is that shard's base file (HFile)."""
    requested = create_requested(
        Unfenced(storage), times.next(), Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT
    )
    compaction = create_inflight(Unfenced(storage), requested, root=METADATA_TABLE_ROOT)
    for shard in range(shards):
        name = f"record-index-{shard:04d}-0_{shard}-0-0_{compaction.requested}.hfile"
        storage.create(f"{RECORD_INDEX_FOLDER}/{name}", content(shard))
    metadata = encode_commit_metadata(CommitMetadata(compacted=True))
    complete(Unfenced(storage), compaction, times.next(), metadata, root=METADATA_TABLE_ROOT)


def _locations(groups: int, partitions: int) -> list[RecordLocation]:
    return [
        RecordLocation(
            f"region-{number % partitions:05d}" if partitions > 1 else "",
            f"{number:08d}-0000-4000-8000-{number * 7919:012d}-0",
        )
        for number in range(groups)
    ]


def _base_file(kind: str, numbers: Int64Array, shard: int, groups: list[RecordLocation]) -> bytes:
    keys: pa.StringArray = KEYS[kind](numbers).sort()
    random = np.random.default_rng((_SEED, shard))
    located = random.integers(0, len(groups), len(keys), dtype=np.int32)
    instants = _INSTANTS_MS[random.integers(0, INSERT_INSTANTS, len(keys))]
    return write_hfile(keys, encode_values(located, groups, instants), metadata_record_schema())
