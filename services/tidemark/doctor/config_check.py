"""Checks whether a configuration file can work, as far as that is known without Kafka and the table.

Every section is checked by the function with which the service that uses it starts, so that `config check`,
`doctor` and the services agree. All errors are reported at once: a key that cannot be read does not keep the
others from being checked. Not found are only errors in a check that needs a key that is wrong itself, errors
in a file that is no YAML, and further mistakes of an Avro schema after its first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidemark.config import ConfigError, TableConfigFile
from tidemark.config.errors import all_of_them
from tidemark.config.hoodie_section import HIVE_STYLE, is_true, target_file_bytes, without_effect
from tidemark.config.load import read_config
from tidemark.config.model import ConfiguredIndexKind
from tidemark.config.partial import asks_for_unread
from tidemark.config.partitioned_cost import partitioned_costs
from tidemark.config.retention_cost import retention_costs
from tidemark.console.errors import WRONG_USE, CliError, expected_error, message_of
from tidemark.hudi_format.keys import KeyGenerator, field_errors
from tidemark.hudi_format.metadata_table.scanned_ranges import check_stats_columns
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import SchemaError, TableSchema
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.index_assigner.offline import check_state_memory
from tidemark.record_formats.choose import record_decoder
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.security.listening import check_listen_address
from tidemark.stream_writer.offline import check_kafka_settings, check_spark_settings

_ANY_BROKER: Final = "127.0.0.1:1"


class CheckedConfig(NamedTuple):
    """``notes``: what the settings cost, where nothing is wrong with them."""

    config: TableConfigFile
    warnings: list[str]
    notes: list[str]


class _Refused:
    """The errors of all checks."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Keeps an error of our packages that the block raises. A block that needs a key that could not be
        read ends without an error: that key's own error is known already.
        """
        try:
            yield
        except Exception as error:
            if expected_error(error):
                self.errors.append(error)
            elif not asks_for_unread(error):
                raise


def check_config_file(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> CheckedConfig:
    """Loads and checks a configuration file; returns it with warnings and notes. `env` None means the process
    environment.

    Raises the error of the one thing that is wrong, or a CliError that names all of them if there are
    several.
    """
    config, problems = read_config(path, env)
    refused = _Refused()
    for check in _CHECKS:
        with refused.gathered():
            check(config, refused)
    errors = [*problems.found, *refused.errors]
    if len(errors) == 1:
        raise errors[0]
    if errors:
        texts = [_without_file(error, str(config.file)) for error in errors]
        raise CliError(f"{config.file}: {all_of_them(texts)}", WRONG_USE)
    unused = without_effect(config)
    warnings = [f"hoodie: {key} has no effect: Tidemark writes itself" for key in unused]
    notes = [*retention_costs(config), *partitioned_costs(config)]
    return CheckedConfig(config, warnings, notes)


def _without_file(error: Exception, file: str) -> str:
    text = error.without_file if isinstance(error, ConfigError) else message_of(error, file)
    return text.removeprefix(f"{file}: ")


def _index_kind(config: TableConfigFile, _: _Refused) -> None:
    if config.table.index.kind is ConfiguredIndexKind.PARTITIONED and is_true(config, HIVE_STYLE):
        nested = [name for name in config.table.partition if "." in name]
        if nested:
            raise CliError(
                f"{config.file}: {HIVE_STYLE} puts the name of {nested[0]} into each partition path, and a "
                "partitioned record index cannot have a path with a '.': use global, or leave the key out",
                WRONG_USE,
            )


def _storage(config: TableConfigFile, _: _Refused) -> None:
    open_storage(config.table.path)


def _columns(config: TableConfigFile, refused: _Refused) -> None:
    table = config.table
    schema = TableSchema.from_avro(table.schema.read_text(encoding="utf-8"), getattr(table, "name", "table"))
    with refused.gathered():
        refused.errors += field_errors(schema, table.record_key, ())
    with refused.gathered():
        refused.errors += field_errors(schema, (), table.partition)
    with refused.gathered():
        if table.ordering is not None:
            OrderingField.of(schema, table.ordering)
    with refused.gathered():
        _stats_columns(config, schema)
    # The decoder needs a key generator to be made, also when table.record_key is wrong. Any column that may
    # be a key does for this check.
    names = [name for name in schema.arrow.names if not any(field_errors(schema, [name], ()))]
    if names:
        record_decoder(config, schema, KeyGenerator.for_table(schema, names[:1]), SystemClock())


def _stats_columns(config: TableConfigFile, schema: TableSchema) -> None:
    try:
        check_stats_columns(schema, config.table.index.column_stats)
    except SchemaError as error:
        raise CliError(f"{config.file}: table.index.column_stats: {error}", WRONG_USE) from error


def _hoodie(config: TableConfigFile, _: _Refused) -> None:
    target_file_bytes(config)


def _kafka_settings(config: TableConfigFile, refused: _Refused) -> None:
    """Makes a client, which refuses keys and values that it does not know. It connects to no broker."""
    limits = config.limits

    def ask(section: Mapping[str, str]) -> None:
        quiet = {**section, "bootstrap.servers": _ANY_BROKER, "log_level": "0"}
        client = ConfluentKafkaClient(quiet, None, limits.message_bytes, limits.transaction_timeout_ms)
        client.admin().close()

    _ask_again(refused, config.kafka.settings, ask)


def _kafka_settings_of_writer(config: TableConfigFile, refused: _Refused) -> None:
    _ask_again(refused, config.kafka.settings, check_kafka_settings)


def _spark_settings(config: TableConfigFile, refused: _Refused) -> None:
    _ask_again(refused, config.spark, check_spark_settings)


def _ask_again(
    refused: _Refused, section: Mapping[str, str], ask: Callable[[Mapping[str, str]], None]
) -> None:
    """Reports every setting that `ask` refuses. `ask` raises an error for the first one only, so it is called
    again without the settings that the error names, until it refuses none, or names none.
    """
    left = dict(section)
    while True:
        before = len(refused.errors)
        with refused.gathered():
            ask(left)
        if len(refused.errors) == before:
            return
        words = {word.strip(".") for word in re.findall(r"[\w.]+", str(refused.errors[-1]))}
        named = {key for key in left if {key, f"kafka.{key}"} & words}
        if not named:
            return
        left = {key: value for key, value in left.items() if key not in named}


def _addresses(config: TableConfigFile, refused: _Refused) -> None:
    """Checks that services listen at loopback addresses only, or are protected by `security`, or that
    `services.allow_remote` permits it.
    """
    services = config.services
    for key in ("coordinator", "metrics", "web", "http"):
        with refused.gathered():
            address = getattr(services, key)
            if address is not None:
                at = address if key == "http" else services.listening(address)
                check_listen_address(at, services.allow_remote, config.security)


def _memory(config: TableConfigFile, _: _Refused) -> None:
    check_state_memory(config.state.memory_bytes)


_CHECKS: Final[tuple[Callable[[TableConfigFile, _Refused], None], ...]] = (
    _index_kind,
    _storage,
    _columns,
    _hoodie,
    _kafka_settings,
    _addresses,
    _memory,
    _spark_settings,
    _kafka_settings_of_writer,
)
