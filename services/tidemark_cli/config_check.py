"""Whether a configuration that could be read can work, as far as that is known without Kafka and the table.

Each part that will use a section is asked, by the function with which it starts itself, so that `config
check`, `doctor` and the services cannot differ. All are asked, and what they refuse is told at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from commit_coordinator.hoodie_section import target_file_bytes, without_effect
from hudi_format.keys import KeyGenerator
from hudi_format.ordering import OrderingField
from hudi_format.schema import TableSchema
from hudi_format.storage.locate import open_storage
from index_assigner.formats.choose import record_decoder
from index_assigner.index.limits import IndexLimits
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile
from stream_runtime.config.model import IndexKind
from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from stream_runtime.security.listening import check_listen_address
from stream_writer.rehearsal import check_settings
from tidemark_cli.errors import WRONG_USE, CliError, expected_error, message_of

_ANY_BROKER: Final = "127.0.0.1:1"


def check_config(config: TableConfigFile) -> list[str]:
    """Warnings. Raises one of our packages' errors for the one thing that cannot work, or a CliError that
    names everything where there are several.
    """
    problems = list(_problems(config))
    if len(problems) == 1:
        raise problems[0]
    if problems:
        told = "; ".join(f"({n}) {message_of(each, str(config.file))}" for n, each in enumerate(problems, 1))
        raise CliError(f"{config.file}: {len(problems)} things cannot work: {told}", WRONG_USE)
    unused = without_effect(config)
    return [f"hoodie: {key} has no effect: Tidemark writes itself" for key in unused]


def _problems(config: TableConfigFile) -> Iterator[Exception]:
    for check in _CHECKS:
        try:
            check(config)
        except Exception as error:
            if not expected_error(error):
                raise
            yield error


def _index_kind(config: TableConfigFile) -> None:
    if config.table.index.kind is not IndexKind.GLOBAL:
        raise CliError(
            f"{config.file}: table.index.kind: partitioned is not served by this release: use global",
            WRONG_USE,
        )


def _storage(config: TableConfigFile) -> None:
    open_storage(config.table.path)


def _columns(config: TableConfigFile) -> None:
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    generator = KeyGenerator.for_table(schema, config.table.record_key, config.table.partition)
    if config.table.ordering is not None:
        OrderingField.of(schema, config.table.ordering)
    record_decoder(config, schema, generator, SystemClock())


def _hoodie(config: TableConfigFile) -> None:
    target_file_bytes(config)


def _kafka_settings(config: TableConfigFile) -> None:
    """The client refuses keys and values that it does not know when it is made; it reaches no broker here."""
    section = config.kafka.with_bootstrap_servers(_ANY_BROKER)
    limits = config.limits
    quiet = {**section.settings, "log_level": "0"}
    client = ConfluentKafkaClient(quiet, None, limits.message_bytes, limits.transaction_timeout_ms)
    client.admin().close()


def _addresses(config: TableConfigFile) -> None:
    """Where services listen has to be this machine alone, or protected, or allowed by name."""
    services = config.services
    given = [services.listening(services.coordinator), services.metrics, services.http]
    for address in given:
        if address is not None:
            check_listen_address(address, services.allow_remote, config.security)


def _limits(config: TableConfigFile) -> None:
    IndexLimits(config.state.memory_bytes, config.state.disk_bytes).check()


_CHECKS: Final[tuple[Callable[[TableConfigFile], None], ...]] = (
    _index_kind,
    _storage,
    _columns,
    _hoodie,
    _kafka_settings,
    _addresses,
    _limits,
    check_settings,
)
