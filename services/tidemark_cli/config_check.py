"""Whether a configuration that could be read can work, as far as that is known without Kafka and the table.

Each part that will use a section is asked, so that one place alone knows what it takes.
"""

from __future__ import annotations

from commit_coordinator.hoodie_section import target_file_bytes, without_effect
from hudi_format.keys import KeyGenerator
from hudi_format.ordering import OrderingField
from hudi_format.schema import TableSchema
from hudi_format.storage.locate import open_storage
from index_assigner.formats.choose import record_decoder
from stream_runtime.clock import SystemClock
from stream_runtime.config import TableConfigFile
from stream_runtime.config.model import IndexKind
from stream_runtime.kafka.confluent.client import ConfluentKafkaClient
from tidemark_cli.errors import WRONG_USE, CliError

_ANY_BROKER = "127.0.0.1:1"


def check_config(config: TableConfigFile) -> list[str]:
    """Warnings. Raises one of our packages' errors for the first thing that cannot work."""
    if config.table.index.kind is not IndexKind.GLOBAL:
        raise CliError(
            f"{config.file}: table.index.kind: partitioned is not served by this release: use global",
            WRONG_USE,
        )
    open_storage(config.table.path)
    schema = TableSchema.from_avro(config.table.schema.read_text(encoding="utf-8"), config.table.name)
    generator = KeyGenerator.for_table(schema, config.table.record_key, config.table.partition)
    if config.table.ordering is not None:
        OrderingField.of(schema, config.table.ordering)
    record_decoder(config, schema, generator, SystemClock())
    target_file_bytes(config)
    _check_kafka_settings(config)
    unused = without_effect(config)
    return [f"hoodie: {key} has no effect: Tidemark writes itself" for key in unused]


def _check_kafka_settings(config: TableConfigFile) -> None:
    """The client refuses keys and values that it does not know when it is made; it reaches no broker here."""
    section = config.kafka.with_bootstrap_servers(_ANY_BROKER)
    limits = config.limits
    quiet = {**section.settings, "log_level": "0"}
    client = ConfluentKafkaClient(quiet, None, limits.message_bytes, limits.transaction_timeout_ms)
    client.admin().close()
