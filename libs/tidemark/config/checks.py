"""Checks that keys of `table`, `input` and `limits` fit together, and fills in values derived from other
keys.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidemark.config.errors import ConfigError, Problems
from tidemark.config.model import (
    ConfiguredIndexKind,
    IndexConfig,
    InputConfig,
    InputFormat,
    InputFraming,
    LimitsConfig,
    TableSection,
)
from tidemark.config.partial import UNREAD, changed


def check_partitioned(problems: Problems, file: Path, config: InputConfig, table: TableSection) -> None:
    """Notes what a partitioned record index cannot be used with. Ask before columns that the schema lacks are
    removed.
    """
    if table.index.kind is not ConfiguredIndexKind.PARTITIONED:
        return
    with problems.gathered():
        if not table.partition:
            said = (
                "partitioned divides the index by data partition, and table.partition names no field: name "
                "the field whose values the partitions are, or use global"
            )
            problems.note(ConfigError(str(file), "table.index.kind", said))
    with problems.gathered():
        if config.is_sharded:
            said = (
                "must be any with table.index.kind: partitioned: a producer knows the lane of a key, and "
                "here a row's lane follows from its key and its data partition"
            )
            problems.note(ConfigError(str(file), "input.partitioning", said))


def check_input(problems: Problems, file: Path, config: InputConfig, table: TableSection) -> InputConfig:
    """Notes each setting that is missing for the format, or has no meaning with it; returns `input` without
    those.
    """
    usable = config
    for key, check in _INPUT_CHECKS.items():
        with problems.gathered():
            said = check(config, table)
            if said is not None:
                problems.note(ConfigError(str(file), f"input.{key}", said))
                usable = changed(usable, **{key.split(".")[0]: UNREAD})
    return usable


def _registry(config: InputConfig, _: TableSection) -> str | None:
    if config.format.is_avro and config.schema_registry is None:
        return f"is required with input.format: {config.format.value}: {{url: http://host:8081}}"
    return None


def _framing(config: InputConfig, _: TableSection) -> str | None:
    if config.format.is_avro and config.framing is InputFraming.NONE:
        return f"must be confluent with input.format: {config.format.value}: leave it out"
    return None


def _protobuf(config: InputConfig, _: TableSection) -> str | None:
    wanted = config.format is InputFormat.PROTOBUF
    if wanted and config.protobuf is None:
        return "is required with input.format: protobuf: {descriptor: orders.desc, message: shop.Order}"
    if not wanted and config.protobuf is not None:
        return f"has no meaning with input.format: {config.format.value}"
    return None


def _debezium(config: InputConfig, _: TableSection) -> str | None:
    if not config.format.is_debezium and config.debezium is not None:
        return f"has no meaning with input.format: {config.format.value}"
    return None


def _delete_field(config: InputConfig, _: TableSection) -> str | None:
    if config.format.is_debezium and config.delete_field is not None:
        return f"has no meaning with input.format: {config.format.value}: op says what a delete is"
    return None


def _debezium_ordering(config: InputConfig, table: TableSection) -> str | None:
    if config.format.is_debezium and config.debezium is not None and table.ordering is None:
        return "fills the column that table.ordering names: name one there, of type long"
    return None


_INPUT_CHECKS: Final[dict[str, Callable[[InputConfig, TableSection], str | None]]] = {
    "schema_registry": _registry,
    "framing": _framing,
    "protobuf": _protobuf,
    "debezium": _debezium,
    "delete_field": _delete_field,
    "debezium.ordering": _debezium_ordering,
}


_LANES_DEFAULT_MAX: Final = 8
_INPUT_PARTITIONS_DEFAULT: Final = 4
# Room in a dead letter beside the record's key and value: for the record's headers, at most 64 KiB, and ours.
_LETTER_MARGIN_BYTES: Final = 128 << 10
# (key, attribute, key and attribute of the limit that it has to be below).
_SMALLER_FIRST: Final = (
    ("key_bytes", "key_bytes", "message_bytes", "message_bytes"),
    ("record_bytes", "record_bytes", "message_bytes", "message_bytes"),
    ("batch_bytes", "batch_bytes", "message_bytes", "message_bytes"),
    ("transaction_interval", "transaction_interval_ms", "transaction_timeout", "transaction_timeout_ms"),
)


def with_lanes(file: Path, index: IndexConfig) -> IndexConfig:
    """Returns the section with the number of lanes filled in. Raises ConfigError for more lanes than
    shards, where a lane is a set of shards: with a global record index.
    """
    lanes = index.lanes or min(index.shards, _LANES_DEFAULT_MAX)
    if lanes > index.shards and index.kind is ConfiguredIndexKind.GLOBAL:
        raise ConfigError(
            str(file),
            "table.index.lanes",
            f"{lanes} lanes need at least as many shards, and there are {index.shards}",
        )
    return changed(index, lanes=lanes)


def with_partitions(file: Path, config: InputConfig, lanes: int) -> InputConfig:
    """Returns the section with the number of partitions of a new input topic filled in.

    Raises ConfigError when producers partition by shard and the number given is not that of the lanes.
    """
    by_shard = config.is_sharded
    partitions = config.partitions or (lanes if by_shard else _INPUT_PARTITIONS_DEFAULT)
    if by_shard and partitions != lanes:
        raise ConfigError(
            str(file),
            "input.partitions",
            f"must equal the {lanes} lanes when producers partition by shard: leave it out",
        )
    return changed(config, partitions=partitions)


def without_unusable_columns(problems: Problems, file: Path, table: TableSection) -> TableSection:
    """Notes each configured column that the schema lacks, and removes it. Removes the schema if it is
    invalid.
    """
    fields: list[str] = []
    with problems.gathered():
        fields = _fields(file, table.schema)
    if not fields:
        return changed(table, schema=UNREAD)

    def lacks(key: str, name: str) -> bool:
        # A dotted name reaches into a nested record; its first part must be a field of the table.
        if name.split(".")[0] in fields:
            return False
        said = f"{table.schema.name} has no field {name}; it has {', '.join(fields)}"
        problems.note(ConfigError(str(file), f"table.{key}", said))
        return True

    with problems.gathered():
        kept = tuple([name for name in table.record_key if not lacks("record_key", name)])
        table = changed(table, record_key=kept or UNREAD)
    with problems.gathered():
        table = changed(
            table, partition=tuple([name for name in table.partition if not lacks("partition", name)])
        )
    with problems.gathered():
        if table.ordering is not None and lacks("ordering", table.ordering):
            table = changed(table, ordering=UNREAD)
    return table


def _fields(file: Path, path: Path) -> list[str]:
    try:
        schema = json.loads(path.read_text("utf-8"))
        fields = [field["name"] for field in schema["fields"]]
        if schema["type"] != "record":
            raise TypeError("not a record")
        if not fields:
            raise TypeError("it has no field")
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            str(file), "table.schema", f"{path} holds no Avro record schema ({error})"
        ) from None
    return fields


def check_limits(problems: Problems, file: Path, limits: LimitsConfig) -> None:
    """Notes limits that do not fit together."""
    for name, attribute, bound_name, bound_attribute in _SMALLER_FIRST:
        with problems.gathered():
            if getattr(limits, attribute) >= getattr(limits, bound_attribute):
                raise ConfigError(str(file), f"limits.{name}", f"must be below limits.{bound_name}")
    with problems.gathered():
        if limits.record_bytes < limits.message_bytes < limits.record_bytes + _LETTER_MARGIN_BYTES:
            raise ConfigError(
                str(file),
                "limits.record_bytes",
                f"must be at least {_LETTER_MARGIN_BYTES >> 10} KiB below limits.message_bytes: a record "
                "that is refused goes to the dead letters with its headers and the reason",
            )
