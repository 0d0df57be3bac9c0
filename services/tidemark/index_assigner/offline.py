"""The door through which the command line comes in: it imports nothing else of the assigner.

Here is `tidemark index warm` without an assigner, and the checks of an assigner's start, for
`tidemark doctor` and `config check`: configuration, table, and machine.

The checks call the same functions as the start itself, and change nothing. Two are left to the coordinator's
rehearsal, which covers more: the number of lanes, and the topics of a table that was never served.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidemark.config import TableConfigFile
from tidemark.hudi_format.index_definitions import read_record_index_kind
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.index_assigner.adapters import TOPICS_RECORD, check_topics, snapshot_loader
from tidemark.index_assigner.assign.warming import check_warmed
from tidemark.index_assigner.assign_stage import (
    check_cache_free,
    open_first_cache,
    table_identity,
)
from tidemark.index_assigner.domain.locations import Locations
from tidemark.index_assigner.index.limits import check_memory, limits_of
from tidemark.index_assigner.index.ports import WarmProgress
from tidemark.index_assigner.index.table_index import cache_identity, table_index
from tidemark.index_assigner.index.tiered import TieredIndex
from tidemark.index_assigner.input.positions import recorded_starts
from tidemark.index_assigner.runs.loading import SteppedLoads
from tidemark.index_assigner.shuffle.configured_keyer import configured_keyer
from tidemark.index_assigner.slots.lane_function import check_lane_function
from tidemark.ledger_client.fold_reader import FoldReader
from tidemark.ledger_client.topics import TopicNames
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.ids import IdSource
from tidemark.stream_runtime.kafka.ports import KafkaClient

_LEDGER_S: Final = 60.0


def warm_index(
    config: TableConfigFile,
    storage: Storage,
    client: KafkaClient,
    clock: Clock,
    ids: IdSource,
    say: Callable[[WarmProgress], None],
) -> WarmProgress:
    """Loads the whole index into the first cache folder; ``say`` is told about once a second how far it is.

    An interrupt costs the shard that is being loaded. Raises NotWarmedError for a partitioned index,
    CacheInUseError when an assigner has the folder, and what an assigner's start raises: KafkaError,
    SnapshotBehindError (try again) …
    """
    kind = read_record_index_kind(storage)
    check_warmed(kind)
    topics = TopicNames(config.table.name)
    folds = FoldReader(client, topics.ledger, topics.epochs, snapshot_loader(storage), clock)
    folds.catch_up(_LEDGER_S)
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    snapshot, limits = MetadataTableSnapshot.load(storage), limits_of(config.state)
    limits.check()
    lanes = config.table.index.lanes
    identity = cache_identity(table_identity(storage, ids), kind, snapshot.num_shards, lanes)
    rocks = open_first_cache(config.state.path, identity, limits.rocks_memory)
    try:
        index = table_index(
            config, storage, schema, kind, snapshot.num_shards, rocks, Locations(1), clock, SteppedLoads()
        )
        try:
            for lane in range(lanes):
                index.open_lane(lane, snapshot, folds.fold.state.known())
            return _loaded(index, clock, say)
        finally:
            index.stop()
    finally:
        rocks.close()


def _loaded(index: TieredIndex, clock: Clock, say: Callable[[WarmProgress], None]) -> WarmProgress:
    progress, said_s = index.warm(start=True), clock.monotonic_s()
    while progress.left:
        index.load_on()
        progress = index.warm(start=False)
        if clock.monotonic_s() - said_s >= 1.0:
            say(progress)
            said_s = clock.monotonic_s()
    return progress


def check_state_memory(memory_bytes: int) -> None:
    """Checks `state.memory` alone. Raises SetupError."""
    check_memory(memory_bytes)


def rehearse_start(config: TableConfigFile, storage: Storage, clock: Clock) -> None:
    """Makes the checks that need files only. Raises the error that would keep an assigner from starting:
    SetupError, CacheInUseError, SchemaError, RegistrySettingsError …
    """
    limits_of(config.state).check()
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    shards = MetadataTableSnapshot.load(storage).num_shards
    table, lanes = read_table_config(storage), config.table.index.lanes
    configured_keyer(config, storage, table, schema, shards, lanes, clock)
    check_lane_function(storage)
    recorded_starts(storage, config.input.start)
    check_cache_free(config.state.path)


def rehearse_topics(config: TableConfigFile, storage: Storage, client: KafkaClient) -> None:
    """Checks Tidemark's own topics. Does nothing before a coordinator has served the table: they may not
    exist yet. Raises SetupError, KafkaError.
    """
    if not storage.exists(TOPICS_RECORD):
        return
    admin = client.admin()
    try:
        check_topics(config, admin, storage)
    finally:
        admin.close()
