"""Checks that the settings of `input` fit together, and fit those of `table`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tidemark.config.errors import ConfigError, Problems
from tidemark.config.model import InputConfig, InputFormat, InputFraming, TableConfig
from tidemark.config.partial import UNREAD, changed


def check_input(problems: Problems, file: Path, config: InputConfig, table: TableConfig) -> InputConfig:
    """Notes each setting that is missing for the format, or has no meaning with it; returns `input` without
    those.
    """
    usable = config
    for key, check in _CHECKS.items():
        with problems.gathered():
            said = check(config, table)
            if said is not None:
                problems.note(ConfigError(str(file), f"input.{key}", said))
                usable = changed(usable, **{key.split(".")[0]: UNREAD})
    return usable


def _registry(config: InputConfig, _: TableConfig) -> str | None:
    if config.format.is_avro and config.schema_registry is None:
        return f"is required with input.format: {config.format.value}: {{url: http://host:8081}}"
    return None


def _framing(config: InputConfig, _: TableConfig) -> str | None:
    if config.format.is_avro and config.framing is InputFraming.NONE:
        return f"must be confluent with input.format: {config.format.value}: leave it out"
    return None


def _protobuf(config: InputConfig, _: TableConfig) -> str | None:
    wanted = config.format is InputFormat.PROTOBUF
    if wanted and config.protobuf is None:
        return "is required with input.format: protobuf: {descriptor: orders.desc, message: shop.Order}"
    if not wanted and config.protobuf is not None:
        return f"has no meaning with input.format: {config.format.value}"
    return None


def _debezium(config: InputConfig, _: TableConfig) -> str | None:
    if not config.format.is_debezium and config.debezium is not None:
        return f"has no meaning with input.format: {config.format.value}"
    return None


def _delete_field(config: InputConfig, _: TableConfig) -> str | None:
    if config.format.is_debezium and config.delete_field is not None:
        return f"has no meaning with input.format: {config.format.value}: op says what a delete is"
    return None


def _debezium_ordering(config: InputConfig, table: TableConfig) -> str | None:
    if config.format.is_debezium and config.debezium is not None and table.ordering is None:
        return "fills the column that table.ordering names: name one there, of type long"
    return None


_CHECKS: Final[dict[str, Callable[[InputConfig, TableConfig], str | None]]] = {
    "schema_registry": _registry,
    "framing": _framing,
    "protobuf": _protobuf,
    "debezium": _debezium,
    "delete_field": _delete_field,
    "debezium.ordering": _debezium_ordering,
}
