"""Describes and checks a table's folder without a coordinator, and notes that an input topic was removed."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.commit_coordinator.input.watch import read_record
from tidemark.commit_coordinator.opening.configured_stats import OtherStats, other_stats
from tidemark.commit_coordinator.opening.table_creation import is_half_made
from tidemark.commit_coordinator.opening.table_description import describe_configured
from tidemark.commit_coordinator.opening.table_open import definition_of, given_shards, read_table
from tidemark.commit_coordinator.opening.topics_setup import RECORD, TopicsChangedError, former_record
from tidemark.config import TableConfigFile
from tidemark.epoch_protocol.input_topics import INPUT_TOPICS_PATH, InputTopics, encode_input_topics
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.base import Storage
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.hudi_format.table_config import TableConfig
from tidemark.hudi_format.validation import without_stats


def describe(config: TableConfigFile) -> dict[str, Any]:
    """The document of `tidemark table describe`. Raises as `describe_table`."""
    return describe_configured(config, open_storage(config.table.path), given_shards(config))


def check_table(config: TableConfigFile, storage: Storage, served: bool) -> TableConfig:
    """Makes the checks of a coordinator's start on the table (`open_table`), and creates none.

    `served`: a coordinator answers, so the pending write may be its own, and is no reason to refuse. Raises
    as `read_table`, whose errors say what to do.
    """
    begun = served or storage.exists(RECORD)
    if begun:
        return read_table(config, storage, None, without_stats).config
    return read_table(config, storage).config


def is_half_made_here(config: TableConfigFile, storage: Storage) -> bool:
    """Whether the configured table's creation was begun and has not ended; `open_table` finishes it."""
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    return is_half_made(storage, definition_of(config, schema))


def other_stats_here(config: TableConfigFile, storage: Storage) -> OtherStats | None:
    """As `other_stats`."""
    return other_stats(config, storage)


def remove_topic(config: TableConfigFile, storage: Storage, name: str) -> None:
    """Notes that a topic which left the configuration is not read any more. No coordinator may run.

    Raises TopicsChangedError when the topic is still configured, or the table never read it.
    """
    if name in config.input.topics:
        raise TopicsChangedError(f"{config.file}: take {name} out of input.topics first")
    record = read_record(storage)
    former = dict(record.topics) or former_record(config, storage)
    if name not in former:
        known = ", ".join(former) or "none"
        raise TopicsChangedError(f"this table never read a topic {name}; those that it reads: {known}")
    former[name] = msgspec.structs.replace(former[name], removed=True)
    storage.replace(INPUT_TOPICS_PATH, encode_input_topics(InputTopics(former)))
