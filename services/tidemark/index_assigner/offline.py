"""The door through which the command line comes in: it imports nothing else of the assigner.

Here are the checks of an assigner's start, for `tidemark doctor` and `config check`: configuration, table,
and machine.

They call the same functions as the start itself, and change nothing. Two checks are left to the coordinator's
rehearsal, which covers more: the number of lanes, and the topics of a table that was never served.
"""

from __future__ import annotations

from tidemark.config import TableConfigFile
from tidemark.config.model import InputStart
from tidemark.hudi_format.metadata_table import MetadataTableSnapshot
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage import Storage
from tidemark.hudi_format.table_config import read_table_config
from tidemark.index_assigner.adapters import TOPICS_RECORD, check_topics
from tidemark.index_assigner.assign_stage import check_cache_free
from tidemark.index_assigner.index.limits import check_memory, limits_of
from tidemark.index_assigner.input.positions import recorded_starts
from tidemark.index_assigner.shuffle.configured_keyer import configured_keyer
from tidemark.stream_runtime.clock import Clock
from tidemark.stream_runtime.kafka.ports import KafkaClient


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
    if config.input.start is InputStart.LATEST:
        recorded_starts(storage)
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
