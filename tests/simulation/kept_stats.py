"""A table with column stats of our own, made in their order: the partition, its definition, its name in the
properties.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tests.simulation.world.foreign.instants import build_instant
from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.column_ranges import ColumnRange
from tidemark.hudi_format.commit.instants import complete, create_inflight, create_requested
from tidemark.hudi_format.file_group.names import BaseFileName, LogFileName
from tidemark.hudi_format.hfile import write_hfile
from tidemark.hudi_format.hfile.reader import HFileReader
from tidemark.hudi_format.index_definitions import (
    column_stats_definition,
    read_index_definitions,
    write_index_definitions,
)
from tidemark.hudi_format.log_file import read_blocks
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.metadata_table.log_records import slice_entries
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.column_stats_codec import decode_stats
from tidemark.hudi_format.metadata_table.record_schema import metadata_record_schema
from tidemark.hudi_format.metadata_table.snapshot import MetadataTableSnapshot
from tidemark.hudi_format.model import InstantGenerator, ShardId
from tidemark.hudi_format.properties import format_properties
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_properties, update_properties
from tidemark.hudi_format.timeline import METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import CommitMetadata, encode_commit_metadata
from tidemark.stream_runtime.clock import Clock

FOLDER = ".hoodie/metadata/column_stats"


def switch_on(storage: Storage, columns: Sequence[str], groups: int, completion: str = "") -> None:
    """Makes an empty partition and lists it; another one in place of one that is there. `completion`: when
    its commit is completed; by default with the newest of the data table.
    """
    storage.delete_tree(FOLDER)
    instant = build_instant(
        {found.requested for found in load_timeline(storage, METADATA_TABLE_ROOT).instants}
    )
    for group in range(groups):
        name = str(LogFileName(COLUMN_STATS.file_id(ShardId(group)), instant, 1, "0-0-0"))
        storage.create(join_path(FOLDER, name), empty_log(instant))
    by = Unfenced(storage)
    requested = create_requested(by, instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    newest = max(load_timeline(storage).times(), default="20200101000000000")
    done = encode_commit_metadata(CommitMetadata())
    complete(by, inflight, completion or newest, done, root=METADATA_TABLE_ROOT)
    define(storage, columns)
    listed = {*read_properties(storage)[keys.METADATA_PARTITIONS].split(","), COLUMN_STATS.name}
    update_properties(storage, {keys.METADATA_PARTITIONS: ",".join(sorted(listed))})


def define(storage: Storage, columns: Sequence[str]) -> None:
    """Sets the columns of the definition, and those that the partition was made of."""
    properties = {"commitTime": "0", "partitionDepth": "1", "tidemark.columns": ",".join(columns)}
    text = format_properties(properties, "partition metadata")
    storage.replace(join_path(FOLDER, ".hoodie_partition_metadata"), text.encode())
    definitions = read_index_definitions(storage)
    write_index_definitions(storage, {**definitions, COLUMN_STATS.name: column_stats_definition(columns)})


def records(storage: Storage, instant: str) -> dict[str, dict[str, ColumnRange]]:
    """File -> column -> range, by the log files of this instant."""
    found: dict[str, dict[str, ColumnRange]] = {}
    for name in storage.names(FOLDER):
        if f"_{instant}.log." not in name:
            continue
        for block in read_blocks(storage.read(join_path(FOLDER, name)), name):
            for value in HFileReader.from_bytes(block.content, name).read_all().values.to_pylist():
                stats = decode_stats(value, "", name)
                found.setdefault(stats.file_name, {})[stats.range.column] = stats.range
    return found


def compact_and_clean(storage: Storage, clock: Clock) -> None:
    """Another engine merges the partition's log files into base files, and cleans them away."""
    snapshot = MetadataTableSnapshot.load(storage)
    times = InstantGenerator(clock)
    times.observe(snapshot.data_timeline.times() + snapshot.metadata_timeline.times())
    by, instant = Unfenced(storage), times.next()
    requested = create_requested(by, instant, Action.COMPACTION, b"plan", root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    for each in snapshot.slices[COLUMN_STATS.name]:
        parts = slice_entries(storage, FOLDER, each, snapshot.validity.is_valid)
        living = COLUMN_STATS.base_records(parts)
        keys, values = pa.array(list(living), pa.string()), pa.array(list(living.values()), pa.binary())
        name = str(BaseFileName(each.file_id, "0-0-0", instant, "hfile"))
        storage.create(join_path(FOLDER, name), write_hfile(keys, values, metadata_record_schema()))
        for log in each.log_files:
            storage.delete(join_path(FOLDER, log))
    done = encode_commit_metadata(CommitMetadata(compacted=True))
    complete(by, inflight, times.next(), done, root=METADATA_TABLE_ROOT)
