"""Whether the settings of `input` fit together, and fit the table's."""

from __future__ import annotations

from pathlib import Path

from stream_runtime.config.errors import ConfigError
from stream_runtime.config.model import InputConfig, InputFormat, InputFraming, TableConfig


def check_input(file: Path, config: InputConfig, table: TableConfig) -> None:
    """Raises ConfigError for the first setting that the format needs and lacks, or has and cannot use."""
    name = config.format.value
    if config.format.is_avro:
        if config.schema_registry is None:
            raise ConfigError(
                str(file),
                "input.schema_registry",
                f"is required with input.format: {name}: {{url: http://host:8081}}",
            )
        if config.framing is InputFraming.NONE:
            raise ConfigError(
                str(file), "input.framing", f"must be confluent with input.format: {name}: leave it out"
            )
    if config.format is InputFormat.PROTOBUF and config.protobuf is None:
        raise ConfigError(
            str(file),
            "input.protobuf",
            "is required with input.format: protobuf: {descriptor: orders.desc, message: shop.Order}",
        )
    if config.format is not InputFormat.PROTOBUF and config.protobuf is not None:
        raise ConfigError(str(file), "input.protobuf", f"has no meaning with input.format: {name}")
    _check_debezium(file, config, table)


def _check_debezium(file: Path, config: InputConfig, table: TableConfig) -> None:
    name = config.format.value
    if not config.format.is_debezium:
        if config.debezium is not None:
            raise ConfigError(str(file), "input.debezium", f"has no meaning with input.format: {name}")
        return
    if config.delete_field is not None:
        raise ConfigError(
            str(file),
            "input.delete_field",
            f"has no meaning with input.format: {name}: op says what a delete is",
        )
    if config.debezium is not None and table.ordering is None:
        raise ConfigError(
            str(file),
            "input.debezium.ordering",
            "fills the column that table.ordering names: name one there, of type long",
        )
