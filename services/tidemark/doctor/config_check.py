"""Whether a configuration file can work, as far as that is known without Kafka and the table.

What can be read of the file is checked, even where something else cannot be read. Each part that will use a
section is asked, by the function with which it starts itself, so that `config check`, `doctor` and the
services cannot differ. All that is wrong is told at once. Not known is what rests on a key that is wrong
itself, anything in a file that is no YAML, and of an Avro schema that cannot be used more than its first
mistake.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from tidemark.config import ConfigError, TableConfigFile
from tidemark.config.errors import all_of_them
from tidemark.config.hoodie_section import target_file_bytes, without_effect
from tidemark.config.load import read_config
from tidemark.config.model import IndexKind
from tidemark.config.partial import asks_for_unread
from tidemark.console.errors import WRONG_USE, CliError, expected_error, message_of
from tidemark.hudi_format.keys import KeyGenerator, field_errors
from tidemark.hudi_format.ordering import OrderingField
from tidemark.hudi_format.schema import TableSchema
from tidemark.hudi_format.storage.locate import open_storage
from tidemark.index_assigner.offline import check_state_memory
from tidemark.record_formats.choose import record_decoder
from tidemark.stream_runtime.clock import SystemClock
from tidemark.stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark.stream_runtime.security.listening import check_listen_address
from tidemark.stream_writer.offline import check_kafka_settings, check_spark_settings

_ANY_BROKER: Final = "127.0.0.1:1"


class CheckedConfig(NamedTuple):
    config: TableConfigFile
    warnings: list[str]


class _Refused:
    """What the parts refuse."""

    def __init__(self) -> None:
        self.errors: list[Exception] = []

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """An error of one of our packages is kept. A block that needs a key that could not be read ends."""
        try:
            yield
        except Exception as error:
            if expected_error(error):
                self.errors.append(error)
            elif not asks_for_unread(error):
                raise


def check_config_file(path: str | os.PathLike[str], env: Mapping[str, str] | None = None) -> CheckedConfig:
    """The configuration that can be used; `env` None means the process environment.

    Raises one of our packages' errors for the one thing that is wrong, or a CliError that names everything
    where there are several.
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
        told = [_without_file(each, str(config.file)) for each in errors]
        raise CliError(f"{config.file}: {all_of_them(told)}", WRONG_USE)
    unused = without_effect(config)
    return CheckedConfig(config, [f"hoodie: {key} has no effect: Tidemark writes itself" for key in unused])


def _without_file(error: Exception, file: str) -> str:
    said = error.without_file if isinstance(error, ConfigError) else message_of(error, file)
    return said.removeprefix(f"{file}: ")


def _index_kind(config: TableConfigFile, _: _Refused) -> None:
    if config.table.index.kind is not IndexKind.GLOBAL:
        raise CliError(
            f"{config.file}: table.index.kind: partitioned is not served by this release: use global",
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
    # Whatever the key is, the decoder can be asked: any column that may be one stands for it.
    names = [name for name in schema.arrow.names if not any(field_errors(schema, [name], ()))]
    if names:
        record_decoder(config, schema, KeyGenerator.for_table(schema, names[:1]), SystemClock())


def _hoodie(config: TableConfigFile, _: _Refused) -> None:
    target_file_bytes(config)


def _kafka_settings(config: TableConfigFile, refused: _Refused) -> None:
    """The client refuses keys and values that it does not know when it is made; it reaches no broker here."""
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
    """Who refuses settings at a start says one of them; it is asked again without the one that it named."""
    left = dict(section)
    while True:
        before = len(refused.errors)
        with refused.gathered():
            ask(left)
        if len(refused.errors) == before:
            return
        words = {each.strip(".") for each in re.findall(r"[\w.]+", str(refused.errors[-1]))}
        named = {key for key in left if {key, f"kafka.{key}"} & words}
        if not named:
            return
        left = {key: value for key, value in left.items() if key not in named}


def _addresses(config: TableConfigFile, refused: _Refused) -> None:
    """Where services listen has to be this machine alone, or protected, or allowed by name."""
    services = config.services
    for each in ("coordinator", "metrics", "web", "http"):
        with refused.gathered():
            address = getattr(services, each)
            if address is not None:
                at = address if each == "http" else services.listening(address)
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
