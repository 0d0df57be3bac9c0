"""Makes the metadata table of a new, empty table (METADATA_TABLE.md, section 9.2). In this order:

1. `hoodie.properties` of the metadata table,
2. for `files`, for `record_index`, and for `column_stats` if they are wanted: the folder, a log file of 80
   bytes for each file group (there is nothing to be indexed yet, so no base file), the deltacommit that makes
   them count,
3. the definitions of the record index and of the column stats,
4. the names of the partitions in the data table's properties. Before this step engines see a table without a
   metadata table, after it one with its indexes.

A run that died in between is repeated, and finds what it made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemark.hudi_format import table_keys as keys
from tidemark.hudi_format.commit.instants import complete, completed_file, create_inflight, create_requested
from tidemark.hudi_format.errors import AlreadyExistsError, UnsupportedTableError
from tidemark.hudi_format.file_group.names import LogFileName
from tidemark.hudi_format.index_definitions import (
    IndexKind,
    column_stats_definition,
    record_index_definition,
)
from tidemark.hudi_format.metadata_table.delta_commit import empty_log
from tidemark.hudi_format.metadata_table.own_stats import own_folder, types_of_stats
from tidemark.hudi_format.metadata_table.partitions.column_stats import COLUMN_STATS
from tidemark.hudi_format.metadata_table.partitions.files import FILES
from tidemark.hudi_format.metadata_table.partitions.partition import METADATA_TABLE_PATH, MetadataPartition
from tidemark.hudi_format.metadata_table.partitions.record_index import RECORD_INDEX
from tidemark.hudi_format.metadata_table.partitions_in_use import NEEDED
from tidemark.hudi_format.metadata_table.record_schema import commit_schema
from tidemark.hudi_format.metadata_table.stats_layout import STATS_GROUPS
from tidemark.hudi_format.model import InstantGenerator, shard_ids
from tidemark.hudi_format.properties import format_properties
from tidemark.hudi_format.publication.unfenced import Unfenced
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage, join_path
from tidemark.hudi_format.table_config import read_properties, table_checksum, update_properties
from tidemark.hudi_format.timeline import DATA_ROOT, METADATA_TABLE_ROOT, Action, load_timeline
from tidemark.hudi_format.timeline.avro_records import SCHEMA_KEY, CommitMetadata, encode_commit_metadata

INDEX_DEFINITIONS_PATH: Final = ".hoodie/.index_defs/index.json"
OPERATION_BULK_INSERT_PREPPED: Final = "BULK_INSERT_PREPPED"
INITIAL_TOKEN: Final = "0-0-0"


def bootstrap_metadata_table(
    storage: Storage,
    num_shards: int,
    instants: InstantGenerator,
    *,
    kind: IndexKind = IndexKind.GLOBAL,
    completions: Sequence[str] = (),
    stats: Sequence[str] = (),
) -> None:
    """Gives a new, empty table its metadata table with a record index, and with column stats of the columns
    `stats`, if any.

    The number of shards cannot be changed afterwards. A partitioned index begins without file
    groups: the commit that first writes a data partition makes that partition's, and `num_shards` is not
    used. `completions` are the completion times of the bootstrap commits, for a caller whose run may be
    repeated by another process; by default they are those of now.

    The caller holds the table's lock, or is the only one that knows the table. Raises UnsupportedTableError
    for a table with commits or with another metadata table, and for a number of shards out of range.
    """
    shards_max = RECORD_INDEX.shards_max
    if kind is IndexKind.GLOBAL and not 1 <= num_shards <= shards_max:
        raise UnsupportedTableError(f"index.shards is {num_shards}", f"Choose 1 to {shards_max} shards")
    properties = read_properties(storage)
    if load_timeline(storage, DATA_ROOT).instants:
        raise UnsupportedTableError(
            f"{storage.base_uri} has commits already",
            "Let Hudi on Spark build its record index, then adopt the table",
        )
    if properties.get(keys.METADATA_PARTITIONS):
        raise UnsupportedTableError(
            f"{storage.base_uri} has a metadata table ({properties[keys.METADATA_PARTITIONS]})",
            "Adopt the table",
        )
    table = properties[keys.NAME]
    _create(storage, f"{METADATA_TABLE_ROOT}/hoodie.properties", _metadata_properties(table))
    instants.observe(load_timeline(storage, METADATA_TABLE_ROOT).times())
    made = bootstrapped_partitions(stats)
    times = completions or [instants.next() for _ in made]
    shards = {
        FILES.name: FILES.shards_max,
        RECORD_INDEX.name: num_shards if kind is IndexKind.GLOBAL else 0,
        COLUMN_STATS.name: STATS_GROUPS,
    }
    types = _types(properties, stats)
    for number, partition in enumerate(made):
        instant = f"{number:017d}"
        file_ids = [partition.file_id(shard) for shard in shard_ids(shards[partition.name])]
        is_stats = partition is COLUMN_STATS
        metadata = own_folder(instant, stats, types) if is_stats else partition_metadata(instant, 1)
        _bootstrap_partition(storage, instant, partition.name, metadata, file_ids, times[number])
    _create(storage, INDEX_DEFINITIONS_PATH, _index_definitions(kind, stats))
    update_properties(
        storage,
        {
            keys.METADATA_PARTITIONS: ",".join(sorted(partition.name for partition in made)),
            keys.INDEX_DEFINITIONS_PATH: INDEX_DEFINITIONS_PATH,
        },
    )


def bootstrapped_partitions(stats: Sequence[str]) -> tuple[MetadataPartition[Any, Any], ...]:
    """The partitions of a new table, in the order of their bootstrap commits."""
    return (*NEEDED, COLUMN_STATS) if stats else NEEDED


def _types(properties: Mapping[str, str], stats: Sequence[str]) -> dict[str, str]:
    """The types of the columns `stats`, by the schema with which the table was made."""
    text = properties.get(keys.CREATE_SCHEMA) if stats else None
    return types_of_stats(TableSchema.from_avro(text, properties[keys.NAME]), stats) if text else {}


def _bootstrap_partition(
    storage: Storage, instant: str, partition: str, metadata: bytes, file_ids: list[str], completion: str
) -> None:
    """Makes the folder, its file groups, and the deltacommit that makes them count."""
    folder = join_path(METADATA_TABLE_PATH, partition)
    _create(storage, join_path(folder, ".hoodie_partition_metadata"), metadata)
    for file_id in file_ids:
        _create(
            storage,
            join_path(folder, str(LogFileName(file_id, instant, 1, INITIAL_TOKEN))),
            empty_log(instant),
        )
    if completed_file(storage, instant, METADATA_TABLE_ROOT) is not None:
        return
    by = Unfenced(storage)
    requested = create_requested(by, instant, Action.DELTA_COMMIT, root=METADATA_TABLE_ROOT)
    inflight = create_inflight(by, requested, root=METADATA_TABLE_ROOT)
    commit = CommitMetadata(
        extra_metadata={SCHEMA_KEY: commit_schema()}, operation_type=OPERATION_BULK_INSERT_PREPPED
    )
    complete(by, inflight, completion, encode_commit_metadata(commit), root=METADATA_TABLE_ROOT)


def partition_metadata(instant: str, depth: int) -> bytes:
    """Content of `.hoodie_partition_metadata`. `instant` made the folder; `depth` is how many folders below
    the table's base it is.
    """
    return format_properties(
        {"commitTime": instant, "partitionDepth": str(depth)}, "partition metadata"
    ).encode("ascii")


def _metadata_properties(table: str) -> bytes:
    """`hoodie.properties` of the metadata table (METADATA_TABLE.md, section 9.1)."""
    name = f"{table}_metadata"
    properties = {
        keys.NAME: name,
        keys.TYPE: "MERGE_ON_READ",
        keys.VERSION: "9",
        "hoodie.table.initial.version": "9",
        keys.LAYOUT_VERSION: "2",
        keys.TIMELINE_PATH: "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        keys.BASE_FILE_FORMAT: "HFILE",
        keys.RECORD_KEY_FIELDS: "key",
        keys.KEY_GENERATOR_TYPE: "HOODIE_TABLE_METADATA",
        keys.POPULATE_META_FIELDS: "false",
        keys.MERGE_MODE: "CUSTOM",
        keys.MERGE_STRATEGY_ID: "00000000-0000-0000-0000-000000000000",
        keys.PAYLOAD_CLASS: "org.apache.hudi.metadata.HoodieMetadataPayload",
        keys.DROP_PARTITION_COLUMNS: "false",
        keys.CHECKSUM: str(table_checksum(name)),
    }
    return format_properties(properties, "Made by Tidemark").encode("ascii")


def _index_definitions(kind: IndexKind, stats: Sequence[str]) -> bytes:
    definitions = {RECORD_INDEX.name: record_index_definition(kind)}
    if stats:
        definitions[COLUMN_STATS.name] = column_stats_definition(stats)
    return json.dumps({"indexDefinitions": definitions}, indent=2).encode()


def _create(storage: Storage, path: str, data: bytes) -> None:
    """Makes a file, or finds the one with the same content that an earlier, interrupted run made."""
    try:
        storage.create(path, data)
    except AlreadyExistsError as error:
        if storage.read(path) != data:
            raise UnsupportedTableError(
                f"{storage.base_uri}/{path} exists, with another content than that of a new table",
                "Start with an empty folder, or adopt the table that is there",
            ) from error
